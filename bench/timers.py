"""What timer messages cost a broker, and how exactly they come (`make bench-timers`): the bars of their design.

1. Delivery: many messages fall due at an even rate, while nothing is sent. Measured is the broker's processor time;
   that of storing them is printed beside it.
2. Memory: what the broker has of its own, not mapped from files, before and after a million messages wait.
3. Precision, with those waiting: a stream of messages a few seconds ahead; the time at which the copy was stored minus
   the time at which it was due.
4. Restart: from the start of the process until every message that waits is known.

Writes timers.txt and timers.json below docs/performance, unless `--out` names another directory. The machine should be
idle; the load generator takes the second core while it sends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from bench.cores import worked_s
from bench.growth_load import SEND, Answer, Peer, connect, frame, sent
from bench.loop_turns import launched
from bench.report import bars
from bench.systems import memory_of
from orbitmq.errors import OrbitMQError
from orbitmq.message.flags import PULL_SUBSCRIPTION
from orbitmq.message.message_loops import decode_messages
from orbitmq.message.model import MessageQueue
from orbitmq.message.properties import TIMER_DELIVER_MS
from orbitmq.net.remoting import Remoting
from orbitmq.operations.offsets import max_offset
from orbitmq.operations.pulls import pull
from orbitmq.operations.timers import pending_timers
from orbitmq.wire.headers import PullMessageHeader

DOCS = Path(__file__).parents[1] / "docs" / "performance"
TOPIC, QUEUES = "timed", 8
BODY = os.urandom(200)
DUE, NUMBER = b"7777777777777", b"0000000000"  # places in a template
CONNECTIONS, IN_FLIGHT = 4, 32  # of each connection
FILL_RATE_MIN = 8000  # messages a second that the slowest machine stores: when the first of a filling are due
AHEAD_MS = 2 * 3_600_000  # of those that only wait, and spread over as much
PROBE_AHEAD_MS = (1000, 4000)
SETTLE_S = 3.0
DELIVERED_MAX_S = 120.0
RESTART_MAX_S = 300.0
PULLED = 32


@dataclass(frozen=True)
class Measurement:
    """One row. `bar` is the most that `value` may be; None for what is only reported."""

    name: str
    value: float
    unit: str
    bar: float | None = None

    @property
    def is_missed(self) -> bool:
        return self.bar is not None and self.value > self.bar

    def row(self) -> list[str]:
        mark = " !" if self.is_missed else ""
        bar = "" if self.bar is None else f"≤{self.bar:,g}{mark}"
        return [self.name, f"{self.value:,.3f}".rstrip("0").rstrip(".") + f" {self.unit}", bar]


class Requests:
    """Sends of timer messages, round the queues of the topic."""

    def __init__(self) -> None:
        self._templates = [self._template(queue) for queue in range(QUEUES)]
        self._number = 0

    def _template(self, queue: int) -> tuple[bytes, ...]:
        number, due = NUMBER.decode(), DUE.decode()
        properties = f"UNIQ_KEY\x01AC11000100002A9F4B2A{number}00\x02WAIT\x01true\x02TIMER_DELIVER_MS\x01{due}"
        values = "timers", TOPIC, "TBW102", QUEUES, queue, 0, now_ms(), 0, properties, 0, "false", 0, "false"
        whole = frame(SEND, dict(zip("abcdefghijklm", values, strict=True)), BODY)
        before, rest = whole.split(NUMBER, 1)
        return before, *rest.split(DUE, 1)

    def next(self, due_ms: int) -> bytes:
        before, between, after = self._templates[self._number % QUEUES]
        self._number += 1
        return b"%s%010d%s%013d%s" % (before, self._number, between, due_ms, after)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def fill(address: str, dues: Iterator[int], requests: Requests) -> None:
    """Send a message for each time, as fast as the broker answers."""
    ended: list[asyncio.Future[None]] = []
    for peer in await connect(address, CONNECTIONS):
        ended.append(asyncio.get_running_loop().create_future())
        _Filler(peer, dues, requests, ended[-1]).go()
    await asyncio.gather(*ended)


class _Filler:
    def __init__(self, peer: Peer, dues: Iterator[int], requests: Requests, ended: asyncio.Future[None]) -> None:
        self._peer, self._dues, self._requests, self._ended = peer, dues, requests, ended
        self._open = 0
        peer.heard = self._heard

    def go(self) -> None:
        for _ in range(IN_FLIGHT):
            self._ask()

    def _ask(self) -> None:
        due_ms = next(self._dues, None)
        if due_ms is not None:
            self._open += 1
            self._peer.ask(self._requests.next(due_ms))
        elif not self._open and not self._ended.done():
            self._ended.set_result(None)

    def _heard(self, answer: bytes) -> None:
        self._open -= 1
        if not sent(read := Answer(answer)):
            self._ended.set_exception(RuntimeError(f"a send was refused: {read.remark}"))
            return
        self._ask()


async def delivery(address: str, pid: int, count: int, seconds: float) -> list[Measurement]:
    first_ms = now_ms() + 5000 + count * 1000 // FILL_RATE_MIN
    dues = list(range(count))
    random.Random(7).shuffle(dues)
    began, spent = time.perf_counter(), worked_s(pid)
    await fill(address, (first_ms + int(number * seconds * 1000 / count) for number in dues), Requests())
    filled_s, stored_s = time.perf_counter() - began, worked_s(pid) - spent
    if now_ms() > first_ms - 500:
        raise RuntimeError(f"the broker stored {count / filled_s:,.0f} messages a second; {FILL_RATE_MIN} are needed")
    await asyncio.sleep((first_ms - now_ms()) / 1000)
    spent = worked_s(pid)
    await asyncio.sleep(seconds)
    delivered_s = worked_s(pid) - spent
    late_s = await _until(lambda: _delivered(address, count), DELIVERED_MAX_S)
    rate = count / seconds
    return [
        Measurement(f"storing {count:,} timer messages, CPU each", stored_s * 1e6 / count, "µs"),
        Measurement(f"delivering {rate:,.0f} a second, CPU", delivered_s / seconds, "core", 0.30 * rate / 10_000),
        Measurement("the same, CPU each", delivered_s * 1e6 / count, "µs"),
        Measurement("until all were delivered, after the last was due", late_s, "s", 1.0),
    ]


async def _delivered(address: str, count: int) -> bool:
    remoting = Remoting()
    try:
        queues = [MessageQueue(TOPIC, "", queue) for queue in range(QUEUES)]
        return sum([await max_offset(remoting, address, queue) for queue in queues]) >= count
    finally:
        await remoting.close()


async def _until(condition: Callable[[], Awaitable[bool]], seconds: float) -> float:
    """Wait for a condition; how long that took."""
    began = time.perf_counter()
    while not await condition():
        if time.perf_counter() - began > seconds:
            raise RuntimeError(f"waited {seconds:g} s in vain")
        await asyncio.sleep(0.05)
    return time.perf_counter() - began


async def waiting(address: str, pid: int, count: int) -> list[Measurement]:
    requests, dice = Requests(), random.Random(7)
    begin_ms = now_ms() + AHEAD_MS
    await fill(address, iter([begin_ms - 1] * QUEUES), requests)  # what every broker has that has seen timers
    await asyncio.sleep(SETTLE_S)
    before = memory_of(pid)["own"]
    began, spent = time.perf_counter(), worked_s(pid)
    await fill(address, (begin_ms + dice.randrange(AHEAD_MS) for _ in range(count)), requests)
    filled_s, stored_s = time.perf_counter() - began, worked_s(pid) - spent
    await asyncio.sleep(SETTLE_S)
    return [
        Measurement(f"{count:,} wait, own memory", memory_of(pid)["own"] - before, "MiB", 200 * count / 1e6),
        Measurement("storing them, a second", count / filled_s, "messages"),
        Measurement("storing them, CPU each", stored_s * 1e6 / count, "µs"),
    ]


async def precision(address: str, count: int, rate: int, seconds: float) -> list[Measurement]:
    requests, dice = Requests(), random.Random(8)
    (peer,) = await connect(address, 1)
    refused: list[str] = []

    def heard(answer: bytes) -> None:
        if not sent(read := Answer(answer)):
            refused.append(read.remark)

    peer.heard = heard
    begun = time.perf_counter()
    for number in range(int(rate * seconds)):
        if (pause := begun + number / rate - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        peer.ask(requests.next(now_ms() + dice.randrange(*PROBE_AHEAD_MS)))
    if refused:
        raise RuntimeError(f"{len(refused)} sends were refused, the first: {refused[0]}")
    await _until(lambda: _delivered(address, int(rate * seconds)), DELIVERED_MAX_S)
    late = sorted([one async for one in _lateness(address)])
    if late[0] < 0:
        raise RuntimeError(f"a message came {-late[0]} ms early")
    with_waiting = f"{rate} a second beside {count:,} that wait, late by"
    return [
        Measurement(f"{with_waiting}, median", late[len(late) // 2], "ms", 100),
        Measurement(f"{with_waiting}, p99.9", late[int(len(late) * 0.999)], "ms", 1000),
        Measurement(f"{with_waiting}, at most", late[-1], "ms"),
    ]


async def _lateness(address: str) -> AsyncIterator[int]:
    """Milliseconds from when each delivered message was due until it was stored."""
    remoting = Remoting()
    for queue in range(QUEUES):
        offset, end = 0, await max_offset(remoting, address, MessageQueue(TOPIC, "", queue))
        while offset < end:
            header = PullMessageHeader("timers", TOPIC, queue, offset, PULLED, PULL_SUBSCRIPTION, 0, 0, 0, "*", "TAG")
            reply = await pull(remoting, address, header, timeout_ms=10_000)
            for message in decode_messages(reply.body, ""):
                yield message.store_timestamp - int(message.properties[TIMER_DELIVER_MS])
            offset = reply.next_begin_offset
    await remoting.close()


async def known(address: str, count: int, began: float) -> Measurement:
    async def are_known() -> bool:
        remoting = Remoting()
        try:
            found = await pending_timers(remoting, address, limit=1)
        except OrbitMQError:
            return False
        finally:
            await remoting.close()
        return found.is_complete and found.waiting >= count

    await _until(are_known, RESTART_MAX_S)
    return Measurement(f"restart until all {count:,} are known", time.perf_counter() - began, "s")


def measure(directory: Path, arguments: argparse.Namespace) -> Iterator[Measurement]:
    options = {"timerMaxDelaySec": AHEAD_MS // 1000 * 3, "diskMaxUsedSpaceRatio": 95}
    for name in ("delivery", "waiting"):
        (directory / name).mkdir()
    with launched(directory / "delivery", options) as (pid, port):
        yield from uvloop.run(delivery(f"127.0.0.1:{port}", pid, arguments.due, arguments.seconds))
    with launched(directory / "waiting", options) as (pid, port):
        address = f"127.0.0.1:{port}"
        yield from uvloop.run(waiting(address, pid, arguments.pending))
        yield from uvloop.run(precision(address, arguments.pending, arguments.rate, arguments.seconds))
    began = time.perf_counter()
    with launched(directory / "waiting", options) as (pid, port):
        yield uvloop.run(known(f"127.0.0.1:{port}", arguments.pending, began))
        yield Measurement("the restarted broker, own memory", memory_of(pid)["own"], "MiB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--due", type=int, default=300_000, help="messages that fall due (300,000)")
    parser.add_argument("--seconds", type=float, default=30, help="in so many seconds; as long goes the stream (30)")
    parser.add_argument("--pending", type=int, default=1_000_000, help="messages that wait (1,000,000)")
    parser.add_argument("--rate", type=int, default=300, help="of the stream, messages a second (300)")
    parser.add_argument("--out", type=Path, default=DOCS, help="where the results are written (docs/performance)")
    arguments = parser.parse_args()
    load, measurements = os.getloadavg()[0], list[Measurement]()
    lines = [bars(["timer messages", "measured", "bar"]), bars(["---", "---:", "---:"])]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(prefix="timers-", dir=os.environ.get("TMPDIR")) as directory:
        for measurement in measure(Path(directory), arguments):
            measurements.append(measurement)
            lines.append(bars(measurement.row()))
            print(lines[-1], flush=True)
    machine = f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}"
    heading = (
        f"Run of {time.strftime('%Y-%m-%d', time.gmtime())}, {machine}, load {load:.1f} before; `!` misses its bar."
    )
    report = {"heading": heading, "load": load, "measurements": [asdict(one) for one in measurements]}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "timers.txt").write_text("\n".join([heading, "", *lines, ""]), encoding="utf-8")
    (arguments.out / "timers.json").write_text(json.dumps(report, ensure_ascii=False) + "\n", encoding="utf-8")
    print(heading)
    return 1 if any(one.is_missed for one in measurements) else 0


if __name__ == "__main__":
    sys.exit(main())
