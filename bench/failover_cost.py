"""What it costs a send that every replica in sync must have it: brokers that elect their master against a SYNC_MASTER
with a slave, one after the other in rounds (`make bench-failover-cost`). Two minutes, on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.etcd import Etcds
from tests.support.orbit_process import OrbitBroker, OrbitNameServer, form_started
from tests.support.process import ChildProcess, accepts, wait_until
from tests.support.registration import is_registered

LOAD = Path(__file__).parent / "loads" / "ours.py"
WARM_UP_S = 2.0
TOPIC = "BenchFailover"


@dataclass
class Row:
    per_s: float
    cpu_us: float
    """Of all brokers, a message."""


class Follower(OrbitBroker):
    """A slave: the routes have its master already."""

    def _is_ready(self, process: ChildProcess) -> bool:  # noqa: ARG002
        return accepts(self.port)


def _errors(broker: OrbitBroker) -> str:
    return broker.process.errors() if broker.process is not None else ""


@contextmanager
def pair(home: Path, namesrv: str, *, elects: bool) -> Iterator[list[OrbitBroker]]:
    name = "elected" if elects else "pair"
    with Etcds(1) as etcds:
        agreement = {"agreement": f"etcd://{etcds.urls[0].removeprefix('http://')}"} if elects else {}
        brokers = [
            kind(
                namesrv, name=name, store_dir=home / f"{name}-{number}", brokerId=number + int(elects),
                brokerRole="SLAVE" if number else "SYNC_MASTER", defaultTopicQueueNums=8, **agreement,
            )
            for number, kind in ((0, OrbitBroker), (1, Follower))
        ]  # fmt: skip
        try:
            for broker in brokers:
                broker.start()
            wait_until(lambda: is_registered(namesrv, name), 30, "a master")
            wait_until(lambda: "event=slave_connected" in _errors(brokers[0]), 30, "its slave")
            yield brokers
        finally:
            for broker in brokers:
                broker.__exit__()


def measured(namesrv: str, brokers: list[OrbitBroker], senders: int, seconds: float) -> Row:
    def cpu() -> float:
        return sum(one.process.cpu_seconds() for one in brokers if one.process is not None)

    words = [
        "sync", "--namesrv", namesrv, "--topic", TOPIC, "--senders", senders, "--seconds", seconds,
        "--warm-up", WARM_UP_S,
    ]  # fmt: skip
    begun = cpu()
    ran = subprocess.run([sys.executable, LOAD, *map(str, words)], capture_output=True, text=True, check=True)
    row = json.loads(ran.stdout.splitlines()[-1])
    per_s = row["rate"]
    return Row(per_s, (cpu() - begun) / (per_s * (seconds + WARM_UP_S)) * 1e6)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    rows: dict[tuple[str, int], list[Row]] = {}
    print(f"orbitmq {form_started()}", flush=True)
    with tempfile.TemporaryDirectory(prefix="failover-cost-") as home:
        for number in range(arguments.rounds):
            for elects in (False, True):
                with (
                    OrbitNameServer() as namesrv,
                    pair(Path(home) / str(number), namesrv.address, elects=elects) as brokers,
                ):
                    for senders in (1, 64):
                        row = measured(namesrv.address, brokers, senders, arguments.seconds)
                        rows.setdefault(("elected" if elects else "SYNC_MASTER", senders), []).append(row)
                        print(f"round {number + 1}, elects {elects}, {senders} senders: {row}", file=sys.stderr)
    print("| senders | SYNC_MASTER, messages/s | elected | ratio | CPU of both brokers, us | elected | ratio |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for senders in (1, 64):
        plain, elected = (
            (statistics.median(one.per_s for one in found), statistics.median(one.cpu_us for one in found))
            for found in (rows["SYNC_MASTER", senders], rows["elected", senders])
        )
        print(
            f"| {senders} | {plain[0]:,.0f} | {elected[0]:,.0f} | {elected[0] / plain[0]:.2f} | {plain[1]:.0f} | "
            f"{elected[1]:.0f} | {elected[1] / plain[1]:.2f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
