"""The two clients of an even load, a process each: `send` finds out how much can be sent and then sends a share of it,
`consume` has a push consumer whose listener takes some messages at the second time only. Each prints JSON lines.

A message's body says its number, when it was due, and what kind it is; both processes share the machine's clock.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import uvloop

from bench.soak.seen import Seen
from orbitmq.admin.latencies import Latencies
from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from orbitmq.errors import OrbitMQError
from orbitmq.runtime.collector import settle

GROUP = "soak-steady"
TOPIC = "SoakSteady"
PLAIN, DELAYED, RETRIED, PEAK = "n", "d", "r", "p"
DELAYED_EVERY, RETRIED_EVERY = 50, 97  # messages; the rest is plain
PEAK_SENDERS = 64
PEAK_WARM_UP_SHARE = 0.25  # of the time in which the peak is measured
BODY_BYTES = 1024
IN_FLIGHT_MAX = 2000  # sends; with more the sender waits, and what is due is late
SEND_TIMEOUT_MS = 30_000  # a machine that stalls is slow, which the times tell; a receipt that never comes is a failure
FAILED_MAX = 10_000  # numbers that are kept; a load in which more fail is no even one
REPORT_S = 1.0
PATIENCE_S = 90.0  # for what is delayed, given back or behind when the sending has ended
TOLD_MAX = 1000  # numbers of lost messages in the last line


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def body(number: int, due_ns: int, kind: str) -> bytes:
    return f"{number}:{due_ns}:{kind}:".encode().ljust(BODY_BYTES, b".")


def read_body(data: bytes) -> tuple[int, int, str]:
    number, due_ns, kind, _ = data.split(b":", 3)
    return int(number), int(due_ns), kind.decode()


def kind_of(number: int) -> str:
    return DELAYED if number % DELAYED_EVERY == 0 else RETRIED if number % RETRIED_EVERY == 0 else PLAIN


class Sender:
    """Numbers its messages from 0 on, over both parts of its work."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.count = 0
        self.acknowledged = 0
        self.failed: list[int] = []
        self.times = Latencies()

    async def send(self, due_ns: int, kind: str | None = None) -> None:
        """One message, once."""
        number = self.count
        self.count += 1
        chosen = kind or kind_of(number)
        level = 1 if chosen == DELAYED else 0
        message = Message(TOPIC, body(number, due_ns, chosen), keys=f"soak-{number}", delay_level=level)
        try:
            await self._producer.send(message)
        except OrbitMQError:
            self.failed.append(number)
            if len(self.failed) > FAILED_MAX:
                raise
        else:
            self.acknowledged += 1
            self.times.add((time.monotonic_ns() - due_ns) / 1e9)

    async def peak(self, seconds: float) -> float:
        """Messages a second when PEAK_SENDERS send one after the other."""
        ends = time.monotonic() + seconds

        async def work() -> None:
            while time.monotonic() < ends:
                await self.send(time.monotonic_ns(), PEAK)

        async with asyncio.TaskGroup() as group:
            for _ in range(PEAK_SENDERS):
                group.create_task(work())
            await asyncio.sleep(seconds * PEAK_WARM_UP_SHARE)
            before, began = self.acknowledged, time.monotonic()
            await asyncio.sleep(max(0.0, ends - began))
            return (self.acknowledged - before) / (time.monotonic() - began)

    async def evenly(self, rate: float, seconds: float) -> None:
        """`rate` a second, each at its time; a time counts from when it was due."""
        self.acknowledged, self.times = 0, Latencies()
        began, last = time.monotonic_ns(), time.monotonic()
        due = (began + round(number * 1e9 / rate) for number in range(round(rate * seconds)))
        async with asyncio.TaskGroup() as group:
            under_way: set[asyncio.Task[None]] = set()
            for at in due:
                if (left := at - time.monotonic_ns()) > 0:
                    await asyncio.sleep(left / 1e9)
                if len(under_way) >= IN_FLIGHT_MAX:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                task = group.create_task(self.send(at))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                if time.monotonic() - last >= REPORT_S:
                    last = time.monotonic()
                    say(acknowledged=self.acknowledged, failed=len(self.failed))


async def send(arguments: argparse.Namespace) -> None:
    async with Producer("soak-steady-senders", arguments.namesrv, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        sender = Sender(producer)
        peak = await sender.peak(arguments.peak_seconds)
        rate = max(1.0, peak * arguments.share)
        settle()
        say(peak=peak, rate=rate)
        await sender.evenly(rate, arguments.seconds)
        say(
            ended=True,
            total=sender.count,
            acknowledged=sender.acknowledged,
            failed=sender.failed,
            times=_read(sender.times),
        )
        await asyncio.to_thread(sys.stdin.readline)  # it is looked at as long as the others are


def _read(times: Latencies) -> Any:
    return msgspec.to_builtins(times.read())


async def consume(arguments: argparse.Namespace) -> None:
    seen, times, again, late = Seen(), Latencies(), 0, 0
    consumer = PushConsumer(GROUP, arguments.namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe(TOPIC)

    @consumer.on_message
    async def handle(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:  # noqa: ARG001
        nonlocal again, late
        now = time.monotonic_ns()
        for one in messages:
            number, due_ns, kind = read_body(one.body)
            if kind == RETRIED and not one.reconsume_times:
                return ConsumeConcurrentlyStatus.RECONSUME_LATER
            is_new = seen.add(number)
            again += is_new and kind == RETRIED
            late += is_new and kind == DELAYED
            if kind == PLAIN and is_new:
                times.add((now - due_ns) / 1e9)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async with consumer:
        settle()
        say(started=True)
        asked = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        while not asked.done():
            await asyncio.wait([asked], timeout=REPORT_S)
            say(seen=seen.count)
        wanted = json.loads(asked.result())
        failed = set(wanted["failed"])
        missing = await _all_came(seen, wanted["total"], failed)
        say(ended=True, missing=missing, again=seen.again, retried=again, delayed=late, times=_read(times))


async def _all_came(seen: Seen, total: int, failed: set[int]) -> list[int]:
    """What has not come when all the others have, or patience is over."""
    ends = time.monotonic() + PATIENCE_S
    while missing := list(itertools.islice(_missing(seen, total, failed), TOLD_MAX)):
        if time.monotonic() > ends:
            return missing
        await asyncio.sleep(REPORT_S / 4)
    return []


def _missing(seen: Seen, total: int, failed: set[int]) -> Iterator[int]:
    return (number for number in seen.missing(total) if number not in failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["send", "consume"])
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--peak-seconds", type=float, default=60)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--share", type=float, default=0.5, help="of the peak")
    arguments = parser.parse_args()
    uvloop.run({"send": send, "consume": consume}[arguments.part](arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
