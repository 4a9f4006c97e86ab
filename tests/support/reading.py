"""Everything in a topic, read once by a new group of orbitmq's client; fails when something expected does not come."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Collection

from orbitmq.client import ConsumeFromWhere, LitePullConsumer

PATIENCE_S = 60


def deliveries(namesrv: str, topic: str, expected: Collection[str]) -> Counter[str]:
    """Key -> how many messages have it. AssertionError unless all of the expected ones are there."""
    return asyncio.run(_read(namesrv, topic, set(expected)))


async def _read(namesrv: str, topic: str, missing: set[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    async with LitePullConsumer(
        f"reader-{uuid.uuid4().hex}",
        namesrv,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        pull_batch_size=32,
    ) as consumer:
        consumer.subscribe(topic)
        ends = asyncio.get_running_loop().time() + PATIENCE_S
        while missing and asyncio.get_running_loop().time() < ends:
            keys = [message.keys or "" for message in await consumer.poll(1)]
            found.update(keys)
            missing.difference_update(keys)
    assert not missing, f"{len(missing)} messages are not there, for one {sorted(missing)[:3]}"
    return found
