"""The clients of orbitmq, RocketMQ (Java) and PyPI do the same work, against RocketMQ's broker and orbitmq.

Each measurement is a separate process with one producer or consumer, and the results are that process's: what a
message costs the application. The client that speaks gRPC works at a broker of 5.3.3, the only one that understands it.
Two clients of Kafka do the same work at a broker of Kafka: another system, for orientation, and in no ratio.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate, repeat
from pathlib import Path
from typing import Any

from rich.table import Table

from bench import kafka, peers
from bench.proxy import JavaProxy
from bench.report import bars
from bench.systems import LOAD_JVM, OURS, RIVAL, Measurement, both
from bench.works import SETTINGS
from orbitmq.client import ClientError, Producer
from tests.support.java_rocketmq import ROCKETMQ_5, Driver, JavaNameServer
from tests.support.process import ProcessFailed, wait_until

ROOT = Path(__file__).parents[1]
LOADS = Path(__file__).parent / "loads"
READS = "client-reads"
QUEUES = 8
BACKLOG = 100_000  # messages that the fastest reads within two seconds
PROXY_BACKLOG = 4000
KAFKA_BACKLOG = 500_000  # one client reads ahead by 64 MiB, which should be a small part of what is measured
SECONDS, WARM_UP = 1.5, 0.5
JAVA_SECONDS, JAVA_WARM_UP = 2, 2  # whole ones, and its code must have been compiled
TIMEOUT_S = 60
FILL_TIMEOUT_S = 180  # filling Kafka takes ten seconds on an idle machine
SETTLE_S = 0.3
PROXY = "RocketMQ 5.3.3, proxy"
KAFKA = f"Kafka {kafka.VERSION}, another system"
PROXY_JVM = ("-server", "-Xmx2g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=1g")


@dataclass(frozen=True)
class Work:
    """What a client does; `arguments` are those of the load programs, `java` those of Java's."""

    title: str
    arguments: tuple[object, ...]
    java: tuple[object, ...] = ()


WORKS = {
    "client-sync": Work("send, one at a time", ("sync", "--senders", 1), ("sync", "--threads", 1)),
    "client-sync16": Work("send, 16 tasks or threads", ("sync", "--senders", 16), ("sync", "--threads", 16)),
    "client-async": Work("send_async, 256 in flight", ("async",), ("async", "--threads", 1, "--in-flight", 256)),
    "client-linger": Work("send_async, linger_ms=5, 4,096 in flight", ("linger", "--in-flight", 4096)),
    "client-oneway": Work("send_oneway", ("oneway",), ("oneway", "--threads", 1)),
    "client-batch": Work("send_batch, 32 a batch", ("batch",), ("batch", "--threads", 1, "--batch", 32)),
    "client-push": Work("push consumer", ("push",), ("push",)),
    "client-poll": Work("lite pull, 32 a pull", ("poll",), ("poll",)),
}
_READING = ("client-push", "client-poll")
_ALL_CAN = tuple(name for name, work in WORKS.items() if work.java)
_NO_ONEWAY_NO_BATCH = ("client-sync", "client-sync16", "client-async", *_READING)


@dataclass(frozen=True)
class Place:
    """Where clients work: the address they are given, the name server if there is one, what can be read there, and, for
    rows that report it, the CPU seconds that the broker has used so far.
    """

    endpoint: str
    namesrv: str
    backlog: int = BACKLOG
    broker_cpu: Callable[[], float] | None = None

    def create(self, *topics: str) -> None:
        async def ask() -> bool:
            async with Producer("observers", self.namesrv) as asking:
                for topic in topics:
                    try:
                        await asking.create_topic(topic, queues=QUEUES)
                    except ClientError:  # 5.3.3 says that it has started before it is registered
                        return False
            return True

        wait_until(lambda: asyncio.run(ask()), TIMEOUT_S, f"{self.namesrv} to know a broker")

    def fill(self) -> None:
        self.create(READS, *WORKS)
        _java(self, ("fill", "--threads", 4, "--count", self.backlog), READS)

    def stored(self, topic: str) -> int:
        """Messages in all its queues."""

        async def ask() -> int:
            async with Producer("observers", self.namesrv) as asking:
                return sum([await asking.max_offset(queue) for queue in await asking.fetch_publish_queues(topic)])

        return asyncio.run(ask())

    def settled(self, topic: str) -> int:
        """The same once nothing more comes."""
        seen, now = -1, self.stored(topic)
        while seen != now:
            time.sleep(SETTLE_S)
            seen, now = now, self.stored(topic)
        return now


