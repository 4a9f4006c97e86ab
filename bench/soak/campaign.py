"""One campaign: the cluster runs, clients work, faults happen; then all is healed, and the checker judges.

Faults come from the plan in several lanes, so that some fall together; what is done to one node comes one after the
other. Everything that happened stays in `history` below the campaign's directory.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.soak import popping
from bench.soak.checker import Log, Verdict, abandoned, check, may_be_lost, surviving_posts, unheard, unpopped
from bench.soak.cluster import BROKERS, LOG_FILE_SIZE, NAME_SERVERS, PAIRS, Cluster
from bench.soak.disks import LogEnd, first_difference, read_log
from bench.soak.history import (
    Copied,
    Delivered,
    Event,
    Fault,
    Journal,
    Popped,
    Progress,
    Rang,
    Reading,
    Sent,
    Timed,
    Worked,
    now,
    of_kind,
)
from bench.soak.plan import WORKER, Step, plan
from bench.soak.workers import NAMES as WORKERS
from bench.soak.workers import Workers
from tests.support.process import ChildProcess, ProcessFailed

ROOT = Path(__file__).parents[2]
TOPIC, QUEUES = "Soak", 4
LOOK_S = 0.25  # between two looks at the slaves' logs
LACKS_SHOWN = 20  # the first tell what kind of thing is missing
HEALED_S = 120  # for everything to be delivered and copied after the last fault: a busy machine is slow, not wrong


@dataclass(frozen=True)
class Settings:
    """Of a campaign. It ends after `faults`, or when `seconds` are over. `hold_max` and `pause_max` are seconds."""

    seed: int
    faults: int
    seconds: float
    lanes: int = 3
    senders: int = 3
    members: int = 2
    """Of the group, that come and go beside one that stays."""
    with_java: bool = False
    """Whether the slave of one pair and the master of the other are RocketMQ's."""
    hold_max: float = 4.0
    pause_max: float = 2.0
    keeps_stores: bool = False
    """Whether a copy of each store is left below the campaign's directory: the disks themselves go with the cluster."""


@dataclass
class Outcome:
    """What there is to report."""

    settings: Settings
    verdict: Verdict
    events: list[Event]
    seconds: float
    logs: dict[str, Log] = field(default_factory=dict)
    """What each broker has left."""
    note: str = ""


def run(home: Path, settings: Settings) -> Outcome:
    """AssertionError when a node does not come back or the cluster does not heal; what is violated stands in the
    verdict.
    """
    began = time.monotonic()
    history = home / "history"
    history.mkdir(parents=True)
    journal = Journal(history / "faults.jsonl")
    with Cluster(home, TOPIC, with_java=settings.with_java) as cluster:
        with (
            _load(cluster, settings, history / "load.jsonl") as load,
            Workers(cluster.namesrv_address, TOPIC, history / "workers.jsonl") as workers,
        ):
            heard = [Reading(history / name) for name in ("load.jsonl", "workers.jsonl")]
            events: list[Event] = []
            wait = _Waiting(load, heard, events)
            wait.until(lambda: len({one.broker for one in of_kind(events, Delivered)}) == len(PAIRS), "both pairs work")
            if not settings.with_java:  # RocketMQ 4.9 knows no POP
                wait.until(lambda: _is_popping(of_kind(events, Popped)), "POP consumption has begun")
            with _looks(cluster, journal):
                _Faults(cluster, workers, settings, journal).run()
                cluster.wait_until_known()
                load.tell("enough")
                _heal(cluster, wait, events)
        cluster.stop()
        if settings.keeps_stores:
            for node in BROKERS:
                shutil.copytree(cluster.store(node), home / "stores" / node)
        for reading in (*heard, Reading(history / "faults.jsonl")):
            events += reading.more()
        events += cluster.probes
        logs = {node: read_log(cluster.store(node), TOPIC) for node in BROKERS}
        differences = {
            pair.name: first_difference(cluster.store(pair.master), cluster.store(pair.slave), logs[pair.slave].end)
            for pair in cluster.pairs.values()
        }
    verdict = check(events, PAIRS, logs, differences, TOPIC)
    return Outcome(settings, verdict, events, time.monotonic() - began, logs, cluster.note)


@contextmanager
def _load(cluster: Cluster, settings: Settings, history: Path) -> Iterator[ChildProcess]:
    nodes = ",".join(f"{node}={cluster.port(node)}" for node in BROKERS)
    fronts = {pair.name: f"{cluster.fronts.get(pair.master)},{cluster.fronts.get(pair.slave)}" for pair in PAIRS}
    arguments = {
        "namesrv": cluster.namesrv_address,
        "topic": TOPIC,
        "queues": QUEUES,
        "pairs": ",".join(pair.name for pair in PAIRS),
        "nodes": nodes,
        "senders": settings.senders,
        "members": settings.members,
        "timers": 0 if settings.with_java else 1,  # RocketMQ 4.9 delivers them at once
        "fronts": "" if settings.with_java else ";".join(f"{name}={ports}" for name, ports in fronts.items()),
        "seed": settings.seed,
        "history": history,
    }
    words = [str(word) for name, value in arguments.items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "bench.soak.load", *words]
    with ChildProcess(command, output=history.with_suffix(".out"), cwd=ROOT, listens=True) as process:
        yield process


def _is_popping(popped: list[Popped]) -> bool:
    """Whether the group has its place in every queue of both pairs, and has members there that speak gRPC."""
    brokers = {one.broker for one in popped if one.by == popping.GRPC}
    return len(popping.places(popped)) == len(PAIRS) * QUEUES and len(brokers) == len(PAIRS)


