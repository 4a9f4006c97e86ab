"""What sends wait for while ten consumers read a backlog that has left memory.

A broker gets a backlog, its pages are dropped from memory, and a client sends at a steady rate: alone, while ten
consumers read the backlog cold, and while they read it again out of memory. A send's time counts from when it was due.
The consumers run on the same two cores, with the least priority: it is the broker that is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from bench.growth_load import Answer, Follower, Meter, Peer, Place, Senders, connect, cpu_seconds, pull_frame
from bench.loop_turns import launched
from orbitmq.wire.codes import ResponseCode

TOPIC, QUEUES = "growth-00000", 8
READERS = 10
PULLED = 32  # messages of a pull
MESSAGE_BYTES = 1280  # in the log
FILE_BYTES = 1 << 30
LOADED_FILES = 6
WARM_UP_S = 3.0
SILENT_S = 30.0
WAYS = ("alone", "cold", "warm")


class Reader(Follower):
    """One group that reads every queue from its beginning, a pull a queue at a time, and again at the end."""

    def go(self) -> None:
        for number in range(len(self._places)):
            self._offsets[number] = 0
            self._ask(number)

    def _ask(self, number: int) -> None:
        offset = self._offsets[number]
        self._peer.ask(pull_frame(self._group, self._places[number], offset, PULLED, 0, number))

    def _heard(self, frame_: bytes) -> None:
        answer = Answer(frame_)
        number, before = answer.number, self._offsets[answer.number]
        if answer.code == ResponseCode.SUCCESS:
            self._offsets[number] = answer.field("nextBeginOffset")
            self._meter.delivered += self._offsets[number] - before
        elif answer.code == ResponseCode.PULL_NOT_FOUND:  # the end
            self._offsets[number] = 0
        else:
            raise RuntimeError(f"a pull was refused: {answer.remark}")
        self._ask(number)


async def read(address: str, seconds: float) -> dict[str, Any]:
    places: list[Place] = [(TOPIC, queue) for queue in range(QUEUES)]
    meter = Meter()
    for number in range(READERS):
        (peer,) = await connect(address, 1)
        Reader(peer, f"cold-readers-{number}", places, meter).go()
    await asyncio.sleep(seconds)
    return {"delivered": meter.delivered / seconds}


async def send(address: str, rate: int, seconds: float) -> Meter:
    """One connection for each of many sends in flight: they wait for the broker, not for one another."""
    peers = await connect(address, 50)
    senders, meter = Senders([("sent-00000", queue) for queue in range(QUEUES)]), Meter(is_open=True)
    free = list(peers)
    begun = time.perf_counter()

    def go(peer: Peer, due: float) -> None:
        def heard(_: bytes) -> None:
            meter.done(1, time.perf_counter() - due)
            free.append(peer)

        peer.heard = heard
        peer.ask(senders.next())

    number = 0
    while (due := begun + number / rate) < begun + seconds:
        if (pause := due - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        if time.perf_counter() > begun + seconds + SILENT_S:
            raise RuntimeError(f"the broker has not responded to {len(peers)} sends for {SILENT_S:g} s")
        if free:
            go(free.pop(), due)
            number += 1
        else:
            await asyncio.sleep(0)
    await asyncio.sleep(0.5)
    return meter


@contextmanager
def broker(directory: Path) -> Iterator[tuple[int, str]]:
    """A running one: process and address."""
    options = {"mappedFileSizeCommitLog": FILE_BYTES, "diskMaxUsedSpaceRatio": 95}
    with launched(directory, options) as (pid, port):
        yield pid, f"127.0.0.1:{port}"


def drop(store: Path) -> None:
    """Have the kernel forget what it holds of these files."""
    for path in store.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def load(store: Path) -> None:
    """Bring the oldest files into memory, more than is read."""
    for path in sorted((store / "commitlog").iterdir())[:LOADED_FILES]:
        with path.open("rb") as file:
            while file.read(1 << 20):
                pass


def fill(address: str, pid: int, gigabytes: float) -> None:
    depth = int(gigabytes * 1e9 / MESSAGE_BYTES / QUEUES)
    command = [
        sys.executable, "-m", "bench.growth_load", "fill", "--address", address, "--pids", str(pid), "--queues",
        str(QUEUES), "--depth", str(depth),
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def measure(directory: Path, arguments: argparse.Namespace) -> None:
    # A broker that starts maps the files anew: what it had mapped could not be dropped.
    with broker(directory) as (pid, address):
        fill(address, pid, arguments.gigabytes)
    print(f"{'':8} {'p50 ms':>8} {'p99 ms':>8} {'p99.9 ms':>8} {'worst ms':>8} {'sent/s':>8} {'read/s':>9} {'CPU':>6}")
    alone = 0.0
    for way in WAYS:
        (load if way == "warm" else drop)(directory / "store")
        with broker(directory) as (pid, address):
            if way == "cold":
                drop(directory / "store")
            reading = None
            if way != "alone":
                command = [
                    sys.executable,
                    "-m",
                    "bench.cold",
                    "--read",
                    address,
                    "--seconds",
                    str(arguments.seconds + WARM_UP_S),
                ]
                reading = subprocess.Popen(["nice", "-n", "19", *command], stdout=subprocess.PIPE, text=True)
            uvloop.run(send(address, arguments.rate, WARM_UP_S))
            cpu = cpu_seconds([pid])
            meter = uvloop.run(send(address, arguments.rate, arguments.seconds))
            cpu = (cpu_seconds([pid]) - cpu) / arguments.seconds
            read_rate = json.loads(reading.communicate()[0])["delivered"] if reading is not None else 0.0
        times = sorted(meter.times)
        p50, p99, p999 = (times[int(len(times) * share)] * 1e3 for share in (0.5, 0.99, 0.999))
        alone = alone or p99
        rate = len(times) / arguments.seconds
        worst, ratio = times[-1] * 1e3, p99 / alone
        row = f"{way:8} {p50:8.2f} {p99:8.2f} {p999:8.2f} {worst:8.2f} {rate:8,.0f} {read_rate:9,.0f} {cpu:6.2f}"
        print(f"{row}  p99 {ratio:.2f} of that alone", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--rate", type=int, default=1000, help="messages a second that are sent")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--read", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        print(json.dumps(uvloop.run(read(arguments.read, arguments.seconds))))
        return 0
    with tempfile.TemporaryDirectory(prefix="cold-", dir=os.environ.get("TMPDIR")) as directory:
        measure(Path(directory), arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
