"""Give every consumer every message, for caches that must be emptied everywhere. Offsets are kept in local files."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    MessageExt,
    MessageModel,
    Producer,
    PushConsumer,
)

TOPIC = "ExampleBroadcast"
COUNT = 5


class Cache:
    """One of several processes that all must hear; here both are in one."""

    def __init__(self, name: str, directory: str) -> None:
        self.emptied: set[str] = set()
        self.consumer = PushConsumer(
            "example-caches",
            message_model=MessageModel.BROADCASTING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            instance_name=name,  # stays the same over restarts: its file of offsets is found by it
            local_offset_dir=directory,
        )
        self.consumer.subscribe(TOPIC)
        self.consumer.set_listener(self.empty)

    async def empty(self, messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        self.emptied.update(message.keys for message in messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Producer("example-broadcast") as producer:
            await producer.send_batch([Message(TOPIC, b"empty", keys=f"key-{n}") for n in range(COUNT)])
        caches = [Cache("left", directory), Cache("right", directory)]
        async with caches[0].consumer, caches[1].consumer, asyncio.timeout(10):
            while any(len(cache.emptied) < COUNT for cache in caches):
                await asyncio.sleep(0.01)
    for name, cache in zip(("left", "right"), caches, strict=True):
        print(f"{name}: {', '.join(sorted(cache.emptied))}")


asyncio.run(main())
