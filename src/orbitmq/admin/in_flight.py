"""Numbered messages between two ends: which were stored and have not come, and which came for the first time. Pure.

A message comes more than once, and one whose send failed may come all the same: neither may stand for one that is lost.
"""

from __future__ import annotations

UNDERWAY_MAX = 1_000_000
"""So many are kept, some 100 MB: a listener that is so far behind is not timed, it is overrun."""


class Underway:
    """What is between the ends. What has been acknowledged and has come is forgotten, and what failed is, too."""

    def __init__(self) -> None:
        self._next = 0
        self._sending: dict[int, float | None] = {}
        """Not answered yet -> when it came, if it has already."""
        self._stored: dict[int, float] = {}
        """Acknowledged and not come -> when it was due."""

    @property
    def is_full(self) -> bool:
        return len(self._sending) + len(self._stored) >= UNDERWAY_MAX

    @property
    def is_empty(self) -> bool:
        return not self._stored

    def begin(self) -> int:
        """The number of the next message, which is being sent."""
        self._next += 1
        self._sending[self._next] = None
        return self._next

    def stored(self, number: int, due: float) -> float | None:
        """It was acknowledged. Tells when it came, if it has already."""
        came = self._sending.pop(number)
        if came is None:
            self._stored[number] = due
        return came

    def failed(self, number: int) -> None:
        """Nobody knows whether it was stored: it is not missed, and does not count when it comes."""
        del self._sending[number]

    def came(self, number: int, now: float) -> float | None:
        """Tells when it was due, if it was acknowledged before and comes for the first time."""
        if number in self._sending and self._sending[number] is None:
            self._sending[number] = now
        return self._stored.pop(number, None)

    def missing(self, since: float) -> int:
        """Of those that were due `since` then: acknowledged and not come."""
        return sum(due >= since for due in self._stored.values())
