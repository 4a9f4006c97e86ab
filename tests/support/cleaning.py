"""A live broker whose files are cleaned step by step, with a disk that is as full as the test says."""

from __future__ import annotations

import asyncio

from orbitmq.broker.broker import Broker
from orbitmq.wire.bodies import KVTable
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode
from tests.support.live import Client, Time

SMALL = {"mappedFileSizeCommitLog": "4096", "cleanResourceInterval": "10"}
PER_FILE = 3  # messages of 1000 bytes


async def clean(broker: Broker, time: Time) -> int:
    """Let the cleaner work for a while; where the log begins then."""
    store = broker.store
    for flusher in (store._log_flusher, store._queue_flusher):
        flusher.flush()
    for _ in range(200):
        pause_ms = store._cleaner.step()
        await asyncio.sleep(0)  # a file is taken out of the log on the loop
        time.clock.advance(pause_ms)
    return store.commit_log_min_offset


async def runtime_table(client: Client) -> dict[str, str]:
    answer = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    return decode(KVTable, answer.body).table
