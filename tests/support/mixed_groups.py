"""Groups whose members are Java's and orbitmq's clients: who hosts them, what they report, how they come and go.

A group has up to four members, each in a seat: two of Java, two of orbitmq, of either kind one that will be killed.
Knows no broker and asserts nothing.
"""

from __future__ import annotations

import functools
import json
import shutil
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from orbitmq.client import MessageQueue
from orbitmq.client.core.allocation import allocate
from tests.support import python_members
from tests.support.java_rocketmq import ROCKETMQ_4, ROCKETMQ_5, SMALL_JVM, java_command
from tests.support.process import ChildProcess

ROOT = Path(__file__).parents[2]
TOPIC = "shared"
BROKERS = ("east@a", "west@b")
QUEUES_A_BROKER = 4
QUEUES = tuple(f"{broker}:{number}" for broker in BROKERS for number in range(QUEUES_A_BROKER))

Kind = Literal["push", "orderly", "lite"]
Seat = Literal["java", "python", "doomed-java", "doomed-python"]
ROOMS: Mapping[Seat, str] = {"java": "east", "python": "west", "doomed-java": "west", "doomed-python": "east"}


class Group(NamedTuple):
    """What its members agree on."""

    strategy: str
    kind: Kind

    @property
    def name(self) -> str:
        return f"{self.strategy}-{self.kind}"


# Each kind and each strategy: what gives queues to members does not know how they read them.
GROUPS = (
    Group("AVG", "push"), Group("AVG", "orderly"), Group("AVG", "lite"),
    Group("AVG_BY_CIRCLE", "orderly"),
    Group("CONSISTENT_HASH", "push"),
    Group("CONFIG", "push"),
    Group("MACHINE_ROOM", "push"),
    Group("MACHINE_ROOM_NEARBY-AVG", "lite"),
)  # fmt: skip
ONE_A_STRATEGY = tuple({group.strategy: group for group in GROUPS}.values())
"""AVG's is the one that pulls, AVG_BY_CIRCLE's the one that keeps the order."""


class Step(NamedTuple):
    """One change of all groups. `share` is what the member reads where a configuration decides."""

    verb: Literal["join", "leave", "kill"]
    seat: Seat
    share: Sequence[str] = ()


STEPS = (
    Step("join", "java", QUEUES[0:2]),
    Step("join", "python", QUEUES[4:6]),
    Step("join", "doomed-java", QUEUES[2:4]),
    Step("join", "doomed-python", QUEUES[6:8]),
    Step("leave", "java"),
    Step("kill", "doomed-java"),
    Step("join", "java", QUEUES[0:4]),
    Step("kill", "doomed-python"),
    Step("leave", "python"),
    Step("join", "python", QUEUES[4:8]),
)
LAST_STEPS = (Step("leave", "java"), Step("leave", "python"))
"""When everything is consumed."""


class Delivery(NamedTuple):
    seat: Seat
    queue: str
    offset: int
    at: int  # milliseconds since the epoch


@dataclass
class Course:
    """What happened to one group of one system; `queues` and `client_ids` are those of the members of now."""

    group: Group
    queues: dict[Seat, list[str]] = field(default_factory=dict)
    client_ids: dict[Seat, str] = field(default_factory=dict)
    shares: dict[Seat, Sequence[str]] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    seen: set[tuple[str, int]] = field(default_factory=set)
    """Queue and offset of every message that somebody got."""
    heard: set[Seat] = field(default_factory=set)
    """Who got a message since the last quiet point."""
    changed_at: list[int] = field(default_factory=list)
    owners: list[dict[str, Seat]] = field(default_factory=list)
    """After each step who reads which queue, as the members say."""
    reported: dict[Seat, list[tuple[int, frozenset[str]]]] = field(default_factory=dict)
    """When which member said what it reads, with every change of it."""
    told: list[list[tuple[str, Seat]]] = field(default_factory=list)
    """The same as brokers tell it to tools; empty for pull consumers, which do not say."""
    ends: dict[str, int] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)

    def expected(self) -> dict[Seat, list[str]]:
        """What the strategy gives to each of the present members."""
        if self.group.strategy == "CONFIG":
            return {seat: sorted(self.shares[seat]) for seat in self.client_ids}
        ids = tuple(self.client_ids.values())
        return {seat: _allocated(self.group, own, ids) for seat, own in self.client_ids.items()}

    def is_quiet(self) -> bool:
        """Whether each member has what the strategy gives it."""
        return {seat: sorted(self.queues.get(seat, [])) for seat in self.client_ids} == self.expected()

    def all_at_work(self) -> bool:
        """Whether every member that has queues got a message since the last quiet point."""
        return self.heard >= set(self.owners[-1].values())

    def is_complete(self) -> bool:
        """Whether every message up to the ends was delivered."""
        return len(self.seen) >= sum(self.ends.values())

    def readers(self) -> list[tuple[str, Seat]]:
        """Each queue with each member that says it reads it."""
        return [(queue, seat) for seat in self.client_ids for queue in self.queues[seat]]

    def reads(self, seat: Seat, queues: Sequence[str], at: int) -> None:
        self.queues[seat] = list(queues)
        self.reported.setdefault(seat, []).append((at, frozenset(queues)))

    def held(self, seat: Seat, queue: str, since: int, until: int) -> set[bool]:
        """Whether the member read the queue, by each of its reports from the one in force at `since` to the one that
        follows `until`: members look at what they read after it has changed.
        """
        reports = self.reported.get(seat, [])
        first, last = (bisect_right(reports, at, key=lambda report: report[0]) for at in (since, until))
        return {queue in queues for _, queues in reports[max(0, first - 1) : last + 1]}

    def changed_hands(self, queue: str, since: int, until: int) -> bool:
        """Whether a member got or lost the queue then: also without a step, where a busy machine made a broker or a
        client give up a connection.
        """
        return any(len(self.held(seat, queue, since, until)) > 1 for seat in self.reported)

    def left(self, seat: Seat) -> None:
        self.client_ids.pop(seat, None)
        if self.queues.pop(seat, None):
            self.reported[seat].append((round(time.time() * 1000), frozenset()))


