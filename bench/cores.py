"""What a message costs each broker of `orbitmq host --brokers N`, for N from 1 to 4 (`make bench-cores`).

Each broker gets the same load, however many there are: sends at a steady rate, then the same while a group pulls what
is sent. It is so small that four brokers and the load generator fit in two cores: what is compared is the cost of a
message, not the rate. Sends come in bursts of one size, because a broker that finds more messages at a time spends less
on each. All hosts run all the time and take turns: a machine that is slow for a minute is so for each of them.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median

import uvloop

from bench.growth import PREFIX, QUEUES, Target, hosted
from bench.growth_load import Answer, Follower, Meter, Peer, Place, Senders, connect, sent, topic_name
from bench.report import bars
from bench.systems import memory_of

BURST = 20
SETTLE_S = 0.3  # for the last responses
RATIO_MAX = 1.2  # of a message's cost to that at the first host; of hosts of one broker each it was up to 1.15
CPUCLOCK_SCHED = 2  # with the process, what clock_getcpuclockid(3) returns
PLACES: list[Place] = [(topic_name(PREFIX, 0), queue) for queue in range(QUEUES)]
WORKS = ("send", "send and pull")
HEADINGS = (
    *("brokers", "work", "CPU µs a message", "least to most", "ratio to the first", "p50 / p99 ms"),
    *("own MiB each", "threads each", "cores busy"),
)


class Bursts:
    """Sends to one broker. The time of a response counts from when its burst was due."""

    def __init__(self, peer: Peer, meter: Meter) -> None:
        self._peer, self._meter, self._senders = peer, meter, Senders(PLACES)
        self._due: deque[float] = deque()
        peer.heard = self._heard

    def go(self, due: float) -> None:
        self._due.extend([due] * BURST)
        self._peer.ask(b"".join(self._senders.next() for _ in range(BURST)))

    def _heard(self, frame: bytes) -> None:
        due = self._due.popleft()
        if sent(Answer(frame)):
            self._meter.done(1, time.perf_counter() - due)
        else:
            self._meter.errors += 1


@dataclass(frozen=True)
class Window:
    """The brokers of one host under one load for some seconds."""

    cpu_micros: list[float]  # a message, of each broker
    times: list[float]  # s, ascending
    busy: float  # cores, of the brokers and the load generator
    failure: str

    @property
    def cost(self) -> float:
        return sum(self.cpu_micros) / len(self.cpu_micros)

    def time(self, share: float) -> float:
        """The time within which this share of the sends was answered."""
        return self.times[int(len(self.times) * share)] if self.times else math.inf


@dataclass
class Host:
    """One `orbitmq host` and its load."""

    name: str
    target: Target
    meters: list[Meter] = field(default_factory=list)
    bursts: list[Bursts] = field(default_factory=list)
    windows: dict[str, list[Window]] = field(default_factory=lambda: {work: [] for work in WORKS})

    async def connect(self) -> None:
        for address in self.target.addresses:
            (peer,) = await connect(address, 1)
            self.meters.append(Meter())
            self.bursts.append(Bursts(peer, self.meters[-1]))

    async def follow(self) -> None:
        for address, meter in zip(self.target.addresses, self.meters, strict=True):
            (peer,) = await connect(address, 1)
            Follower(peer, "cores-followers", PLACES, meter).go()

    async def measure(self, work: str, rate: float, seconds: float, warm_up: float) -> None:
        os.sync()  # what another one left in the page cache is not written at this one's expense
        await send(self.bursts, rate, warm_up)
        self._open()
        own, begun, then = time.process_time(), time.perf_counter(), [*map(worked_s, self.target.pids)]
        await send(self.bursts, rate, seconds)
        await asyncio.sleep(SETTLE_S)
        spent = [worked_s(pid) - before for pid, before in zip(self.target.pids, then, strict=True)]
        busy = (sum(spent) + time.process_time() - own) / (time.perf_counter() - begun)
        self.windows[work].append(self._closed(work, spent, busy))

    def _open(self) -> None:
        for meter in self.meters:
            meter.messages = meter.delivered = 0
            del meter.times[:]
            meter.is_open = True

    def _closed(self, work: str, spent: Sequence[float], busy: float) -> Window:
        counts = [meter.messages for meter in self.meters]
        for meter in self.meters:
            meter.is_open = False
        costs = [seconds * 1e6 / count if count else math.inf for seconds, count in zip(spent, counts, strict=True)]
        times = sorted(chain.from_iterable(meter.times for meter in self.meters))
        return Window(costs, times, busy, "; ".join(failures(work, self.meters)))


def failures(work: str, meters: Sequence[Meter]) -> Iterator[str]:
    """Why a window has no valid figures."""
    if errors := sum(meter.errors for meter in meters):
        yield f"{errors} sends were refused"
    if not all(meter.messages for meter in meters):
        yield "a broker has stored nothing"
    delivered, messages = sum(meter.delivered for meter in meters), sum(meter.messages for meter in meters)
    if work != "send" and delivered < 0.99 * messages:  # some are on their way when it begins, and when it ends
        yield f"{delivered} of {messages} messages were pulled"


async def send(bursts: Sequence[Bursts], rate: float, seconds: float) -> None:
    """`rate` messages a second to each, with a burst to one after the other."""
    turns = rate / BURST * len(bursts)
    begun = time.perf_counter()
    for number in range(int(seconds * turns)):
        due = begun + number / turns
        if (pause := due - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        bursts[number % len(bursts)].go(due)


def worked_s(pid: int) -> float:
    """Processor time of a process, to the nanosecond: by a window of few seconds /proc/PID/stat is too coarse."""
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def pin(target: Target) -> None:
    """Each broker with all its threads to a core of its own, as `taskset` does."""
    cores = sorted(os.sched_getaffinity(0))
    for pid, core in zip(target.pids, cores, strict=False):
        for thread in threads(pid):
            os.sched_setaffinity(thread, {core})


def threads(pid: int) -> list[int]:
    return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]


async def take_turns(hosts: Sequence[Host], arguments: argparse.Namespace) -> None:
    for host in hosts:
        await host.connect()
    for work in WORKS:
        if work != "send":
            for host in hosts:
                await host.follow()
        for number in range(arguments.rounds):
            for host in hosts[:: -1 if number % 2 else 1]:
                await host.measure(work, arguments.rate, arguments.seconds, arguments.warm_up)


def ratio(host: Host, first: Host, work: str) -> float:
    """Of the costs of a message, in windows of the same round."""
    pairs = zip(host.windows[work], first.windows[work], strict=True)
    return median(one.cost / other.cost for one, other in pairs)


def row(host: Host, first: Host, work: str) -> list[str]:
    windows, pids = host.windows[work], host.target.pids
    costs = sorted(chain.from_iterable(one.cpu_micros for one in windows))
    p50, p99 = (median(one.time(share) for one in windows) * 1e3 for share in (0.5, 0.99))
    own = max(memory_of(pid)["own"] for pid in pids)
    most_threads = max(len(threads(pid)) for pid in pids)
    cost, of_first = median(one.cost for one in windows), ratio(host, first, work)
    texts = (f"{cost:.1f}", f"{costs[0]:.1f} to {costs[-1]:.1f}", f"{of_first:.2f}", f"{p50:.2f} / {p99:.2f}")
    return [host.name, work, *texts, str(own), str(most_threads), f"{median(one.busy for one in windows):.2f}"]


def report(hosts: Sequence[Host]) -> int:
    """Print the table; 1 if a figure is none, or a message costs more with more brokers."""
    print(bars(HEADINGS), bars(["---", "---", *["---:"] * (len(HEADINGS) - 2)]), sep="\n")
    found = []
    for work in WORKS:
        for host in hosts:
            print(bars(row(host, hosts[0], work)))
            found += [f"{host.name}, {work}: {one.failure}" for one in host.windows[work] if one.failure]
            if (of_first := ratio(host, hosts[0], work)) > RATIO_MAX:
                found.append(f"{host.name}, {work}: a message costs {of_first:.2f} of that at {hosts[0].name}")
    for text in found:
        print(f"failed: {text}")
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", nargs="+", type=int, default=[1, 2, 3, 4], help="the hosts; the first is compared")
    parser.add_argument("--pinned", action="store_true", help="each number again, with broker i on core i")
    parser.add_argument("--rate", type=float, default=4000, help="messages a second to each broker (4000)")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--directory", type=Path, help="where the stores go")
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    if arguments.pinned and max(arguments.brokers) > cores:
        parser.error(f"--pinned: {max(arguments.brokers)} brokers need as many cores; there are {cores}")
    with ExitStack() as stack:
        hosts = []
        for count in arguments.brokers:
            hosts.append(Host(str(count), stack.enter_context(hosted(arguments.directory, count))))
            if arguments.pinned:
                hosts.append(Host(f"{count}, pinned", stack.enter_context(hosted(arguments.directory, count))))
                pin(hosts[-1].target)
        uvloop.run(take_turns(hosts, arguments))
        return report(hosts)


if __name__ == "__main__":
    sys.exit(main())
