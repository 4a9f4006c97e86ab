"""Callbacks that wait until the log is on disk, or at a slave, up to an offset.

All that were added before a flush began are called together after it: the group commit of SYNC_FLUSH. `CommitGroup`
decides how many that are.
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

# Of the messages of the last flush and those that wait: with two thirds, and messages that arrive evenly, a flush waits
# as long as it takes itself.
SHARE_AWAITED: Final = (2, 3)
LINGER_FLUSHES: Final = 4  # times the duration of the last flush: on a busy machine senders take that long
LINGER_MAX_S: Final = 0.003  # a slower disk flushes as often as it can


class CommitGroup:
    """How long a flush waits for more messages.

    A flush costs processor and disk about the same, however many messages it covers. The senders it completes send
    their next message soon after; a flush that begins with the first of these leaves the others to the one after it,
    and there are twice as many flushes as needed. So after a flush the next one waits until `SHARE_AWAITED` of the
    completed and of the waiting have joined, limited by `LINGER_FLUSHES` and `LINGER_MAX_S`. A single sender never
    waits. With 64 senders on two cores that saves a fifth of the broker's CPU, and responses are no later: there the
    processor is the limit. Where it has time to spare, a response may be up to `LINGER_MAX_S` later.

    `join` is for the thread that appends, all else for the one that flushes; each counter is written by one thread.
    """

    def __init__(self, timer: Callable[[], float] = time.perf_counter) -> None:
        self._timer = timer
        self._joined = 0
        self._taken = 0
        self._goal = 1
        self._completed = 0
        self._began_s = 0.0
        self._deadline_s = 0.0

    def join(self) -> bool:
        """One more message waits; whether it is time to wake the thread that flushes."""
        self._joined += 1
        return self._joined - self._taken >= self._goal

    def linger_s(self) -> float | None:
        """How long to wait for more: 0 when it is time to flush, None when no message waits."""
        if self._joined - self._taken >= self._goal:
            return 0.0
        left_s = self._deadline_s - self._timer()
        if left_s > 0:
            return left_s
        self._goal = 1  # before the counter is read again: a message that joins after that meets the goal
        return 0.0 if self._joined != self._taken else None

    def begin(self) -> None:
        """A flush begins; it does not cover what joins from now on."""
        joined = self._joined
        self._completed, self._taken = joined - self._taken, joined
        self._goal = sys.maxsize
        self._began_s = self._timer()

    def end(self) -> None:
        """The flush has ended."""
        now_s = self._timer()
        part, whole = SHARE_AWAITED
        goal = max(1, (self._completed + self._joined - self._taken) * part // whole)
        self._deadline_s = now_s
        if goal > 1:  # else the first message meets it
            self._deadline_s += min((now_s - self._began_s) * LINGER_FLUSHES, LINGER_MAX_S)
        self._goal = goal


class FlushWaits:
    """Callbacks that wait until the log is on disk up to an offset. Used by the thread that appends.

    There are no more than sends in flight. All have the same timeout, so the first one expires first.

    Invariant: offsets do not decrease from one to the next. Whoever cuts the log calls `fail_after`.
    """

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._waiting: deque[tuple[PhysicalOffset, int, FlushCallback]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def oldest_ms(self) -> int:
        """How long the first one has waited, in milliseconds."""
        return self._clock.now_ms() - (self._waiting[0][1] - self._timeout_ms) if self._waiting else 0

    def add(self, offset: PhysicalOffset, callback: FlushCallback) -> None:
        """Call back with True once the log is on disk up to `offset`, with False when that fails or takes too long."""
        self._waiting.append((offset, self._clock.now_ms() + self._timeout_ms, callback))

    def reached(self, flushed: PhysicalOffset) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= flushed:
            waiting.popleft()[2](True)

    def expire(self) -> None:
        """Call those that have timed out with False; the flush may still succeed."""
        now_ms = self._clock.now_ms()
        while self._waiting and self._waiting[0][1] <= now_ms:
            self._waiting.popleft()[2](False)

    def fail_after(self, end: PhysicalOffset) -> None:
        """The log was cut and ends at `end`. Callbacks for what followed would block all later ones."""
        gone = []
        while self._waiting and self._waiting[-1][0] > end:
            gone.append(self._waiting.pop()[2])
        for callback in reversed(gone):
            callback(False)

    def fail(self) -> None:
        """The disk has failed: call all with False."""
        while self._waiting:
            self._waiting.popleft()[2](False)
