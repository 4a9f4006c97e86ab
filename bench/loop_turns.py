"""How long the event loop of a large broker keeps requests waiting.

A broker with `archiveGuard` on gets 10,000 topics and 8,000 queues, then sends at a steady rate, and a new topic every
ten seconds. Prints the broker's own histogram over that time, and the scheduler's statistics of the loop's thread: a
delay in which it computed little was spent waiting for a CPU or for a disk.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from orbitmq.errors import OrbitMQError
from orbitmq.message.config import TopicConfig
from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call
from orbitmq.operations.sends import send
from orbitmq.operations.topics import create_topic
from orbitmq.wire.headers import SendMessageV2Header
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.support.process import wait_until

BUCKET = re.compile(r'orbitmq_event_loop_delay_seconds_bucket\{[^}]*clock="(\w+)"[^}]*le="([^"]+)"[^}]*\} (\S+)')
LISTED = 500  # topics of one request
CHANGE_SECONDS = 10.0
BODY = b"x" * 200
START_S = 120.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def launched(directory: Path, options: Mapping[str, object]) -> Iterator[tuple[int, int]]:
    """A broker that serves, with these options besides: process and port."""
    port = free_port()
    known = {
        "brokerName": directory.name, "listenPort": port, "fastListenPort": free_port(), "brokerIP1": "127.0.0.1",
        "storePathRootDir": directory / "store",
    }  # fmt: skip
    path = directory / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in {**known, **options}.items()))
    with (directory / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", "orbitmq", "broker", "-c", str(path)], stderr=log)
        try:
            wait_until(lambda: serves(port), START_S, f"the broker of {path} to serve")
            yield process.pid, port
        finally:
            process.terminate()
            process.wait(120)
            print("\n".join(line for line in (directory / "log").read_text().splitlines() if "loop_stalled" in line))


def serves(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def broker(directory: Path) -> Iterator[tuple[int, int, int]]:
    """A running one: process, port, and port of its figures."""
    figures = free_port()
    options = {
        "archiveGuard": "true", "metricsExporterType": "PROM", "metricsPromExporterPort": figures,
        "mappedFileSizeCommitLog": 256 << 20,
    }  # fmt: skip
    with launched(directory, options) as (pid, port):
        yield pid, port, figures


def header(topic: str, queue_id: int) -> SendMessageV2Header:
    return SendMessageV2Header("bench", topic, "TBW102", 8, queue_id, 0, time.time_ns() // 1_000_000, 0, "WAIT\1true\2")


async def fill(remoting: Remoting, address: str, topics: int, queues: int) -> list[tuple[str, int]]:
    """Topics, and queues that have a message."""
    names = [f"Topic{number:05d}" for number in range(topics)]
    for start in range(0, topics, LISTED):
        listed = {"topicConfigList": [TopicConfig(name, 8, 8) for name in names[start : start + LISTED]]}
        await call(remoting, address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, encode(listed), timeout_ms=60_000)
    places = [(names[number // 8], number % 8) for number in range(queues)]
    for start in range(0, queues, 50):
        some = places[start : start + 50]
        await asyncio.gather(*(send(remoting, address, header(*place), BODY, timeout_ms=30_000) for place in some))
    return places


async def steady(remoting: Remoting, address: str, places: list[tuple[str, int]], rate: int, seconds: float) -> int:
    """Sends at an even pace, and now and then another topic; how many were answered."""
    loop, sent, begun = asyncio.get_running_loop(), 0, asyncio.get_running_loop().time()
    next_change = begun + CHANGE_SECONDS
    waiting: set[asyncio.Task[object]] = set()
    for number in count():
        due = begun + number / rate
        if due > begun + seconds:
            break
        if (pause := due - loop.time()) > 0:
            await asyncio.sleep(pause)
        task: asyncio.Task[object] = asyncio.create_task(
            send(remoting, address, header(*places[number * 7919 % len(places)]), BODY, timeout_ms=10_000)
        )
        waiting.add(task)
        done = {one for one in waiting if one.done()}
        sent += sum(one.exception() is None for one in done)
        waiting -= done
        if loop.time() >= next_change:
            next_change += CHANGE_SECONDS
            await create_topic(remoting, address, TopicConfig(f"Changed{number}"))
    await asyncio.gather(*waiting, return_exceptions=True)
    return sent + sum(not isinstance(one.exception(), OrbitMQError) for one in waiting)


def histogram(port: int) -> dict[str, dict[str, float]]:
    """Clock -> upper bound -> how many delays were not above it, since the broker started."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        text = page.read().decode()
    found: dict[str, dict[str, float]] = {}
    for clock, bound, number in BUCKET.findall(text):
        found.setdefault(clock, {})[bound] = float(number)
    return found


def scheduled(pid: int) -> dict[str, float]:
    """Of the loop's thread: seconds on a processor and in its queue, and how often it was taken off."""
    place = Path(f"/proc/{pid}/task/{pid}")
    on, waited, _ = (place / "schedstat").read_text().split()
    taken = re.search(r"^nonvoluntary_ctxt_switches:\s+(\d+)", (place / "status").read_text(), re.MULTILINE)
    return {"worked_s": int(on) / 1e9, "queued_s": int(waited) / 1e9, "taken_off": float(taken[1]) if taken else 0.0}


async def measure(directory: Path, arguments: argparse.Namespace) -> None:
    with broker(directory) as (pid, port, figures):
        address, remoting = f"127.0.0.1:{port}", Remoting()
        for _ in range(600):
            if await asyncio.to_thread(socket.socket().connect_ex, ("127.0.0.1", port)) == 0:
                break
            await asyncio.sleep(0.1)
        places = await fill(remoting, address, arguments.topics, arguments.queues)
        print(f"{arguments.topics} topics, {len(places)} queues, load {os.getloadavg()[0]:.1f}", flush=True)
        await asyncio.sleep(5)
        before, then = histogram(figures), scheduled(pid)
        sent = await steady(remoting, address, places, arguments.rate, arguments.seconds)
        after, now = histogram(figures), scheduled(pid)
        print(f"{sent} messages in {arguments.seconds:.0f} s, load {os.getloadavg()[0]:.1f}")
        print("the loop's thread:", {name: round(now[name] - then[name], 3) for name in now})
        for clock, bounds in after.items():
            found = {bound: number - before[clock][bound] for bound, number in bounds.items()}
            whole = found["+Inf"]
            above = {bound: int(whole - number) for bound, number in found.items() if bound != "+Inf"}
            print(f"{clock:5} of {int(whole)} measurements longer than", above)
        await remoting.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--queues", type=int, default=8000)
    parser.add_argument("--rate", type=int, default=500, help="messages a second")
    parser.add_argument("--seconds", type=float, default=300.0)
    with tempfile.TemporaryDirectory(prefix="loop-turns-") as directory:
        asyncio.run(measure(Path(directory), parser.parse_args()))


if __name__ == "__main__":
    main()
