"""Searches a queue for the first message of a time by the store times of single messages. Pure: the caller looks them
up, for one queue or for many in step."""

from __future__ import annotations

from typing import Final

BOUNDARY_SINCE: Final = 453  # V5_2_0: from here on brokers return a boundary, not the nearest message


class TimeSearch:
    """Finds the first offset from `low` on whose message is not before the time, `high` when all are.

    Look at the message at `at` and pass the result to `learn`, until `is_done`; then `low` is the result. The search
    starts at `near` with doubling steps, so it needs few messages when the result is close.
    """

    def __init__(self, low: int, high: int, near: int) -> None:
        self.low = low
        self._high = high
        self._first, self._end = low, high
        self._near = near
        self._step = 1

    @property
    def is_done(self) -> bool:
        return self.low >= self._high

    @property
    def at(self) -> int:
        """The offset to look at next."""
        if self._first < self.low and self._high < self._end:
            return (self.low + self._high) // 2
        return min(max(self._near, self.low), self._high - 1)

    def learn(self, *, is_before: bool) -> None:
        """Whether the message at `at` was stored before the time."""
        at = self.at
        if is_before:
            self.low, self._near = at + 1, at + self._step
        else:
            self._high, self._near = at, at - self._step
        self._step *= 2
