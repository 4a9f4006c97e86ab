"""orbitmq and Apache RocketMQ 4.9.7 under the same Java load on this machine, in alternating rounds (`make bench`).

Both brokers run all the time, on loopback, with their default settings; during a measurement only one of them works.
Prints a table and writes it with all single measurements below var/bench. It needs a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.java_rocketmq import Driver, JavaBroker, JavaNameServer, run_driver  # noqa: E402
from tests.support.orbit_process import OrbitBroker, OrbitNameServer  # noqa: E402

Broker: TypeAlias = JavaBroker | OrbitBroker
Measurement: TypeAlias = dict[str, Any]

RIVAL, OURS = "RocketMQ 4.9.7", "orbitmq"
SYSTEMS = (RIVAL, OURS)
QUEUES = 8
FILL_COUNT = 400_000  # messages of the topic that pull and push read: 0.5 GB, far more than any client buffers
_BROKER_JVM = ("-server", "-Xms2g", "-Xmx4g", "-XX:+UseG1GC", "-XX:G1ReservePercent=25", "-XX:MaxDirectMemorySize=2g")
_LOAD_JVM = ("-server", "-Xms512m", "-Xmx1g", "-XX:+UseParallelGC")
# What the launcher relaxes for tests goes back to RocketMQ's defaults.
_ROCKETMQ_DEFAULTS: dict[str, Any] = {
    "waitTimeMillsInSendQueue": 200,
    "osPageCacheBusyTimeOutMills": 1000,
    "diskMaxUsedSpaceRatio": 75,
}


@dataclass(frozen=True)
class Work:
    """One row of the table: arguments of the load generator."""

    title: str
    arguments: tuple[object, ...]
    times: str = "send"
    reads: bool = False


WORKS = {
    "sync16": Work("sync send, 16 threads", ("sync", "--threads", 16)),
    "sync64": Work("sync send, 64 threads", ("sync", "--threads", 64)),
    "async": Work("async send, 512 in flight", ("async", "--threads", 4, "--in-flight", 512)),
    "oneway": Work("oneway send", ("oneway", "--threads", 2), times=""),
    "batch": Work("batch send, 32 a batch", ("batch", "--threads", 4, "--batch", 32)),
    "pull": Work("pull, 32 a request", ("pull", "--threads", 8), reads=True),
    "push": Work("push consume", ("push", "--count", FILL_COUNT), times="", reads=True),
    "latency": Work("send to listener, 1 k/s", ("latency", "--rate", 1000)),
}


@dataclass(frozen=True)
class Side:
    """One system, ready for load."""

    broker: Broker
    start_seconds: float

    def load(self, *arguments: object, topic: str) -> Measurement:
        assert self.broker.process is not None
        target = ("--namesrv", self.broker.namesrv_address, "--topic", topic, "--broker-pid", self.broker.process.pid)
        with Driver(*arguments, *target, main="orbitmq.load.Load", jvm=_LOAD_JVM) as driver:
            return driver.finish(timeout_s=600)[-1]

    def create(self, topic: str) -> None:
        arguments = ("--namesrv", self.broker.namesrv_address, "--topic", topic, "--broker", self.broker.address)
        run_driver("admin", "--do", "create", *arguments, "--queues", QUEUES)


def main() -> None:
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 150)
    names = arguments.only or list(WORKS)
    store = Path(tempfile.mkdtemp(prefix="bench-", dir=arguments.directory))
    try:
        with _both(store) as sides:
            results = _measure(sides, names, arguments, console)
            report = _report(sides, results, arguments)
    finally:
        shutil.rmtree(store)
    console.print(_table(report))
    for line in report["notes"]:
        console.print(f"- {line}", highlight=False)
    console.print(f"written to {_save(report)}", highlight=False)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="measurements of each work on each system (2)")
    parser.add_argument("--seconds", type=int, default=8, help="length of one measurement (8)")
    parser.add_argument("--warm-up", type=int, default=4, help="seconds of load before each measurement (4)")
    parser.add_argument("--only", nargs="+", choices=WORKS, help="these rows alone")
    parser.add_argument("--directory", type=Path, help="where the stores go; they take about 15 GB for all rows")
    return parser.parse_args()


@contextlib.contextmanager
def _both(store: Path) -> Iterator[dict[str, Side]]:
    """Both systems, started one after the other, each with a name server of its own."""
    with (
        JavaNameServer() as rival_names,
        OrbitNameServer() as our_names,
        _started(
            JavaBroker(rival_names.address, home=_made(store / "rival"), jvm=_BROKER_JVM, **_ROCKETMQ_DEFAULTS)
        ) as rival,
        _started(OrbitBroker(our_names.address, home=_made(store / "ours"))) as ours,
    ):
        yield {RIVAL: rival, OURS: ours}


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory


@contextlib.contextmanager
def _started(broker: Broker) -> Iterator[Side]:
    begin = time.monotonic()
    with broker:
        yield Side(broker, time.monotonic() - begin)
        broker.kill()  # the store is thrown away


def _measure(
    sides: dict[str, Side], names: Sequence[str], arguments: argparse.Namespace, console: Console
) -> dict[str, dict[str, list[Measurement]]]:
    results: dict[str, dict[str, list[Measurement]]] = {name: {system: [] for system in SYSTEMS} for name in names}
    window = ("--seconds", arguments.seconds, "--warm-up", arguments.warm_up)
    for system, side in sides.items():
        console.print(f"warming {system}", highlight=False)
        side.create("warm")
        side.load("sync", "--threads", 16, "--seconds", 10, "--warm-up", 0, topic="warm")
        side.create("reads")
        if any(WORKS[name].reads for name in names):
            side.load("fill", "--threads", 4, "--count", FILL_COUNT, topic="reads")
    for name in names:
        for side in sides.values():
            side.create(name)
        for round_number in range(arguments.rounds):
            for system, side in sides.items():
                os.sync()  # what the other one left in the page cache is not written at this one's expense
                topic = "reads" if WORKS[name].reads else name
                row = side.load(*WORKS[name].arguments, *window, topic=topic)
                row["memory"] = _memory(side.broker)
                results[name][system].append(row)
                console.print(f"{WORKS[name].title}, round {round_number + 1}, {system}: {_line(row)}", highlight=False)
    return results


def _line(row: Measurement) -> str:
    return f"{row['rate']:,.0f} messages/s, {row['cpuMicros'] or 0:.1f} µs broker CPU a message, {row['errors']} errors"


def _memory(broker: Broker) -> dict[str, int]:
    """MiB of the process: its own (anonymous) and all resident, which counts the mapped log files."""
    assert broker.process is not None
    status = Path(f"/proc/{broker.process.pid}/status").read_text().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in status if line.startswith(("RssAnon", "VmRSS"))}
    return {"own": kib["RssAnon"] // 1024, "resident": kib["VmRSS"] // 1024}


def _report(
    sides: dict[str, Side], results: dict[str, dict[str, list[Measurement]]], arguments: argparse.Namespace
) -> dict[str, Any]:
    notes = [
        f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}, {_java_version()}",
        f"medians of {arguments.rounds} rounds of {arguments.seconds} s, each after {arguments.warm_up} s of warming",
        "1 KiB bodies with KEYS, TAGS, UNIQ_KEY; asynchronous flush; the load generator shares the cores",
        "CPU is user and system time of the broker process; start-up ends when the broker is registered",
        "memory is taken after all rows; own memory leaves the mapped files out",
    ]
    if not any((sides[OURS].broker.store_dir / "index").glob("*")):
        notes.append("RocketMQ writes a key index for each of these messages; orbitmq wrote none")
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "notes": notes,
        "start_seconds": {system: round(side.start_seconds, 2) for system, side in sides.items()},
        "memory": {system: _memory(side.broker) for system, side in sides.items()},
        "rows": {name: {system: _medians(rows) for system, rows in of.items()} for name, of in results.items()},
        "measurements": results,
    }


def _java_version() -> str:
    return subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]


def _medians(rows: Sequence[Measurement]) -> Measurement:
    names = ("rate", "cpuMicros", "p50Micros", "p99Micros", "errors")
    return {name: statistics.median(row[name] for row in rows) if rows[0][name] is not None else None for name in names}


def _table(report: dict[str, Any]) -> Table:
    table = Table(title="the same load on both")
    table.add_column("work")
    for heading in ("messages/s", "CPU µs a message", "p50 / p99 ms"):
        for system in SYSTEMS:
            table.add_column(f"{heading}\n{system}", justify="right")
        if heading != "p50 / p99 ms":
            table.add_column("ratio", justify="right")
    for name, row in report["rows"].items():
        rival, ours = row[RIVAL], row[OURS]
        table.add_row(
            WORKS[name].title,
            *_compared(rival["rate"], ours["rate"], "{:,.0f}"),
            *_compared(rival["cpuMicros"], ours["cpuMicros"], "{:.1f}"),
            *(_times(of) if WORKS[name].times else "" for of in (rival, ours)),
        )
    start = report["start_seconds"]
    table.add_row("start-up, s", *_compared(start[RIVAL], start[OURS], "{:.2f}"))
    for kind in ("own", "resident"):
        rival, ours = (report["memory"][system][kind] for system in SYSTEMS)
        table.add_row(f"{kind} memory, MiB", *_compared(rival, ours, "{:,.0f}"))
    return table


def _compared(rival: float, ours: float, form: str) -> tuple[str, str, str]:
    return form.format(rival), form.format(ours), f"{ours / rival:.2f}"


def _times(row: Measurement) -> str:
    return f"{row['p50Micros'] / 1000:.2f} / {row['p99Micros'] / 1000:.2f}"


def _save(report: dict[str, Any]) -> Path:
    directory = ROOT / "var" / "bench"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{report['time'].replace(':', '')}.json"
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
