"""The package `aiokafka` of PyPI under load at a Kafka broker, on uvloop: one row of figures.

It gathers into batches by itself, so batches of a caller and sends without a response would measure the same again.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from meter import BODY, TAG, Meter, arguments, key, measure_reads, measure_sends, report

GROUP = f"readers-{time.time_ns()}"
HEADERS = [("TAGS", TAG.encode())]
WAIT_MS = 1000


async def send(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    """Each task waits for its own sends: one that did not would be held up by each full batch, with fewer in flight."""

    async def repeat() -> None:
        while True:
            began = time.perf_counter()
            try:
                await producer.send_and_wait(told.topic, BODY, key=key(meter.total).encode(), headers=HEADERS)
                meter.done(1, began)
            except KafkaError:
                meter.errors += 1

    async with AIOKafkaProducer(bootstrap_servers=told.namesrv, request_timeout_ms=10_000) as producer:
        senders = told.in_flight if told.work == "async" else told.senders
        tasks = [asyncio.create_task(repeat()) for _ in range(senders)]
        row = await asyncio.to_thread(measure_sends, meter, told)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return row


async def read(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    async def push() -> None:
        async for _ in consumer:
            meter.total += 1

    async def poll() -> None:
        while True:
            found = await consumer.getmany(timeout_ms=WAIT_MS, max_records=told.batch)
            meter.total += sum(map(len, found.values()))

    settings = {"bootstrap_servers": told.namesrv, "group_id": GROUP, "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(told.topic, **settings) as consumer:
        reader = asyncio.create_task({"push": push, "poll": poll}[told.work]())
        row = await asyncio.to_thread(measure_reads, meter, told)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
    return row


WORKS = {"sync": send, "async": send, "push": read, "poll": read}

if __name__ == "__main__":
    asked = arguments(WORKS)
    measured = Meter()
    report(uvloop.run(WORKS[asked.work](asked, measured)), measured)
