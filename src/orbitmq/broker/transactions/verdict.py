"""The verdict of a check on a pending half message. Pure: the caller passes the time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from orbitmq.broker.transactions.half import Half

HOUR_MS = 3_600_000


class Verdict(Enum):
    """The four things a round of checks does."""

    DISCARD = auto()  # checked too often, or too old
    WAIT = auto()  # too young, and so are all behind it: the round ends
    SPARE = auto()  # its sender must not be asked yet; copied, so that others get their turn
    CHECK = auto()  # send a check request


@dataclass(frozen=True)
class Limits:
    """From the options."""

    timeout_ms: int
    checks_max: int
    age_max_ms: int


def judge(half: Half, limits: Limits, started_ms: int, now_ms: int) -> Verdict:
    """`started_ms`: when the round began; copies made since then belong to the next one, so that a producer has a whole
    interval for its last response, too.
    """
    age_ms = now_ms - half.unit.born_timestamp
    if half.unit.store_timestamp >= started_ms:
        return Verdict.WAIT
    if half.checks >= limits.checks_max or age_ms > limits.age_max_ms:
        return Verdict.DISCARD
    immunity_ms = half.immunity_ms(limits.timeout_ms)
    if immunity_ms is not None:
        return Verdict.SPARE if age_ms < immunity_ms else Verdict.CHECK
    # A message with a birth time in the future was sent by a machine whose clock is wrong: its age is unknown.
    return Verdict.WAIT if 0 <= age_ms < limits.timeout_ms else Verdict.CHECK


def due_ms(half: Half, limits: Limits) -> int:
    """The time from which a round does something with the message."""
    wait_ms = half.immunity_ms(limits.timeout_ms)
    return half.unit.born_timestamp + (limits.timeout_ms if wait_ms is None else wait_ms)