Measure = Callable[[Place, str, str], Measurement]  # place, work, topic


def _java(place: Place, arguments: Sequence[object], topic: str) -> Measurement:
    target = ("--namesrv", place.namesrv, "--topic", topic, "--seconds", JAVA_SECONDS, "--warm-up", JAVA_WARM_UP)
    with Driver(*arguments, *target, main="orbitmq.load.Load", jvm=LOAD_JVM) as driver:
        return driver.finish(timeout_s=TIMEOUT_S)[-1]


def _measure_java(place: Place, work: str, topic: str) -> Measurement:
    count = ("--count", place.backlog) if work in _READING else ()
    return _java(place, (*WORKS[work].java, *count), topic)


def _python(program: str, python: Path = Path(sys.executable)) -> Measure:
    def measure(place: Place, work: str, topic: str) -> Measurement:
        told = ("--namesrv", place.endpoint, "--topic", topic, "--seconds", SECONDS, "--warm-up", WARM_UP)
        command = [python, LOADS / f"{program}.py", *WORKS[work].arguments, *told, "--count", place.backlog]
        before = place.stored(topic) if work == "client-oneway" else 0
        spent = place.broker_cpu() if place.broker_cpu is not None else 0.0
        row = _row_of(command)
        if place.broker_cpu is not None and row["total"]:
            row["brokerMicros"] = (place.broker_cpu() - spent) * 1e6 / row["total"]
        if work == "client-oneway":  # nobody told the client what became of them
            row["errors"] += row["total"] - (place.settled(topic) - before)
        return row

    return measure


def _row_of(command: Sequence[object]) -> Measurement:
    try:
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
        row: Measurement = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, IndexError, ValueError) as error:
        tail = str(getattr(error, "stderr", None) or error)[-300:]
        raise ProcessFailed(f"{command[1]}: {tail}") from error
    return row


@dataclass(frozen=True)
class Client:
    name: str
    measure: Measure
    works: Sequence[str] = _ALL_CAN
    places: Sequence[str] = (RIVAL, OURS)


OUR_CLIENT = "orbitmq, asyncio"
CLIENTS = (
    Client(OUR_CLIENT, _python("ours"), tuple(WORKS)),
    Client("orbitmq, threads", _python("threads")),
    Client(peers.CPP.name, _python("over_cpp", peers.CPP.python)),
    Client(peers.GRPC.name, _python("over_grpc", peers.GRPC.python), _NO_ONEWAY_NO_BATCH, (PROXY,)),
    Client("Java client 4.9.7", _measure_java),
    Client(peers.AIOKAFKA.name, _python("over_aiokafka", peers.AIOKAFKA.python), _NO_ONEWAY_NO_BATCH, (KAFKA,)),
    Client(peers.CONFLUENT.name, _python("over_confluent", peers.CONFLUENT.python), _NO_ONEWAY_NO_BATCH, (KAFKA,)),
)

Results = dict[str, dict[str, dict[str, list[Measurement]]]]  # work -> client -> place -> rounds


