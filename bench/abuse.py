"""Latency of a well-behaved client's sends without and with each kind of abuse by others.

Runs one `orbitmq up` with default limits, one sender of 1 KiB messages at a steady rate, and the abuser, each in its
own process. For each abuse the sender is measured for some seconds without it, then with it, so that a ratio compares
measurements close in time. Prints a Markdown table (`make bench-abuse`). Takes three minutes and needs an otherwise
idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from orbitmq.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.net.remoting import Remoting
from orbitmq.runtime.limits import raise_open_files
from orbitmq.wire.command import Command, request
from orbitmq.wire.frame import FRAME_SIZE_MAX, encode_frame
from orbitmq.wire.headers import PullMessageHeader
from orbitmq.wire.requests import RequestCode
from tests.support.abusers import Attacker, anonymous_bytes, attackers, send_request
from tests.support.orbit_process import OrbitUp

MIB = 1 << 20
PACE_S = 0.004  # between two sends of the good client
SETTLE_S = 1.0  # from the beginning of an abuse to the first send that counts
BODY = bytes(1024)
HEADINGS = ("abuse", "p50 ms", "p99 ms", "p50 with it", "p99 with it", "p50 ratio", "p99 ratio", "memory grown MiB")

Abuse = Callable[[int, Event], None]
ABUSES: dict[str, Abuse] = {}


def abuse(name: str) -> Callable[[Abuse], Abuse]:
    """Enter an abuse into the table. It gets the port, and goes on until the event is set."""

    def enter(work: Abuse) -> Abuse:
        ABUSES[name] = work
        return work

    return enter


@abuse("nothing at all")
def _nothing(_port: int, stopped: Event) -> None:
    stopped.wait()


@abuse("2,000 idle connections")
def _idle(port: int, stopped: Event) -> None:
    with attackers(port, 2000):
        stopped.wait()


@abuse("connections opened and dropped without pause")
def _knocking(port: int, stopped: Event) -> None:
    while not stopped.is_set():
        Attacker(port).close()


@abuse("200 requests sent a byte at a time")
def _trickling(port: int, stopped: Event) -> None:
    frame = encode_frame(send_request("Abused"))
    with attackers(port, 200) as peers:
        for number in range(len(frame) - 1):
            for one in peers:
                one.push_what_fits(frame[number : number + 1])
            if stopped.wait(0.01):
                return
        stopped.wait()


@abuse("frames of 16 MiB, answers unread")
def _large(port: int, stopped: Event) -> None:
    frame = encode_frame(send_request("Abused", bytes(FRAME_SIZE_MAX - 4096)))
    _repeat(port, stopped, frame)


@abuse("pulls of 1 MiB, 30 connections, nothing read")
def _unread(port: int, stopped: Event) -> None:
    with attackers(port, 1) as (one,):
        one.ask(send_request("Heavy", bytes(MIB)))
    pulls = encode_frame(_pull("Heavy", 0, PULL_SUBSCRIPTION)) * 40
    with attackers(port, 30, receive_buffer=4096) as peers:
        while not stopped.wait(0.05):
            for one in peers:
                one.push_what_fits(pulls)


@abuse("25,000 held pulls, and more of them")
def _held(port: int, stopped: Event) -> None:
    with attackers(port, 1) as (one,):
        one.ask(send_request("Awaited"))
    pulls = b"".join(encode_frame(_pull("Awaited", 1, PULL_SUBSCRIPTION | PULL_SUSPEND)) for _ in range(1000))
    with attackers(port, 1) as (one,):
        for _ in range(25):
            one.push(pulls)
        while not stopped.wait(0.05):
            one.push_what_fits(pulls)
            with contextlib.suppress(TimeoutError, BlockingIOError):
                one.socket.settimeout(0.001)
                one.socket.recv(MIB)


@abuse("heartbeats with 100,000 subscriptions")
def _subscriptions(port: int, stopped: Event) -> None:
    topics = b",".join(b'{"topic":"T%d","subString":"*"}' % number for number in range(100_000))
    body = b'{"clientID":"abuser","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[%b]}]}' % topics
    _repeat(port, stopped, encode_frame(request(RequestCode.HEART_BEAT, body=body)))


@abuse("bodies that are no standard JSON, as long as allowed")
def _odd(port: int, stopped: Event) -> None:
    body = b"{clientID:'abuser',x:[" + b"0," * 8000 + b"]}"
    _repeat(port, stopped, encode_frame(request(RequestCode.HEART_BEAT, body=body)))


@abuse("a new topic with each send")
def _topics(port: int, stopped: Event) -> None:
    with attackers(port, 1) as (one,):
        number = 0
        while not stopped.is_set():
            one.ask(send_request(f"Invented{number}"))
            number += 1


@abuse("what is no request")
def _junk(port: int, stopped: Event) -> None:
    while not stopped.is_set():
        with attackers(port, 1) as (one,):
            one.push(b"GET / HTTP/1.1\r\n\r\n")
            one.is_cut_off()


def _pull(topic: str, offset: int, flags: int) -> Command:
    header = PullMessageHeader("readers", topic, 0, offset, 32, flags, 0, 3_600_000, 0, "*", "TAG")
    return request(RequestCode.PULL_MESSAGE, header)


def _repeat(port: int, stopped: Event, frame: bytes) -> None:
    """The same request over and over; whoever is cut off comes again."""
    while not stopped.is_set():
        with attackers(port, 1) as (one,):
            one.socket.settimeout(1.0)
            with contextlib.suppress(TimeoutError):
                while not stopped.is_set() and one.push(frame):
                    pass


# ------------------------------------------------------------------------------------------------------------ measuring


def measured(address: str, seconds: float) -> list[float]:
    """Milliseconds of each send of a process that does nothing else."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_sender, (address, seconds))


