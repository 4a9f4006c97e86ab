"""Target positions of an offset reset, and what they mean for messages. Pure: no clock and no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from orbitmq.admin.time_texts import moment_ms
from orbitmq.errors import BadArgument, ConfigurationError
from orbitmq.operations.groups import END_OF_QUEUE


class Where(StrEnum):
    """What a target means."""

    TIME = "time"
    BEGIN = "begin"
    END = "end"
    OFFSET = "offset"
    SHIFT = "shift"


WORDS = {
    "begin": Where.BEGIN, "earliest": Where.BEGIN, "end": Where.END, "latest": Where.END, "now": Where.END,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """Where a queue's offset is to be. `value`: ms since the epoch, an offset, or messages forward (back below 0)."""

    where: Where
    value: int = 0

    @property
    def by_time(self) -> bool:
        """Brokers of every version find it themselves."""
        return self.where in (Where.TIME, Where.BEGIN, Where.END)

    @property
    def timestamp_ms(self) -> int:
        """The timestamp for requests to brokers."""
        return {Where.END: END_OF_QUEUE, Where.BEGIN: 0}.get(self.where, self.value)

    def __str__(self) -> str:
        if self.where is Where.TIME:
            return f"the first message since {self.value}"
        if self.where is Where.SHIFT:
            return f"{abs(self.value)} messages {'back' if self.value < 0 else 'on'}"
        return f"offset {self.value}" if self.where is Where.OFFSET else f"the {self.where} of its queues"


def target_of(to: str | None, offset: int | None, shift: int | None, now_ms: int) -> Target:
    """The target of one of the three: a word or a time, an offset, or how far. ConfigurationError for none or two."""
    if [to, offset, shift].count(None) != 2:
        raise ConfigurationError("set the target: one of --to, --offset and --shift")
    if offset is not None:
        return Target(Where.OFFSET, offset)
    if shift is not None:
        return Target(Where.SHIFT, shift)
    word = WORDS.get(to or "")
    return Target(word) if word else Target(Where.TIME, moment_ms(to or "", now_ms))


def wanted(target: Target, low: int, end: int, stored: int | None, found: int | None, *, force: bool) -> int | None:
    """The offset a queue is to have: within what the queue holds; `found` is what a search by time gave.

    Without `force` no offset is moved forward. None leaves the queue as it is: there is nothing to shift.
    """
    if target.where is Where.SHIFT and stored is None:
        return None
    chosen = {
        Where.TIME: found if found is not None else low,
        Where.BEGIN: low,
        Where.END: end,
        Where.OFFSET: target.value,
        Where.SHIFT: (stored or 0) + target.value,
    }[target.where]
    inside = min(max(chosen, low), end)
    return inside if force or stored is None else min(inside, stored)


def counted(low: int, end: int, before: int | None, after: int) -> tuple[int, int]:
    """Messages replayed and skipped, of those that still exist. A group without an offset replays and skips none."""
    if before is None:
        return 0, 0
    start, stop = min(max(before, low), end), min(max(after, low), end)
    return max(0, start - stop), max(0, stop - start)


def applied(before: int | None, after: int, now: int | None) -> bool:
    """Whether the group's offset `now` shows that the reset took effect: members continue from there immediately."""
    if now is None:
        return False
    if before is None or after >= before:
        return now >= after
    return now < before


def described(replayed: int, skipped: int) -> str:
    """What a step does to one queue."""
    if skipped:
        return f"skip {skipped} messages"
    return f"replay {replayed} messages" if replayed else "set offset"


def parsed_queues(texts: Iterable[str]) -> set[tuple[str, int]]:
    """`broker/3` or `broker:3`: queues by name of broker and id. AdminError for anything else."""
    found = set()
    for text in texts:
        name, _, number = text.replace(":", "/").rpartition("/")
        if not name or not number.isdecimal():
            raise BadArgument(f"{text!r} is no queue", "write it as broker-a/0")
        found.add((name, int(number)))
    return found