class _Waiting:
    """Waits for what the load tells, and keeps it."""

    def __init__(self, load: ChildProcess, heard: list[Reading], events: list[Event]) -> None:
        self._load, self._heard, self._events = load, heard, events

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            for reading in self._heard:
                self._events += reading.more()
            return condition()

        self._load.wait_for(look, HEALED_S, what)


def _heal(cluster: Cluster, wait: _Waiting, events: list[Event]) -> None:
    try:
        wait.until(lambda: not _lacks(cluster, events), "everything is delivered and copied")
    except ProcessFailed as error:
        lacks = _lacks(cluster, events)
        first = [*lacks[:LACKS_SHOWN], *([f"and {len(lacks) - LACKS_SHOWN} more"] if len(lacks) > LACKS_SHOWN else [])]
        raise ProcessFailed("\n".join([str(error), "what is not healed:", *first])) from None


def _lacks(cluster: Cluster, events: list[Event]) -> list[str]:
    """What is not healed yet, none when everything with a receipt was delivered, the group's progress is behind all
    of it, and slaves have the log.
    """
    came, worked = {one.key for one in of_kind(events, Delivered)}, {one.key for one in of_kind(events, Worked)}
    pairs, deaths = cluster.pairs, cluster.promotions
    sent = [one for one in of_kind(events, Sent) if not may_be_lost(one, one.place, pairs[one.broker], deaths)]
    ends: dict[tuple[str, int], int] = {}
    for one in sent:
        ends[one.broker, one.queue] = max(ends.get((one.broker, one.queue), 0), one.offset + 1)
    told = {(one.node, one.queue): one.offset for one in of_kind(events, Progress)}
    lacks = [
        f"{one.key} of {one.broker} queue {one.queue} offset {one.offset} is not delivered"
        for one in sent
        if one.status and one.key not in came
    ]
    timed = [one for one in of_kind(events, Timed) if not may_be_lost(one, one.place, pairs[one.broker], deaths)]
    lacks += [f"timer message {one} is not delivered" for one in unheard(timed, of_kind(events, Rang))]
    posted, popped = surviving_posts([*events, *deaths], PAIRS), of_kind(events, Popped)
    lacks += [f"{text}, is not delivered by POP" for text in unpopped(posted, popped)]
    lacks += [f"{text}, was left and is not redelivered" for text in abandoned(posted, popped)]
    lacks += [f"{one.key} of {one.broker} is not worked on" for one in sent if one.status and one.key not in worked]
    for (broker, queue), end in ends.items():
        node = pairs[broker].master
        if (offset := told.get((node, queue), 0)) < end:
            lacks += [f"the group's offset of {broker} queue {queue} at {node} is {offset} of {end}"]
    for pair in pairs.values():
        written, copied = _end_of(cluster, pair.master), _end_of(cluster, pair.slave)
        if written != copied:
            lacks += [f"the log of {pair.master} ends at {written}, of {pair.slave} at {copied}"]
    return lacks


def _end_of(cluster: Cluster, node: str) -> int:
    return LogEnd(cluster.store(node), LOG_FILE_SIZE).look()


@contextmanager
def _looks(cluster: Cluster, journal: Journal) -> Iterator[None]:
    """Look at the logs on disk again and again, whatever state the brokers are in; which are slaves changes."""
    stopped = threading.Event()
    logs = {node: LogEnd(cluster.store(node), LOG_FILE_SIZE) for node in BROKERS}

    def look() -> None:
        while not stopped.wait(LOOK_S):
            for node, log in logs.items():
                at = now()
                journal.add(Copied(node, log.look(), at))

    with ThreadPoolExecutor(1, "looks") as beside:
        looking = beside.submit(look)
        try:
            yield
        finally:
            stopped.set()
            looking.result()


class _Faults:
    """Does what the plan says, in lanes."""

    def __init__(self, cluster: Cluster, workers: Workers, settings: Settings, journal: Journal) -> None:
        self._cluster, self._workers, self._settings, self._journal = cluster, workers, settings, journal
        self._steps = plan(
            settings.seed,
            name_servers=NAME_SERVERS,
            targets={**cluster.targets(), WORKER: WORKERS},
            hold_max=settings.hold_max,
            pause_max=settings.pause_max,
        )
        self._left = settings.faults
        self._ends = time.monotonic() + settings.seconds
        self._drawing = threading.Lock()
        self._nodes = {node: threading.Lock() for node in (*NAME_SERVERS, *BROKERS, *WORKERS)}

    def run(self) -> None:
        with ThreadPoolExecutor(self._settings.lanes, "faults") as lanes:
            try:
                for lane in as_completed([lanes.submit(self._lane) for _ in range(self._settings.lanes)]):
                    lane.result()
            finally:
                self._left = 0  # a lane that fails ends the others, too

    def _lane(self) -> None:
        while (step := self._draw()) is not None:
            with self._held(step):
                self._do(step)
            time.sleep(step.pause)

    @contextmanager
    def _held(self, step: Step) -> Iterator[None]:
        """Alone with whom the step is done to; always in one order, so that no two wait for each other."""
        with ExitStack() as stack:
            for node in self._cluster.nodes_of(step):
                stack.enter_context(self._nodes[node])
            yield

    def _draw(self) -> Step | None:
        with self._drawing:
            if not self._left or time.monotonic() > self._ends:
                return None
            self._left -= 1
            return next(self._steps)

    def _do(self, step: Step) -> None:
        begun = now()
        if step.kind == WORKER:
            self._workers.restart(step.target)
            self._journal.add(Fault(step.kind, step.target, begun, now()))
            return
        try:
            self._cluster.begin(step)
            time.sleep(step.hold)
        finally:
            promoted = self._cluster.end(step)
            for node in self._cluster.nodes_of(step):
                self._journal.add(Fault(step.kind, node, begun, now()))
            if promoted is not None:
                self._journal.add(promoted)
