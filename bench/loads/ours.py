"""orbitmq's asyncio client under load, on uvloop: `ours.py <work> ...`, one row of figures."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from typing import Any

import uvloop
from meter import BODY, TAG, Meter, arguments, key, measure_reads, measure_sends, report

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageExt,
    OrbitMQError,
    Producer,
    PushConsumer,
)

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
LINGER_MS = 5
GROUP = f"readers-{time.time_ns()}"


async def send(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    lingers = {"linger_ms": LINGER_MS, "async_in_flight_max": told.in_flight} if told.work == "linger" else {}
    async with Producer("senders", told.namesrv, send_timeout_ms=10_000, **lingers) as producer:
        one_by_one = {"sync": _send_one, "oneway": _send_oneway, "batch": _send_batch}
        if told.work in ("async", "linger"):
            tasks = [asyncio.create_task(_pipelined(producer, told, meter))]
        else:
            act = one_by_one[told.work]
            tasks = [asyncio.create_task(_repeat(act, producer, told, meter)) for _ in range(told.senders)]
        row = await asyncio.to_thread(measure_sends, meter, told)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return row


def message(told: argparse.Namespace, number: int) -> Message:
    return Message(told.topic, BODY, tags=TAG, keys=key(number))


async def _repeat(act: Any, producer: Producer, told: argparse.Namespace, meter: Meter) -> None:
    while True:
        began = time.perf_counter()
        try:
            meter.done(await act(producer, told, meter), began)
        except OrbitMQError:
            meter.errors += 1


async def _send_one(producer: Producer, told: argparse.Namespace, meter: Meter) -> int:
    await producer.send(message(told, meter.total))
    return 1


async def _send_oneway(producer: Producer, told: argparse.Namespace, meter: Meter) -> int:
    await producer.send_oneway(message(told, meter.total))
    return 1


async def _send_batch(producer: Producer, told: argparse.Namespace, meter: Meter) -> int:
    await producer.send_batch([message(told, meter.total + number) for number in range(told.batch)])
    return int(told.batch)


async def _pipelined(producer: Producer, told: argparse.Namespace, meter: Meter) -> None:
    free = asyncio.Semaphore(told.in_flight)

    def begin() -> None:
        began = time.perf_counter()

        def done(_: object, error: BaseException | None) -> None:
            free.release()
            if error is None:
                meter.done(1, began)
            else:
                meter.errors += 1

        producer.send_async(message(told, meter.total), done)

    while True:
        await free.acquire()
        begin()


async def push(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    async def listen(messages: Sequence[MessageExt], _: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        meter.total += len(messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = PushConsumer(GROUP, told.namesrv, consume_from_where=FIRST)
    consumer.subscribe(told.topic)
    consumer.set_listener(listen)
    async with consumer:
        return await asyncio.to_thread(measure_reads, meter, told)


async def poll(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    consumer = LitePullConsumer(GROUP, told.namesrv, consume_from_where=FIRST, pull_batch_size=told.batch)
    consumer.subscribe(told.topic)

    async def read() -> None:
        while True:
            meter.total += len(await consumer.poll(1))

    async with consumer:
        reader = asyncio.create_task(read())
        row = await asyncio.to_thread(measure_reads, meter, told)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
    return row


WORKS = {"sync": send, "async": send, "linger": send, "oneway": send, "batch": send, "push": push, "poll": poll}

if __name__ == "__main__":
    asked = arguments(WORKS)
    measured = Meter()
    report(uvloop.run(WORKS[asked.work](asked, measured)), measured)
