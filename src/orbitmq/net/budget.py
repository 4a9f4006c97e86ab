"""The memory that incomplete frames of all connections may take together.

Each connection holds at most one incomplete frame of 16 MiB; a thousand peers that all stop in the middle of one would
hold more than most machines have. Knows no connection.
"""

from __future__ import annotations

PENDING_MAX = 1 << 30  # bytes: 64 of the largest frames, and far more than frames on their way ever are
COUNTED_FROM = 64 << 10  # bytes: less is what any connection may hold between two reads


class FrameBudget:
    """What is taken, of what may be."""

    def __init__(self, limit: int = PENDING_MAX) -> None:
        self._limit = limit
        self.taken = 0

    def change(self, before: int, now: int) -> bool:
        """A connection holds `now` bytes instead of `before`; False when that is more than there is."""
        self.taken += now - before
        return now <= before or self.taken <= self._limit
