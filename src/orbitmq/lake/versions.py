"""For how long older versions of a lake are kept, and which ones are old enough to go. Pure.

A table stores the duration in a property of its format, so that all jobs and other engines keep to it. A version is old
from the moment that the next one replaces it: the reader who opened it last did so shortly before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from orbitmq.errors import LakeError

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
KEEP_MS = 7 * DAY_MS  # where a table says nothing, as Delta does
DURATION = r"[1-9]\d{0,5}[hd]"
_UNITS = {"d": DAY_MS, "h": HOUR_MS}
_INTERVAL = re.compile(r"(?:interval\s+)?(\d+)\s+(millisecond|second|minute|hour|day|week)s?", re.IGNORECASE)
_INTERVAL_MS = {
    "millisecond": 1, "second": 1000, "minute": 60_000, "hour": HOUR_MS, "day": DAY_MS, "week": 7 * DAY_MS,
}  # fmt: skip


def duration_ms(text: str) -> int:
    """Milliseconds of a text that matches DURATION, such as `36h` or `7d`."""
    return int(text[:-1]) * _UNITS[text[-1]]


def duration_text(milliseconds: int) -> str:
    """The same the other way round, in the largest unit without a remainder. Less than hours is rounded up."""
    hours = -(-milliseconds // HOUR_MS)
    return f"{hours}h" if hours % 24 else f"{hours // 24}d"


def interval(milliseconds: int) -> str:
    """A duration as properties of Delta write it."""
    return f"interval {milliseconds // 1000} seconds"


def interval_ms(text: str) -> int:
    """Milliseconds of such a property. LakeError for one that cannot be read."""
    found = _INTERVAL.fullmatch(text.strip())
    if found is None:
        raise LakeError(f"{text!r} is no interval of time; set it again with orbitmq pipeline compact --keep-versions")
    return int(found[1]) * _INTERVAL_MS[found[2].lower()]


def replaced_before(history: Sequence[tuple[int, int]], time_ms: int) -> set[int]:
    """The versions that another one replaced before `time_ms`. `history` has each version and the time since when it is
    the current one, in order; the last one still is. A version may be in it more than once, after a rollback."""
    kept = {version for (version, _), (_, until_ms) in pairwise(history) if until_ms >= time_ms}
    return {version for version, _ in history[:-1]} - kept - {version for version, _ in history[-1:]}
