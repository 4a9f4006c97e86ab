"""Producers that send at a steady pace, each in a process of its own, one row a send: of orbitmq, Java and Go.

A row says when the send began (milliseconds since the epoch), how many microseconds it took, which brokers were tried,
and the `broker` that has the message or the `error`. As a program this is orbitmq's side; orbitmq.load.Steady of the
Java module and tests/go_client are the others and take the same arguments but some. Knows nothing of brokers.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
import uvloop

from orbitmq.client import Message, Producer, SendStatus
from orbitmq.client.core.hooks import SendContext
from orbitmq.client.settings import ProducerSettings
from orbitmq.errors import OrbitMQError
from tests.support.java_rocketmq import ROCKETMQ_4, ROCKETMQ_5, SMALL_JVM, java_command
from tests.support.process import ChildProcess, ProcessFailed

_ROOT = Path(__file__).parents[2]
BODY = bytes(1024)


class Sent(msgspec.Struct, frozen=True):
    """One send and what came of it."""

    index: int
    begin: int
    micros: int
    tried: list[str]
    broker: str | None
    error: str | None

    @property
    def end(self) -> float:
        """Milliseconds since the epoch."""
        return self.begin + self.micros / 1000


@dataclass(frozen=True)
class Kind:
    """A client, with or without latency fault tolerance."""

    client: str
    fault: bool
    attempt_ms: int = -1
    """Of orbitmq's, the time of an attempt that another one may follow; without, the first may take all there is."""

    def __str__(self) -> str:
        attempt = f", {self.attempt_ms} ms an attempt" if self.attempt_ms > 0 else ""
        return f"{self.client}, fault tolerance {'on' if self.fault else 'off'}{attempt}"

    @property
    def arguments(self) -> dict[str, object]:
        """Of its program."""
        attempt = {"attempt_ms": self.attempt_ms} if self.client == OURS else {}
        return {"fault": str(self.fault).lower(), **attempt}


OURS, JAVAS, JAVAS_5, GOS = "orbitmq", "Java 4.9.7", "Java 5.3.3", "Go 2.1"
VERSIONS = {JAVAS: ROCKETMQ_4, JAVAS_5: ROCKETMQ_5}
KINDS = tuple(Kind(client, fault) for client in (OURS, JAVAS) for fault in (True, False))


class SteadySender:
    """One of them at work; `sent` are its sends so far, `run` is the beginning of the keys of its messages."""

    def __init__(self, kind: Kind, namesrv: str, topic: str, run: str, **more: object) -> None:
        self.kind, self.run = kind, run
        self._sent: list[Sent] = []
        self._read_to = 0
        self._home = Path(tempfile.mkdtemp(prefix="steady-"))
        arguments = {"namesrv": namesrv, "topic": topic, "run": run, **kind.arguments, **more}
        words = [word for name, value in arguments.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        if kind.client == OURS:
            program = [sys.executable, "-m", "tests.support.steady"]
        elif kind.client == GOS:
            program = [str(_go_program())]
        else:
            main = "orbitmq.load.Steady"
            program = java_command(VERSIONS[kind.client], main, self._home, jvm=SMALL_JVM, process="steady")
        self.process = ChildProcess(
            [*program, *words],
            output=self._home / "rows.jsonl",
            cwd=_ROOT if kind.client == OURS else self._home,
            environment={"NAMESRV_ADDR": ""},
        )

    def wait_until_started(self) -> None:
        self.process.wait_for(lambda: '"started"' in self.process.output(), 60, "its first word")

    def sent(self) -> list[Sent]:
        """In the order they ended."""
        with self.process.output_path.open("rb") as file:
            file.seek(self._read_to)
            whole, _, _unfinished = file.read().rpartition(b"\n")
        lines = whole.splitlines()
        if lines:
            self._sent += [
                msgspec.json.decode(line, type=Sent) for line in lines[self._read_to == 0 :]
            ]  # the first word
            self._read_to += len(whole) + 1
        return self._sent

    def end(self) -> list[Sent]:
        """Kill it; what it has told of."""
        if self.process.exit_code is None:
            self.process.kill()
        return self.sent()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.stop(grace_s=1)
        shutil.rmtree(self._home, ignore_errors=True)


def _go_program() -> Path:
    """Go builds it anew only when that is needed."""
    module = _ROOT / "tests" / "go_client"
    program = module / "target" / "steady"
    build = ["go", "build", "-o", str(program), "."]
    done = subprocess.run(build, cwd=module, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProcessFailed(f"{' '.join(build)} failed in {module}: {done.stderr[-2000:]}")
    return program


# --------------------------------------------------------------------------------------------------------- the program


_tried: ContextVar[list[str]] = ContextVar("tried")
"""The brokers that the send under way in this task was tried at."""


class _Tried:
    def before(self, context: SendContext) -> None:
        _tried.get().append(context.queue.broker_name)

    def after(self, context: SendContext) -> None:
        """Nothing; what came of it the sender learns."""


async def _main(arguments: argparse.Namespace) -> None:
    settings: ProducerSettings = {
        "send_timeout_ms": arguments.timeout_ms,
        "latency_fault": arguments.fault == "true",
        "max_timeout_per_attempt_ms": arguments.attempt_ms,
        "poll_namesrv_interval_ms": arguments.poll_ms,
    }
    if arguments.isolation:
        settings["not_available_duration"] = arguments.isolation
    async with Producer(arguments.run, arguments.namesrv, **settings) as producer, asyncio.TaskGroup() as group:
        producer.add_send_hook(_Tried())
        await producer.fetch_publish_queues(arguments.topic)
        _print({"event": "started"})
        numbers = itertools.count()
        for _ in range(arguments.senders):
            group.create_task(_send(producer, arguments, numbers))


async def _send(producer: Producer, arguments: argparse.Namespace, numbers: Iterator[int]) -> None:
    for index in numbers:
        tried: list[str] = []
        _tried.set(tried)
        message = Message(arguments.topic, BODY, keys=f"{arguments.run}-{index}")
        begin_ms, begin = time.time_ns() // 1_000_000, time.perf_counter_ns()
        broker = error = None
        try:
            found = await producer.send(message)
            if found.status is SendStatus.SEND_OK:
                broker = found.queue.broker_name
            else:
                error = found.status.name
        except OrbitMQError as failure:
            error = f"{type(failure).__name__}: {failure}"
        micros = (time.perf_counter_ns() - begin) // 1000
        _print(Sent(index, begin_ms, micros, tried, broker, error))
        await asyncio.sleep(arguments.pause_ms / 1000)


def _print(row: object) -> None:
    os.write(sys.stdout.fileno(), msgspec.json.encode(row) + b"\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--run", required=True, help="the producer group, and how keys of messages begin")
    parser.add_argument("--fault", default="false", help="latency fault tolerance: true or false")
    parser.add_argument("--timeout-ms", type=int, default=3000, help="for a send with its retries")
    parser.add_argument("--attempt-ms", type=int, default=-1, help="for an attempt that another one may follow")
    parser.add_argument("--isolation", help="how long a broker is left out, instead of the usual seven durations")
    parser.add_argument("--poll-ms", type=int, default=30_000, help="between two questions for routes")
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--pause-ms", type=int, default=20, help="of each sender between two sends")
    return parser.parse_args()


if __name__ == "__main__":
    uvloop.run(_main(_arguments()))