def measure(names: Sequence[str], rounds: int, directory: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """The chosen rows, and what was found out about the packages."""
    problems: dict[str, str] = {}
    for peer in (peers.CPP, peers.GRPC, peers.AIOKAFKA, peers.CONFLUENT, *peers.OTHERS):
        say(f"installing {peer.name}")
        problem = peer.problem()
        say(f"{peer.name} ({peer.what}): {'runs' if problem is None else problem}")
        if problem is not None:
            problems[peer.name] = f"{peer.what}: {problem}"
    steps = list(_steps(names, [client for client in CLIENTS if client.name not in problems]))
    results: Results = {}
    failures: list[str] = []
    with ExitStack() as stack:
        wanted = {name: client for _, client, name in steps}
        found = _brokers(stack, directory, say)
        for name, opened in (PROXY, _proxy), (KAFKA, _kafka):
            if name in wanted:
                try:
                    found[name] = opened(stack, directory, wanted[name])
                except ProcessFailed as error:  # the rows of the others are worth having
                    failures.append(f"{name}: {error}")
        for work, client, name in steps:
            for _ in range(rounds if name in found else 0):
                try:
                    row = _one(client, found[name], work)
                except ProcessFailed as error:
                    failures.append(f"{work}, {client.name}, {name}: {error}")
                    break
                results.setdefault(work, {}).setdefault(client.name, {}).setdefault(name, []).append(row)
                say(f"  {WORKS[work].title}, {client.name} at {name}: {_line(row)}")
    return {"problems": problems, "rows": results, "failures": failures}


def _steps(names: Sequence[str], clients: Sequence[Client]) -> Iterator[tuple[str, Client, str]]:
    for work in names:
        for client in clients:
            for name in client.places if work in client.works else ():
                yield work, client, name


def _brokers(stack: ExitStack, directory: Path | None, say: Callable[[str], None]) -> dict[str, Place]:
    say("starting the brokers")
    found = {}
    for name, side in stack.enter_context(both(SETTINGS["plain"], directory)).items():
        assert side.broker.process is not None
        address = side.broker.namesrv_address
        found[name] = Place(address, address, broker_cpu=side.broker.process.cpu_seconds)
        found[name].fill()
    return found


def _proxy(stack: ExitStack, _directory: Path | None, _client: Client) -> Place:
    names = stack.enter_context(JavaNameServer(ROCKETMQ_5))
    broker = stack.enter_context(JavaProxy(names.address, jvm=PROXY_JVM))
    place = Place(broker.endpoint, names.address, PROXY_BACKLOG)
    place.fill()
    return place


def _kafka(stack: ExitStack, directory: Path | None, client: Client) -> Place:
    """Filled by one of the clients that work there."""
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=directory)))
    place = Place(stack.enter_context(kafka.KafkaBroker(home, QUEUES)).address, "", KAFKA_BACKLOG)
    _fill_by(client, place)
    return place


def _fill_by(client: Client, place: Place) -> None:
    """Where Java's load program knows no way in: let the client send until there is enough."""
    stored = accumulate(client.measure(place, "client-async", READS)["total"] for _ in repeat(None))
    wait_until(
        lambda: next(stored) >= place.backlog, FILL_TIMEOUT_S, f"{client.name} to send {place.backlog:,} messages"
    )


def _one(client: Client, place: Place, work: str) -> Measurement:
    os.sync()  # what another one left in the page cache is not written at this one's expense
    return client.measure(place, work, READS if work in _READING else work)


def _line(row: Mapping[str, Any]) -> str:
    cpu = "" if row["cpuMicros"] is None else f", {row['cpuMicros']:.1f} µs of its CPU each"
    broker = f", {row['brokerMicros']:.1f} µs of the broker's" if "brokerMicros" in row else ""
    return f"{row['rate']:,.0f} messages/s{cpu}{broker}, {row['errors']} errors"


TITLE = "one producer or consumer of each client; a ratio is orbitmq's asyncio client to this one, at the same broker"
TEXTS = ("work", "client", "broker")
FIGURES = ("a second", "orbitmq's to it", "CPU µs each", "orbitmq's to it", "p50 / p99 ms", "errors")


