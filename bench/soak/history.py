"""What is written down during a campaign, one JSON object a line, by the clients and by who does the faults.

Times are nanoseconds of the machine's monotonic clock, which all processes share. A file is only ever appended to; a
last line without its end belongs to a process that was killed while it wrote.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec

NOTHING = -1  # of an offset or a place that nobody was told
SEND_OK = "SEND_OK"
ACKED, TRIED, LEFT = "acked", "tried", "left"

E = TypeVar("E")


def now() -> int:
    """In the time of a history."""
    return time.monotonic_ns()


class Sent(msgspec.Struct, frozen=True, tag_field="event", tag="sent"):
    """One send that was attempted once. `status` is that of the receipt; with an error it is empty, and the message
    may be stored or not.
    """

    key: str
    sender: str
    broker: str
    queue: int
    begun: int
    ended: int
    status: str = ""
    offset: int = NOTHING
    place: int = NOTHING
    error: str = ""


class Timed(msgspec.Struct, frozen=True, tag_field="event", tag="timed"):
    """A send of a timer message, as `Sent`; `due_ms` is its time in milliseconds since the epoch."""

    key: str
    broker: str
    due_ms: int
    begun: int
    ended: int
    status: str = ""
    place: int = NOTHING
    error: str = ""


class Rang(msgspec.Struct, frozen=True, tag_field="event", tag="rang"):
    """A timer message that a listener got, where it lies, and when its broker put it there."""

    key: str
    broker: str
    queue: int
    offset: int
    stored_ms: int


class Posted(msgspec.Struct, frozen=True, tag_field="event", tag="posted"):
    """A send to the topic of POP consumption, as `Sent`; `by` says which client it was."""

    key: str
    broker: str
    by: str
    begun: int
    ended: int
    status: str = ""
    error: str = ""


class Popped(msgspec.Struct, frozen=True, tag_field="event", tag="popped"):
    """A delivery by POP, written down once its member was through with it. `copy` says where it lay: kind of topic,
    queue and offset; `times` how often it had been redelivered before. The broker handed it out at `popped`, and may
    redeliver it from `due` on. The member heard of it at `at`, and at `decided` how its last request ended.
    """

    key: str
    broker: str
    by: str
    copy: str
    times: int
    popped: int
    due: int
    at: int
    decided: int
    fate: str
    """ACKED: the broker confirmed it in time. TRIED: late, or without a response. LEFT: not acknowledged."""


class Delivered(msgspec.Struct, frozen=True, tag_field="event", tag="delivered"):
    """A message that a listener got, and where it says it lies."""

    key: str
    broker: str
    queue: int
    offset: int
    at: int
    place: int = NOTHING
    member: int = 0


class Progress(msgspec.Struct, frozen=True, tag_field="event", tag="progress"):
    """How far a node says that the group is in a queue."""

    node: str
    queue: int
    offset: int
    at: int


class Copied(msgspec.Struct, frozen=True, tag_field="event", tag="copied"):
    """Up to where the log on a slave's disk held whole messages; it was looked at after `at`."""

    node: str
    end: int
    at: int


class Fault(msgspec.Struct, frozen=True, tag_field="event", tag="fault"):
    """What was done to a node or to its link, and from when to when it was felt: until it served again."""

    kind: str
    target: str
    begun: int
    ended: int


class Promoted(msgspec.Struct, frozen=True, tag_field="event", tag="promoted"):
    """A slave became the master of its name: `node`, whose log ended at `log_end`, when `former` had been killed, or
    frozen, by `killed`. At `ended` the former one was a slave, `emptied` when it had messages of its own.
    """

    broker: str
    node: str
    former: str
    killed: int
    log_end: int
    ended: int
    forced: bool
    emptied: bool
    role: str = ""
    """What the command said it gets."""
    thawed: bool = False
    """The former one was not killed but frozen; it went on after the promotion."""


class Probe(msgspec.Struct, frozen=True, tag_field="event", tag="probe"):
    """A request at a node that must serve nothing, and whether it was `served`: a former master that has thawed, or a
    slave whose log differs, says `why`.
    """

    node: str
    why: str
    request: str
    served: bool
    at: int


class Worked(msgspec.Struct, frozen=True, tag_field="event", tag="worked"):
    """A worker has done its work with a message: nothing of it is lost with the worker."""

    key: str
    worker: str
    at: int


class Moved(msgspec.Struct, frozen=True, tag_field="event", tag="moved"):
    """A member of the group came (`begun` to `ended`, when it works), or went."""

    member: int
    came: bool
    begun: int
    ended: int


Event: TypeAlias = (
    Sent | Timed | Rang | Posted | Popped | Delivered | Progress | Copied | Fault | Promoted | Probe | Worked | Moved
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode


class Journal:
    """A history being written; each event is with the kernel before `add` returns. For any thread."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, event: Event) -> None:
        os.write(self._descriptor, _encode(event) + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


class Reading:
    """A history that may still be written; `more` are the events since the last question."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_to = 0

    def more(self) -> list[Event]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            whole, newline, _unfinished = file.read().rpartition(b"\n")
        self._read_to += len(whole) + len(newline)
        return [_decode(line) for line in whole.splitlines()]


def of_kind(events: Iterable[Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]
