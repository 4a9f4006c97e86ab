"""How often a peer may do what costs it less than us: a burst, and so many a second. Pure: the caller has the clock."""

from __future__ import annotations


class Allowance:
    """`burst` at once, `per_second` in the long run."""

    def __init__(self, burst: int, per_second: int) -> None:
        self._burst = float(burst)
        self._per_second = float(per_second)
        self._left = float(burst)
        self._at = 0.0

    def spend(self, now: float) -> bool:
        """One more; `now` is seconds. False if it is too many."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second) - 1.0
        self._at = now
        return self._left >= 0.0
