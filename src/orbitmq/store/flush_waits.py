"""Who waits for the log to be on disk, or at a slave, up to an offset.

All who wait for their message, and came before a flush began, are told together after it: that is the group commit of
SYNC_FLUSH.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from orbitmq.runtime.clock import Clock
from orbitmq.store.positions import PhysicalOffset

FlushCallback = Callable[[bool], object]


class FlushWaits:
    """Those who wait for the log to be on disk up to an offset. Used by the thread that appends, in order of offsets.

    There are no more of them than sends under way. All have the same patience, so the first is due first.
    """

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._waiting: deque[tuple[PhysicalOffset, int, FlushCallback]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def oldest_ms(self) -> int:
        """How long the first of them has waited, in milliseconds."""
        return self._clock.now_ms() - (self._waiting[0][1] - self._timeout_ms) if self._waiting else 0

    def add(self, offset: PhysicalOffset, callback: FlushCallback) -> None:
        """Call back with True once the log is on disk up to `offset`, with False when that fails or takes too long."""
        self._waiting.append((offset, self._clock.now_ms() + self._timeout_ms, callback))

    def reached(self, flushed: PhysicalOffset) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= flushed:
            waiting.popleft()[2](True)

    def expire(self) -> None:
        """Tell those whose time is up; what they wait for may still come."""
        now_ms = self._clock.now_ms()
        while self._waiting and self._waiting[0][1] <= now_ms:
            self._waiting.popleft()[2](False)

    def give_up(self) -> None:
        """The disk failed: nobody who waits will get what it waits for."""
        while self._waiting:
            self._waiting.popleft()[2](False)