def table(report: Mapping[str, Any]) -> Table:
    """What is printed."""
    made = Table(title=TITLE)
    for heading in TEXTS:
        made.add_column(heading)
    for heading in FIGURES:
        made.add_column(heading, justify="right")
    for work, of_clients in report["rows"].items():
        for row in _lines(work, of_clients):
            made.add_row(*row)
        made.add_section()
    return made


def page(report: Mapping[str, Any]) -> str:
    """The same as a piece of a page in Markdown, with what has to be known of the run."""
    lines = [
        f"{TITLE[0].upper()}{TITLE[1:]}.",
        "",
        bars([*TEXTS, *FIGURES]),
        bars([*["---"] * len(TEXTS), *["---:"] * len(FIGURES)]),
        *(bars(row) for work, of_clients in report["rows"].items() for row in _lines(work, of_clients)),
        "",
        *(f"- {note}" for note in notes(report)),
    ]
    return "\n".join(lines) + "\n"


def _lines(work: str, of_clients: Mapping[str, Mapping[str, Sequence[Measurement]]]) -> Iterator[tuple[str, ...]]:
    title = WORKS[work].title
    for client, of_places in of_clients.items():
        for place, rounds in of_places.items():
            ours = of_clients.get(OUR_CLIENT, {}).get(RIVAL if place == PROXY else place, [])
            yield title, client, place, *_cells(rounds, ours)
            title = ""


def _cells(rounds: Sequence[Measurement], ours: Sequence[Measurement]) -> tuple[str, ...]:
    rate, cpu = _median(rounds, "rate"), _median(rounds, "cpuMicros")
    p50, p99 = _median(rounds, "p50Micros"), _median(rounds, "p99Micros")
    return (
        f"{rate:,.0f}" if rate is not None else "",
        _ratio(_median(ours, "rate"), rate),
        f"{cpu:,.1f}" if cpu is not None else "",
        _ratio(_median(ours, "cpuMicros"), cpu),
        f"{p50 / 1000:.2f} / {p99 / 1000:.2f}" if p50 is not None and p99 is not None else "",
        f"{sum(row['errors'] for row in rounds)}",
    )


def _ratio(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.2f}" if ours is not None and theirs else ""


def _median(rounds: Sequence[Measurement], figure: str) -> float | None:
    values = [row[figure] for row in rounds]
    return statistics.median(values) if values and None not in values else None


def notes(report: Mapping[str, Any]) -> list[str]:
    """What a reader of the table has to know."""
    return [
        f"clients: windows of {SECONDS} s (Java: {JAVA_SECONDS} s), warmed up; a process each, whose CPU is shown",
        "orbitmq's asyncio client and aiokafka run on uvloop, orbitmq's synchronous one with a thread a sender",
        "consumers find all messages there; one that speaks gRPC has to acknowledge each by itself",
        f"{peers.CPP.name} says 1 where RocketMQ wants true: each of its batches is stored as one message, on both",
        "send_oneway: errors are the messages that were handed over and not stored",
        "at the proxy orbitmq's figures for the ratio are those at RocketMQ 4.9.7",
        "Kafka is another system, for orientation and in no ratio: one broker, topics of as many partitions as queues",
        "clients of Kafka gather messages into batches by themselves: their oneway sends and batches are left out",
        *_lingering(report["rows"].get("client-linger", {}).get(OUR_CLIENT, {})),
        *(f"not measured: {name}, {problem}" for name, problem in report["problems"].items()),
    ]


def _lingering(of_places: Mapping[str, Sequence[Measurement]]) -> Iterator[str]:
    """What batches that form by themselves cost the brokers."""
    for place, rounds in of_places.items():
        broker = _median(rounds, "brokerMicros")
        yield f"a message that lingers costs the broker {broker:.1f} µs of CPU ({place})"
