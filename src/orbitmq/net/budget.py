"""What all connections of a server may use together: the memory of incomplete frames, requests in progress, and
responses that peers do not read; and the time of a turn.

Each connection has its own limits, but a thousand peers at their limits would use more memory than most machines have.
When the total is exceeded the largest users are disconnected, so that a peer with one large message is not affected by
others. Knows of a connection only how to close it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol

from orbitmq.runtime.refusals import Limit, Refusals

_log = logging.getLogger(__name__)

# bytes of each kind: 64 of the largest frames, and more than is in flight in normal operation
MEMORY_MAX: Final = 1 << 30
TURN_SECONDS: Final = 0.0005  # some fifty sends, or fifteen pulls: about what a send alone takes there and back
COUNTED_FROM: Final = 64 << 10  # bytes of one kind: less is what any connection may hold between two reads


class Holder(Protocol):
    """A user of memory."""

    @property
    def address(self) -> str: ...
    def abort(self) -> None: ...


class Budget:
    """The use of one kind and its limit."""

    def __init__(self, limit: int, kind: Limit, refusals: Refusals) -> None:
        self._limit = limit
        self.kind = kind
        self._refusals = refusals
        self._held: dict[Holder, int] = {}  # least recently changed first
        self.taken = 0

    @property
    def is_tight(self) -> bool:
        """Whether more than half is in use: time to stop reading from large users, before any is disconnected."""
        return self.taken > self._limit // 2

    def hold(self, holder: Holder, size: int) -> None:
        """`holder` uses `size` bytes now, instead of its earlier size. If that is too much, the largest users are
        disconnected: `holder` may be one of them.
        """
        self.taken += size - self._held.pop(holder, 0)
        if size:
            self._held[holder] = size
        while self.taken > self._limit:
            self._cut_off(max(self._held, key=self._held.__getitem__))

    def _cut_off(self, holder: Holder) -> None:
        size = self._held.pop(holder)
        text = "event=cut_off peer=%s holds=%s bytes=%d all=%d limit=%d"
        self._refusals.note(self.kind, _log, text, holder.address, self.kind, size, self.taken, self._limit)
        self.taken -= size
        holder.abort()


class TurnTime:
    """How long connections with many requests may take together in one turn of the event loop, so that one with a
    single request does not wait for all of them. Those that get no time wait in a line.
    """

    def __init__(self) -> None:
        self._ends = 0.0
        self._has_begun = False
        self._waiting: deque[Callable[[], object]] = deque()

    def ends(self, loop: asyncio.AbstractEventLoop, now: float) -> float:
        """When nothing more should begin in this turn; `now` is monotonic time."""
        if not self._has_begun:
            self._ends = now + TURN_SECONDS
            self._has_begun = True
            loop.call_soon(self._end, loop)
        return self._ends

    def wait(self, loop: asyncio.AbstractEventLoop, go_on: Callable[[], object]) -> None:
        """Have `go_on` called in a later turn, after those that wait already."""
        self._waiting.append(go_on)
        self.ends(loop, monotonic())

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        """The turn is over. The next one belongs to those that wait."""
        self._has_begun = False
        try:
            for _ in range(len(self._waiting)):
                self._waiting.popleft()()
                if self._has_begun and monotonic() > self._ends:
                    break
        finally:
            if self._waiting:
                self.ends(loop, monotonic())


class Budgets:
    """One of each kind of memory, `limit` bytes each, and of time."""

    def __init__(self, limit: int = MEMORY_MAX, refusals: Refusals | None = None) -> None:
        refusals = refusals or Refusals()
        self.incomplete = Budget(limit, Limit.INCOMPLETE_BYTES, refusals)
        self.open = Budget(limit, Limit.OPEN_BYTES, refusals)
        self.unread = Budget(limit, Limit.UNREAD_BYTES, refusals)
        self.turn = TurnTime()
