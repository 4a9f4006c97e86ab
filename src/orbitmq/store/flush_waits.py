"""Callers that wait for the log to be on disk, or at a slave, up to an offset.

All that wait when a flush begins are called back together after it: the group commit of SYNC_FLUSH. `CommitGroup`
decides how long a flush waits for more of them.
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

# Of those called back and those waiting: with two thirds a flush waits as long as it takes itself if messages arrive
# evenly.
SHARE_AWAITED: Final = (2, 3)
LINGER_FLUSHES: Final = 4  # multiple of the last flush's duration: on a busy machine senders take that long
LINGER_MAX_S: Final = 0.003  # a disk that takes longer than that is used as often as it can be


class CommitGroup:
    """How long a flush waits for more messages.

    A flush costs the processor and the disk much the same for one message and for many. Senders that were called back
    send their next message soon after; a flush that begins with the first of them leaves the others to the next one,
    and there are twice as many flushes as needed. So after a flush the next one waits until `SHARE_AWAITED` of the
    senders called back and of new ones have sent, but no longer than `LINGER_FLUSHES` and `LINGER_MAX_S` allow. A
    single sender never waits. With 64 senders on two cores that saves a fifth of the broker's CPU, and responses are no
    later, since they wait for the processor; on an idle machine a response may be up to `LINGER_MAX_S` later.

    `come` is for the thread that appends, the rest for the one that flushes; each counter has one thread that writes
    it.
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
        """How long to wait for more: 0 if it is time to flush, None if no caller waits."""
        if self._came - self._taken >= self._goal:
            return 0.0
        left_s = self._deadline_s - self._timer()
        if left_s > 0:
            return left_s
        self._goal = 1  # before the last check of arrivals: a later arrival finds the goal set
        return 0.0 if self._came != self._taken else None

    def begin(self) -> None:
        """A flush begins; later arrivals are not part of it."""
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
        if goal > 1:  # otherwise the first arrival meets it
            self._deadline_s += min((now_s - self._began_s) * LINGER_FLUSHES, LINGER_MAX_S)
        self._goal = goal


class FlushWaits:
    """Callers that wait for the log to be on disk up to an offset. Used by the thread that appends, in order of
    offsets.

    There are at most as many as sends in flight. All have the same timeout, so the first expires first.

    Invariant: offsets never decrease from one to the next. After the end of the log is cut, call `give_up_behind`.
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
        """Call back those whose timeout has passed; their messages may still become durable."""
        now_ms = self._clock.now_ms()
        while self._waiting and self._waiting[0][1] <= now_ms:
            self._waiting.popleft()[2](False)

    def give_up_behind(self, end: PhysicalOffset) -> None:
        """The log was cut to `end`. Callers that wait for an offset after it would block later ones: they fail now."""
        gone = []
        while self._waiting and self._waiting[-1][0] > end:
            gone.append(self._waiting.pop()[2])
        for callback in reversed(gone):
            callback(False)

    def give_up(self) -> None:
        """The disk failed: all waiting callers fail."""
        while self._waiting:
            self._waiting.popleft()[2](False)