@functools.cache
def _allocated(group: Group, own: str, ids: tuple[str, ...]) -> list[str]:
    """Asked for over and over while members come and go."""
    strategy = python_members.strategy(group.strategy, TOPIC)
    all_queues = [queue_named(name) for name in QUEUES]
    return sorted(python_members.name_of(one) for one in allocate(strategy, group.name, own, all_queues, ids))


Courses = Mapping[tuple[str, str], Course]  # by system and group


class Host:
    """A process with members in one seat of many groups."""

    def __init__(self, seat: Seat, command: Sequence[str], home: Path) -> None:
        self.seat: Seat = seat
        self._home = home
        self._read_to = 0
        self._is_killed = False
        self.process = ChildProcess(command, output=home / "rows.jsonl", cwd=ROOT, listens=True)

    def join(self, system: str, namesrv: str, group: Group, share: Iterable[str]) -> None:
        words = {
            "member": f"{system}/{group.name}",
            "namesrv": namesrv,
            "group": group.name,
            "topic": TOPIC,
            "kind": group.kind,
            "strategy": group.strategy,
            "instance": f"{ROOMS[self.seat]}-{self.seat}-{system}",  # Java shares a name's client, whatever name server
            "queues": ",".join(share),
        }
        self.process.tell(" ".join(["join", *(f"--{name} {value}" for name, value in words.items() if value)]))

    def kill(self) -> None:
        self.process.kill()
        self._is_killed = True

    def leave(self, system: str, group: Group) -> None:
        self.process.tell(f"leave --member {system}/{group.name}")

    def rows(self) -> list[dict[str, Any]]:
        """What it printed since the last call; the rest of a line that is not finished comes with a later one."""
        with self.process.output_path.open("rb") as file:
            file.seek(self._read_to)
            lines, _, _ = file.read().rpartition(b"\n")
        self._read_to += len(lines) + bool(lines)
        return [json.loads(line) for line in lines.splitlines()]

    def report(self, courses: Courses) -> bool:
        """Enter what it printed into the courses of its groups; whether that was anything. ProcessFailed when it has
        ended by itself.
        """
        if self.process.exit_code is not None and not self._is_killed:
            raise self.process.failed(f"ended with {self.process.exit_code}")
        rows = self.rows()
        for row in rows:
            if "member" not in row:
                continue
            system, _, group = row["member"].partition("/")
            course = courses[system, group]
            match row["event"]:
                case "joined":
                    course.client_ids[self.seat] = row["clientId"]
                case "left":
                    course.left(self.seat)
                case "queues":
                    course.reads(self.seat, row["queues"], row["at"])
                case _:
                    course.deliveries.append(Delivery(self.seat, row["queue"], row["offset"], row["at"]))
                    course.heard.add(self.seat)
                    course.seen.add((row["queue"], row["offset"]))
        return bool(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        shutil.rmtree(self._home, ignore_errors=True)


def java_host(seat: Seat, version: str) -> Host:
    home = Path(tempfile.mkdtemp(prefix="members-"))
    command = java_command(version, "orbitmq.drivers.Main", home, jvm=SMALL_JVM, process="driver")
    return Host(seat, [*command, "members"], home)


def python_host(seat: Seat) -> Host:
    home = Path(tempfile.mkdtemp(prefix="members-"))
    return Host(seat, [sys.executable, "-m", python_members.__name__], home)


def hosts() -> dict[tuple[Seat, bool], Host]:
    """By seat, and whether its members pull. The Java member to be killed is of 5.3.3; that pulls with a request which
    brokers of 4.9 do not know, so that pull consumers are of 4.9.7 there, too.
    """
    java, python, doomed = java_host("java", ROCKETMQ_4), python_host("python"), python_host("doomed-python")
    found: dict[tuple[Seat, bool], Host] = {}
    for pulls in (False, True):
        doomed_java = java_host("doomed-java", ROCKETMQ_4 if pulls else ROCKETMQ_5)
        for host in (java, python, doomed, doomed_java):
            found[host.seat, pulls] = host
    return found


def queue_named(name: str) -> MessageQueue:
    return python_members.queue_of(TOPIC, name)