def _sender(address: str, seconds: float) -> list[float]:
    return asyncio.run(_send(address, seconds))


async def _send(address: str, seconds: float) -> list[float]:
    remoting, taken = Remoting(), []
    try:
        for _ in range(50):
            await remoting.call(address, send_request("Good", BODY), 30_000)
        until = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < until:
            answer = await remoting.call(address, send_request("Good", BODY), 30_000)
            assert answer.code == 0, answer
            taken.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(PACE_S)
    finally:
        await remoting.close()
    return taken


@contextmanager
def abused(name: str, port: int) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    stopped = context.Event()
    process = context.Process(target=_abuse, args=(name, port, stopped), daemon=True)
    process.start()
    time.sleep(SETTLE_S)
    try:
        yield
    finally:
        stopped.set()
        process.join(10)
        process.kill()


def _abuse(name: str, port: int, stopped: Event) -> None:
    raise_open_files()
    os.nice(19)  # it would be another machine: what it takes of these processors is not what the broker gives it
    with contextlib.suppress(ConnectionError):
        ABUSES[name](port, stopped)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each measurement takes")
    parser.add_argument("--only", default="", help="abuses whose name contains this")
    arguments = parser.parse_args()
    print("| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS))
    with OrbitUp() as up:
        assert up.process is not None, "it has been started"
        measured(up.address, 1.0)
        for name in ABUSES:
            if arguments.only not in name:
                continue
            without, memory = measured(up.address, arguments.seconds), anonymous_bytes(up.process)
            with abused(name, up.port):
                within = measured(up.address, arguments.seconds)
                grown = (anonymous_bytes(up.process) - memory) / MIB
            figures = [percentile(values, share) for values in (without, within) for share in (0.5, 0.99)]
            ratios = (figures[2] / figures[0], figures[3] / figures[1])
            print(
                f"| {name} | " + " | ".join(f"{one:.2f}" for one in (*figures, *ratios)) + f" | {grown:.0f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
