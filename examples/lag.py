"""How far a group is behind, and how many threads and machines its listener needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    Timed,
    total_lag,
)

TOPIC = "ExampleLag"
COUNT = 40


def slow(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
    """Computes a little and waits a lot, as listeners do that ask a database."""
    sum(range(20_000))
    time.sleep(0.01)
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


async def main() -> None:
    async with Producer("example-lag") as producer:
        await producer.send_batch([Message(TOPIC, b"x") for _ in range(COUNT)])

    timed = Timed(slow)
    consumer = PushConsumer(
        "example-lag-readers",
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_threads=2,
        persist_offset_interval_ms=100,  # 5 s unless given: so late may the lag be known
    )
    consumer.subscribe(TOPIC)
    consumer.set_listener(timed.listener)
    consumer.suspend()  # pull nothing yet
    async with consumer, asyncio.timeout(10):
        while not consumer.assignment():
            await asyncio.sleep(0.01)
        lags = await consumer.lag(TOPIC)
        print(f"behind before: {total_lag(lags)} messages")  # None when a broker could not be reached, never a silent 0
        consumer.resume()
        while timed.times.messages < COUNT:
            await asyncio.sleep(0.01)
        while total_lag(await consumer.lag(TOPIC)) != 0:
            await asyncio.sleep(0.05)
        print("behind after: 0 messages")

    times = timed.times
    print(f"T1 is {times.compute_ms:.2f} ms of computing, T2 {times.wait_ms:.2f} ms of waiting a message")
    threads = times.threads(cores=1)  # pure Python computes on one core
    print(f"use {threads} threads a machine: {times.throughput(threads):.0f} messages/s")
    print(f"for a peak of 5,000 messages/s: {times.nodes(5000, threads)} machines")


asyncio.run(main())
