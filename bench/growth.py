"""How orbitmq and Apache RocketMQ 4.9.7 scale (`make bench-growth`) with topics, connections, backlog and groups, and
what a second broker process gains.

In each step the two alternate under the same load of `bench.growth_load`, with a fixed number of requests in flight.
Writes growth.json, .csv and .txt below docs/performance; `bench.growth_plots` draws them. It needs an otherwise idle
machine, and a quarter of an hour; `--gigabytes 0 1 20` a disk with 60 GB, and some minutes more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.growth_load import topic_name  # noqa: E402
from bench.growth_report import Row, failures, falls, fragment, line, row, table  # noqa: E402
from bench.systems import OURS, SYSTEMS, Measurement, both  # noqa: E402
from bench.works import Setting  # noqa: E402
from tests.support.orbit_process import ORBITMQ, form_started  # noqa: E402
from tests.support.process import ChildProcess  # noqa: E402

PREFIX = "growth"
QUEUES = 8
MESSAGE_BYTES = 1200  # of a message in the log, about: a body of 1 KiB and its properties
FILLED = 160_000  # messages that are there before the first step is measured, whatever grows
IN_FLIGHT = 10
READY_S = 120
# Of RocketMQ each queue is a file that is mapped whole, of which a process may have 65,530.
SMALL_QUEUE_FILES = {"mappedFileSizeConsumeQueue": 20 * 50_000}
WORKS = ("send", "pull")
# Seconds of load before a broker is measured at a work for the first time: a JVM is several times slower at first, and
# a first step of such figures would hide every fall.
FIRST_WARM_UP = 12.0


@dataclass(frozen=True)
class Target:
    """Brokers of one cluster that a load goes to."""

    addresses: tuple[str, ...]
    pids: tuple[int, ...]


@dataclass
class Bench:
    """Measures, and keeps what it measured."""

    seconds: float
    warm_up: float
    rounds: int
    directory: Path | None
    rows: list[Row] = field(default_factory=list)
    warm: set[tuple[Target, str]] = field(default_factory=set)

    def load(self, work: str, target: Target, **options: object) -> Measurement:
        """One run of the load generator; its row."""
        words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        lists = ["--address", *target.addresses, "--pids", *map(str, target.pids)]
        command = [sys.executable, "-m", "bench.growth_load", work, *words, *lists]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=7200, check=False)
        if ended.returncode:
            raise RuntimeError(f"{' '.join(command[2:])}: {ended.stderr[-2000:]}")
        found: Measurement = json.loads(ended.stdout)
        return found

    def step(
        self, growth: str, step: float, targets: dict[str, Target], works: Sequence[str] = WORKS, **options: object
    ) -> None:
        """Measure the works at one step."""
        self.steps(growth, {step: options}, targets, works)

    def steps(
        self,
        growth: str,
        steps: dict[float, dict[str, object]],
        targets: dict[str, Target],
        works: Sequence[str] = WORKS,
    ) -> None:
        """Measure the works at several steps, each with its options, that need nothing done between them.

        In each round come all steps, and the systems take turns at each: a machine that is slow for a minute is so for
        all of them.
        """
        window = {"seconds": self.seconds, "prefix": PREFIX, "in_flight": IN_FLIGHT}
        for work in works:
            measured: dict[tuple[float, str], list[Measurement]] = {}
            for _ in range(self.rounds):
                for step, options in steps.items():
                    for system, target in targets.items():
                        os.sync()  # what the other one left in the page cache is not written at this one's expense
                        warm_up = self.warm_up if (target, work) in self.warm else FIRST_WARM_UP
                        self.warm.add((target, work))
                        one = self.load(work, target, warm_up=warm_up, **window, **options)
                        measured.setdefault((step, system), []).append(one)
            for (step, system), rounds in measured.items():
                self.rows.append(row(growth, step, work, system, rounds))
                print(f"  {line(self.rows[-1])}", flush=True)

    @contextlib.contextmanager
    def systems(self, topics: int, queues: int, **config: object) -> Iterator[dict[str, Target]]:
        """Both, with these topics."""
        with both(Setting(config), self.directory, lambda store: put_topics(store, topics, queues)) as sides:
            yield {system: _target(side.broker.address, side.broker.process) for system, side in sides.items()}

    def fill(self, targets: dict[str, Target], topics: int, queues: int, depth: int) -> None:
        for target in targets.values():
            self.load("fill", target, prefix=PREFIX, topics=topics, queues=queues, depth=depth)


def _target(address: str, process: ChildProcess | None) -> Target:
    assert process is not None
    return Target((address,), (process.pid,))


def put_topics(store: Path, topics: int, queues: int) -> None:
    """The file in which either broker keeps its topics: to make 10,000 one after the other takes RocketMQ an hour."""
    names = [topic_name(PREFIX, number) for number in range(topics)]
    table_ = {
        name: {
            "order": False,
            "perm": 6,
            "readQueueNums": queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": queues,
        }
        for name in names
    }
    version = {"counter": topics, "timestamp": int(time.time() * 1000)}
    (store / "config").mkdir(parents=True)
    (store / "config" / "topics.json").write_text(json.dumps({"dataVersion": version, "topicConfigTable": table_}))


def grow_topics(bench: Bench, steps: Sequence[float]) -> None:
    """One queue each; the same number of messages is in all of them together."""
    for step in map(int, steps):
        with bench.systems(step, 1, **SMALL_QUEUE_FILES) as targets:
            depth = max(16, FILLED // step)
            bench.fill(targets, step, 1, depth)
            bench.step("topics", step, targets, topics=step, queues=1, depth=depth)


def grow_connections(bench: Bench, steps: Sequence[float]) -> None:
    """As many requests at a time as ever, each over the connection that was idle longest."""
    with bench.systems(1, QUEUES) as targets:
        depth = FILLED // QUEUES
        bench.fill(targets, 1, QUEUES, depth)
        options = {step: {"queues": QUEUES, "depth": depth, "connections": step} for step in map(int, steps)}
        bench.steps("connections", options, targets)


def grow_backlog(bench: Bench, steps: Sequence[float]) -> None:
    """Gigabytes that lie in the log before; pulls go all over them."""
    with bench.systems(1, QUEUES) as targets:
        there = 0
        for step in steps:
            depth = max(FILLED // QUEUES // 10, int(step * 1e9 / MESSAGE_BYTES / QUEUES))
            bench.fill(targets, 1, QUEUES, depth - there)
            there = depth
            bench.step("gigabytes of backlog", step, targets, queues=QUEUES, depth=depth)


def grow_groups(bench: Bench, steps: Sequence[float]) -> None:
    """Groups that follow what is sent, each with a pull held at every queue."""
    with bench.systems(1, QUEUES) as targets:
        for step in map(int, steps):
            bench.step("groups", step, targets, ["send"], queues=QUEUES, groups=step)


def grow_brokers(bench: Bench, steps: Sequence[float]) -> None:
    """Broker processes of `orbitmq host`; the load is the same and goes to all of them."""
    for step in map(int, steps):
        with hosted(bench.directory, step) as target:
            bench.fill({OURS: target}, 1, QUEUES, FILLED // QUEUES)
            for address, pid in zip(target.addresses[1:], target.pids[1:], strict=True):
                bench.fill({OURS: Target((address,), (pid,))}, 1, QUEUES, FILLED // QUEUES)
            options = {"queues": QUEUES, "depth": FILLED // QUEUES, "connections": IN_FLIGHT}
            bench.step("brokers", step, {OURS: target}, **options)


@contextlib.contextmanager
def hosted(directory: Path | None, count: int) -> Iterator[Target]:
    """So many brokers, each with the topic."""
    with tempfile.TemporaryDirectory(prefix="growth-", dir=directory) as place:
        home = Path(place)
        for number in range(count):
            put_topics(home / "data" / f"broker-{number}", 1, QUEUES)
        ports = ("--namesrv-port", 0, "--broker-port", 0, "--log-level", "info")
        words = (ORBITMQ, "host", "--brokers", count, "--data-dir", home / "data", *ports)
        with ChildProcess([*map(str, words)], output=home / "host.out") as host:
            host.wait_for(lambda: "  data " in host.output(), READY_S, "all brokers to be ready")
            host.wait_for(lambda: len(_pids(host)) == count, READY_S, "the log, which a thread writes")
            places, pids = re.findall(r"^  broker-\d+ +(\S+)$", host.output(), re.MULTILINE), _pids(host)
            yield Target(tuple(places), tuple(pids[f"broker-{number}"] for number in range(count)))


def _pids(host: ChildProcess) -> dict[str, int]:
    ready = re.findall(r"event=node_ready node='(broker-\d+)' pid=(\d+)", host.errors())
    return {name: int(pid) for name, pid in ready}


Grow = Callable[[Bench, Sequence[float]], None]
GROWTHS: dict[str, tuple[Grow, tuple[float, ...]]] = {
    "topics": (grow_topics, (1, 100, 10_000)),
    "connections": (grow_connections, (10, 200, 1000)),
    "backlog": (grow_backlog, (0, 1)),
    "groups": (grow_groups, (1, 2, 50)),
    "brokers": (grow_brokers, (1, 2)),
}


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal: +(\d+)", Path("/proc/meminfo").read_text())
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "processor": model[1] if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory GiB": round(int(memory[1]) / (1 << 20), 1) if memory else None,
        "form": form_started(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": java,
        "commit": commit.stdout.strip() or "not a checkout",
        "load before": os.getloadavg()[0],
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(GROWTHS), default=list(GROWTHS), help="these alone")
    parser.add_argument("--rounds", type=int, default=1, help="measurements of each value (1)")
    parser.add_argument("--seconds", type=float, default=5, help="length of one measurement (5)")
    parser.add_argument("--warm-up", type=float, default=2, help="seconds of load before each measurement (2)")
    parser.add_argument("--topics", nargs="+", type=float, help="steps, as for the others below")
    parser.add_argument("--connections", nargs="+", type=float)
    parser.add_argument("--gigabytes", nargs="+", type=float)
    parser.add_argument("--groups", nargs="+", type=float)
    parser.add_argument("--directory", type=Path, help="where the stores go; they take up to 25 GB at a time")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "performance", help="where the results are written")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    bench = Bench(arguments.seconds, arguments.warm_up, arguments.rounds, arguments.directory)
    told = {"topics": arguments.topics, "connections": arguments.connections, "groups": arguments.groups}
    told["backlog"] = arguments.gigabytes
    report: dict[str, Any] = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": machine()}
    began = time.monotonic()
    for name in arguments.only:
        grow, steps = GROWTHS[name]
        print(f"{name}:", flush=True)
        grow(bench, told.get(name) or steps)
    report |= {
        "systems": list(SYSTEMS),
        "command": "python bench/growth.py " + " ".join(sys.argv[1:]),
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
        "took": round(time.monotonic() - began),
        "falls": list(falls(bench.rows)),
        "failures": list(failures(bench.rows)),
        "rows": [asdict(one) for one in bench.rows],
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "growth.json").write_text(
        json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    (arguments.out / "growth.txt").write_text(fragment(report, bench.rows), encoding="utf-8")
    (arguments.out / "growth.csv").write_text(table(bench.rows), encoding="utf-8")
    for text in report["falls"]:
        print(f"FALLS {text}")
    for text in report["failures"]:
        print(f"failed: {text}")
    print(f"{len(bench.rows)} figures in {report['took']} s, in {arguments.out}")
    return 1 if report["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
