"""Who waits for the log to be on disk, or at a slave, up to an offset.

All who wait for their message, and came before a flush began, are told together after it: that is the group commit of
SYNC_FLUSH. How many that are is decided by `CommitGroup`.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from orbitmq.runtime.clock import Clock
from orbitmq.store.positions import PhysicalOffset

FlushCallback = Callable[[bool], object]

# Of those who were told and those who wait: with two thirds a flush waits as long as it takes itself when messages come
# evenly, whoever they are from.
SHARE_AWAITED: Final = (2, 3)
LINGER_FLUSHES: Final = 4  # so many times what the last flush took: on a machine that is busy, senders take that long
LINGER_MAX_S: Final = 0.003  # a disk that takes longer than that is used as often as it can be


class CommitGroup:
    """How long a flush waits for more messages to take along.

    A flush costs the processor and the disk much the same, however many messages it takes along. Those whom one has
    told come back with their next message soon after; a flush that begins with the first of them leaves the others to
    the one after it, and there are twice as many flushes as needed. So after a flush the next one waits until
    `SHARE_AWAITED` have come of those it told and of those who came meanwhile, but no longer than `LINGER_FLUSHES` and
    `LINGER_MAX_S` say. Whoever sends alone is never kept waiting. With 64 senders on two cores that saves a fifth of
    the broker's CPU, and answers come no later: there the processor is what they wait for. Where it has time to spare,
    an answer may come up to `LINGER_MAX_S` later.

    `come` is for the thread that appends, all else for the one that flushes; each counter has one thread that writes.
    """

    def __init__(self, timer: Callable[[], float] = time.perf_counter) -> None:
        self._timer = timer
        self._came = 0
        self._taken = 0
        self._goal = 1
        self._told = 0
        self._began_s = 0.0
        self._deadline_s = 0.0

    def come(self) -> bool:
        """One more waits; whether it is time to wake the thread that flushes."""
        self._came += 1
        return self._came - self._taken >= self._goal

    def linger_s(self) -> float | None:
        """How long to wait for more: 0 when it is time to flush, None when nobody waits."""
        if self._came - self._taken >= self._goal:
            return 0.0
        left_s = self._deadline_s - self._timer()
        if left_s > 0:
            return left_s
        self._goal = 1  # before the last look at who came: who comes after that look finds the goal met
        return 0.0 if self._came != self._taken else None

    def begin(self) -> None:
        """A flush begins; who comes from now on is not taken along."""
        came = self._came
        self._told, self._taken = came - self._taken, came
        self._goal = sys.maxsize
        self._began_s = self._timer()

    def end(self) -> None:
        """The flush has ended."""
        now_s = self._timer()
        part, whole = SHARE_AWAITED
        goal = max(1, (self._told + self._came - self._taken) * part // whole)
        self._deadline_s = now_s
        if goal > 1:  # else whoever comes first meets it
            self._deadline_s += min((now_s - self._began_s) * LINGER_FLUSHES, LINGER_MAX_S)
        self._goal = goal


class FlushWaits:
    """Those who wait for the log to be on disk up to an offset. Used by the thread that appends, in order of offsets.

    There are no more of them than sends under way. All have the same patience, so the first is due first.

    Invariant: offsets do not fall from one to the next. Who takes the end of the log back calls `give_up_behind`.
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

    def give_up_behind(self, end: PhysicalOffset) -> None:
        """The log ends at `end` now. What lay behind it is gone, and who goes on to wait for it would keep those from
        being told who come after it.
        """
        gone = []
        while self._waiting and self._waiting[-1][0] > end:
            gone.append(self._waiting.pop()[2])
        for callback in reversed(gone):
            callback(False)

    def give_up(self) -> None:
        """The disk failed: nobody who waits will get what it waits for."""
        while self._waiting:
            self._waiting.popleft()[2](False)
