"""What clients of RocketMQ 5 cost over gRPC: orbitmq beside the proxy of RocketMQ 5.3.3 in local mode, which
has a broker inside, under the load of the official clients for Java and Python (`make bench-grpc`).

Both run at once and are loaded in turn, so that what the machine does meanwhile hits both. Measured are messages a
second and the server's processor time for each, to send, and to receive and acknowledge; and how long the server takes
to be ready. Writes grpc.txt and grpc.json below docs/performance, unless `--out` names another directory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.clients import PROXY_JVM
from bench.cores import worked_s
from tests.support.fronts import Front, JavaFront, OrbitFront, create_group, create_topic
from tests.support.grpc_clients import GrpcDriver
from tests.support.orbit_process import form_started

DOCS = Path(__file__).parents[1] / "docs" / "performance"
OURS, RIVAL = "orbitmq", "RocketMQ 5.3.3"
TOPIC, GROUP, QUEUES, SIZE = "loaded", "drainers", 8, 512
THREADS = {"java": 16, "python": 8}
RATE_BAR, CPU_BAR, START_BAR_S = 1.0, 0.8, 1.5


@dataclass(frozen=True)
class Row:
    """One client, one kind of work: messages a second, and microseconds of the server's CPU for each."""

    client: str
    work: str
    rate: dict[str, float]
    cpu_us: dict[str, float]

    def cells(self) -> str:
        """A row of the table; `!` misses its bar."""
        rate, cpu = self.rate[OURS] / self.rate[RIVAL], self.cpu_us[OURS] / self.cpu_us[RIVAL]
        sides = [f"{self.rate[name]:,.0f}/s at {self.cpu_us[name]:,.0f} µs" for name in (OURS, RIVAL)]
        rate_miss, cpu_miss = "!" * (rate < RATE_BAR), "!" * (cpu > CPU_BAR)
        bars = f"{rate:.2f} (≥ {RATE_BAR}){rate_miss} | {cpu:.2f} (≤ {CPU_BAR}){cpu_miss}"
        return f"| {self.client}, {self.work} | {' | '.join(sides)} | {bars} |"


def table(rows: list[Row], form: str, load: float, start_s: float) -> str:
    """What is published."""
    late = "!" * (start_s >= START_BAR_S)
    head = (
        f"orbitmq {form}; load {load:.1f} before; `!` misses its bar. Ready with gRPC in {start_s:.2f} s "
        f"(< {START_BAR_S}){late}.\n\n| client | {OURS} | {RIVAL} | ratio of rates | of CPU |\n|---|---|---|---|---|\n"
    )
    return head + "".join(row.cells() + "\n" for row in rows)


def measured(fronts: dict[str, Front], pids: dict[str, int], client: str, seconds: int, rounds: int) -> list[Row]:
    """Sends, then receives of what was sent, each round at one system after the other."""
    rates: dict[str, dict[str, list[float]]] = {"send": {}, "receive": {}}
    costs: dict[str, dict[str, list[float]]] = {"send": {}, "receive": {}}
    threads = THREADS[client]
    with ExitStack() as stack:
        drivers = {name: stack.enter_context(GrpcDriver(client)) for name in fronts}
        producers = {
            name: drivers[name].start_producer(front.endpoint, topics=[TOPIC]) for name, front in fronts.items()
        }
        consumers = {
            name: drivers[name].start_simple_consumer(front.endpoint, f"{GROUP}-{client}", TOPIC, wait_s=5)
            for name, front in fronts.items()
        }
        for name in fronts:
            consumers[name].receive()  # the group begins here
        for round_number in range(rounds + 1):  # the first one warms up
            for work in ("send", "receive"):
                for name in fronts:
                    begun = worked_s(pids[name])
                    if work == "send":
                        rate = producers[name].load(TOPIC, size=SIZE, threads=threads, seconds=seconds)
                    else:
                        rate = consumers[name].drain(threads=threads, seconds=max(2, seconds // 2))
                    spent = worked_s(pids[name]) - begun
                    taken = seconds if work == "send" else max(2, seconds // 2)
                    if round_number:
                        rates[work].setdefault(name, []).append(rate)
                        costs[work].setdefault(name, []).append(spent / (rate * taken) * 1e6)
    return [
        Row(
            client,
            work,
            {name: statistics.median(rates[work][name]) for name in fronts},
            {name: statistics.median(costs[work][name]) for name in fronts},
        )
        for work in ("send", "receive")
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="after one to warm up; medians are reported")
    parser.add_argument("--clients", nargs="+", default=list(THREADS), choices=list(THREADS))
    parser.add_argument("--out", type=Path, default=DOCS)
    given = parser.parse_args()
    load = os.getloadavg()[0]
    rows: list[Row] = []
    with ExitStack() as stack:
        begun = time.monotonic()
        ours = stack.enter_context(OrbitFront())
        start_s = time.monotonic() - begun
        rival = stack.enter_context(JavaFront(jvm=PROXY_JVM))
        fronts: dict[str, Front] = {OURS: ours, RIVAL: rival}
        processes = {OURS: ours.process, RIVAL: rival.proxy.process}
        pids = {name: process.pid for name, process in processes.items() if process is not None}
        for front in fronts.values():
            create_topic(front, TOPIC, read=QUEUES, write=QUEUES)
            for client in given.clients:
                create_group(front, f"{GROUP}-{client}")
        for client in given.clients:
            rows += measured(fronts, pids, client, given.seconds, given.rounds)
            print("\n".join(row.cells() for row in rows[-2:]), flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    form = f"{form_started()}, Python {platform.python_version()}"
    (given.out / "grpc.txt").write_text(table(rows, form, load, start_s), encoding="utf-8")
    report = {
        "form": form_started(),
        "loadBefore": load,
        "startSeconds": start_s,
        "rows": [asdict(row) for row in rows],
    }
    (given.out / "grpc.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
