"""What a round of checks does with an undecided half message. Pure: the time is a parameter."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from orbitmq.broker.transactions.half import Half

HOUR_MS = 3_600_000


class CheckAction(Enum):
    """The four actions."""

    DISCARD = auto()  # checked too often, or too old
    WAIT = auto()  # too young, and so are all that follow: the round ends
    SPARE = auto()  # within its immunity time; copied, so that the queue can advance
    CHECK = auto()  # send a check to a producer


@dataclass(frozen=True)
class CheckLimits:
    """From the options."""

    timeout_ms: int
    checks_max: int
    age_max_ms: int


def action_for(half: Half, limits: CheckLimits, started_ms: int, now_ms: int) -> CheckAction:
    """`started_ms`: start of the round. Copies made since then wait for the next one, so that a producer has the time
    of a round for its last response, too.
    """
    age_ms = now_ms - half.unit.born_timestamp
    if half.unit.store_timestamp >= started_ms:
        return CheckAction.WAIT
    if half.checks >= limits.checks_max or age_ms > limits.age_max_ms:
        return CheckAction.DISCARD
    immunity_ms = half.immunity_ms(limits.timeout_ms)
    if immunity_ms is not None:
        return CheckAction.SPARE if age_ms < immunity_ms else CheckAction.CHECK
    # A negative age comes from a machine whose clock is wrong.
    return CheckAction.WAIT if 0 <= age_ms < limits.timeout_ms else CheckAction.CHECK


def due_ms(half: Half, limits: CheckLimits) -> int:
    """The time from which a round checks the message."""
    wait_ms = half.immunity_ms(limits.timeout_ms)
    return half.unit.born_timestamp + (limits.timeout_ms if wait_ms is None else wait_ms)
