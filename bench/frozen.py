"""Senders while a broker freezes and dies: orbitmq's client and Java's, with and without fault tolerance.

Runs one cluster of two brokers of RocketMQ 4.9.7 and two of orbitmq, a topic on all four, and five concurrent producers
at a steady rate, each a process with default settings except for what its row says. A broker is frozen (SIGSTOP), later
killed (SIGKILL), and started again: first one of Java's, then one of orbitmq's. Prints a Markdown table
(`make bench-frozen`). Takes two minutes and needs an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support import steady
from tests.support.four_brokers import JAVAS, NAMES, OURS, FourBrokers
from tests.support.reading import deliveries
from tests.support.steady import Kind, Sent, SteadySender

TOPIC = "frozen"
# The four that compare, and what orbitmq's client can be told beyond: to try elsewhere while there is time.
KINDS = (*steady.KINDS, Kind(steady.OURS, fault=True, attempt_ms=1000))
WARM_SECONDS = 3.0  # the first sends of a process find neither connections nor compiled code
PHASES = ("before", "frozen", "killed")
HEADINGS = ("broker", "phase", "client", "sends", "errors", "p50 ms", "p99 ms", "most ms")

Rows = Mapping[Kind, Sequence[Sent]]


@dataclass(frozen=True)
class Round:
    """What the producers told of one broker's end; times in milliseconds since the epoch."""

    broker: str
    rows: Rows
    starts: Mapping[str, int]
    """Phase -> when it began."""

    def of(self, kind: Kind, phase: str) -> list[Sent]:
        """The sends of a phase; one that is under way when the broker freezes is of those that feel it."""
        ends = {"before": self.starts["frozen"], "frozen": self.starts["killed"], "killed": math.inf}
        return [row for row in self.rows[kind] if self.starts[phase] <= _felt(row, self.starts) < ends[phase]]


def _felt(row: Sent, starts: Mapping[str, int]) -> int:
    return starts["frozen"] if row.begin < starts["frozen"] <= row.end else row.begin


def main() -> int:
    arguments = _arguments()
    began = time.monotonic()
    with FourBrokers() as cluster:
        cluster.create(TOPIC)
        rounds = [_round(cluster, name, arguments) for name in (JAVAS[0], OURS[0])]
        acknowledged = {f"{kind_run}-{row.index}" for kind_run, row in _acknowledged(rounds)}
        found = deliveries(cluster.name_servers[0], TOPIC, acknowledged)
    pace = f"{arguments.senders} senders a producer, {arguments.pause_ms} ms between two sends"
    print(f"{time.monotonic() - began:.0f} s; {pace}")
    print(spread(rounds[0]))
    print("\n".join(table(rounds)))
    again = sum(found[key] > 1 for key in acknowledged)
    print(f"\nAll {len(acknowledged)} acknowledged messages were consumed, {again} of them more than once.")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=float, default=5, help="seconds in which all is well (5)")
    parser.add_argument("--frozen", type=float, default=20, help="seconds from SIGSTOP to SIGKILL (20)")
    parser.add_argument("--killed", type=float, default=12, help="seconds from SIGKILL on (12)")
    parser.add_argument("--senders", type=int, default=4, help="sends at a time of each producer (4)")
    parser.add_argument("--pause-ms", type=int, default=20, help="of each sender between two sends (20)")
    return parser.parse_args()


def _round(cluster: FourBrokers, broker: str, arguments: argparse.Namespace) -> Round:
    """One broker's end, and its new beginning."""
    print(f"freezing {broker}", file=sys.stderr)
    starts: dict[str, int] = {}
    with ExitStack() as stack:
        pace = {"senders": arguments.senders, "pause_ms": arguments.pause_ms}
        producers = [
            stack.enter_context(SteadySender(kind, address, TOPIC, _run(broker, kind), **pace))
            for kind, address in zip(KINDS, cycle(cluster.name_servers), strict=False)
        ]
        for producer in producers:
            producer.wait_until_started()
        time.sleep(WARM_SECONDS)
        for phase, happen in zip(PHASES, (lambda _: None, cluster.freeze, cluster.kill), strict=True):
            starts[phase] = time.time_ns() // 1_000_000
            happen(broker)
            time.sleep(getattr(arguments, phase))
        rows = {producer.kind: producer.end() for producer in producers}
    cluster.start(broker)
    return Round(broker, rows, starts)


def _run(broker: str, kind: Kind) -> str:
    """Keys of a producer's messages begin so, and its group is called so."""
    return f"{broker}-{KINDS.index(kind)}"


def _acknowledged(rounds: Iterable[Round]) -> Iterator[tuple[str, Sent]]:
    for one in rounds:
        for kind, rows in one.rows.items():
            yield from ((_run(one.broker, kind), row) for row in rows if row.broker is not None)


def spread(one: Round) -> str:
    """How many messages each broker got of each producer while all was well."""
    lines = ["\n| sends to | " + " | ".join(NAMES) + " |", "|---" * (len(NAMES) + 1) + "|"]
    for kind in KINDS:
        counts = Counter(row.broker for row in one.of(kind, "before"))
        lines.append(f"| {kind} | " + " | ".join(str(counts[name]) for name in NAMES) + " |")
    return "\n".join([*lines, ""])


def table(rounds: Iterable[Round]) -> Iterator[str]:
    """The lines of the comparison."""
    yield "| " + " | ".join(HEADINGS) + " |"
    yield "|---|---|---" + "|--:" * (len(HEADINGS) - 3) + "|"
    for one in rounds:
        for phase in PHASES:
            for kind in KINDS:
                yield f"| {one.broker} | {phase} | {kind} | " + " | ".join(figures(one.of(kind, phase))) + " |"


def figures(sends: Sequence[Sent]) -> list[str]:
    """Number, errors with their share, and what the callers waited, failed or not."""
    if not sends:
        return ["0", "", "", "", ""]
    times = sorted(row.micros / 1000 for row in sends)
    errors = sum(row.error is not None for row in sends)
    waited = [f"{_quantile(times, share):,.1f}" for share in (0.5, 0.99, 1)]
    return [f"{len(sends):,}", f"{errors} ({errors / len(sends):.1%})", *waited]


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that so large a share does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


if __name__ == "__main__":
    sys.exit(main())
