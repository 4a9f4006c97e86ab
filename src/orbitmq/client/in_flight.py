"""Limits the sends in flight, by their number and by their bytes; further ones wait in order.

Without the limit, thousands of sends in a burst would compete for the broker and for this process, and each would spend
its time limit waiting for the others. Knows no message and no broker.
"""

from __future__ import annotations

import asyncio
from collections import deque


class InFlightLimit:
    """First come, first served. For one event loop."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._count = 0
        self._bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def __str__(self) -> str:
        return f"{self._count} of at most {self._count_max} are in flight"

    def try_enter(self, size: int) -> bool:
        """Whether `size` more bytes may be in flight now. If so, `leave` must follow; if not, call `enter`."""
        if self._waiting or (self._count and not self._has_room(size)):
            return False
        self._count += 1
        self._bytes += size
        return True

    async def enter(self, size: int, ends: float | None = None) -> None:
        """Return when `size` more bytes may be in flight; `leave` must follow, unless this is cancelled. TimeoutError
        when there is no room before `ends` (loop time).
        """
        if self.try_enter(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            if ends is None:
                await turn
            else:
                async with asyncio.timeout_at(ends):
                    await turn
        except (asyncio.CancelledError, TimeoutError):
            if turn.done() and not turn.cancelled():  # its turn came together with the cancellation or the end
                self.leave(size)
            raise

    def leave(self, size: int) -> None:
        """A send that had entered is finished: the next ones may start."""
        self._count -= 1
        self._bytes -= size
        while self._waiting:
            waiting_size, turn = self._waiting[0]
            if not turn.done():
                if not self._has_room(waiting_size):
                    return
                self._count += 1
                self._bytes += waiting_size
                turn.set_result(None)
            self._waiting.popleft()

    def _has_room(self, size: int) -> bool:
        """A body larger than the limit is sent alone."""
        return self._count == 0 or (self._count < self._count_max and self._bytes + size <= self._bytes_max)
