"""The delay of the event loop: requests read now may have waited this long in the buffers of the kernel.

One loop serves all connections, so a request waits unseen while others are handled. A timer that should have fired
meanwhile fires late, by as much as data that was ready at that time has waited. The CPU time of the loop in that period
is measured separately: a loop that is late because of too much work must refuse some, one that was stalled once has
caught up a moment later. Each measurement is counted, and a long stall is logged with the code that ran. Knows neither
sockets nor requests.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from orbitmq.net.stalls import StallWatch
from orbitmq.runtime.histogram import Histogram
from orbitmq.runtime.refusals import Refusals

_log = logging.getLogger(__name__)

TICK_SECONDS = 0.005  # how often lateness is measured; costs 200 timers a second, a part in a thousand of a core
HELD_UP_MS = 1000  # of being held up that are forgiven: as long as RocketMQ's page cache may be busy
DELAY_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
STALL_SECONDS = 0.1  # from which on a stall gets a line in the log
STALL_LINES = 10  # of these in ten seconds
PERIOD_SECONDS = 30.0  # the longest delay is that of the last one and of the one before


class _Mark(NamedTuple):
    """One measurement: its time, and the CPU seconds of the loop's thread until then."""

    at: float
    worked: float


class Lateness:
    """Measures from `start` to `stop`. `clock` returns seconds of real time: a loop's own may stand still in a turn.
    `worked` returns the CPU seconds of the loop's thread. `each` is called at every measurement with the seconds
    between two.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        worked: Callable[[], float] = time.thread_time,
        each: Callable[[float], None] = lambda _: None,
        refusals: Refusals | None = None,
    ) -> None:
        self.delays = Histogram(DELAY_SECONDS)
        """The delay of each measurement, in seconds."""
        self.busy_delays = Histogram(DELAY_SECONDS)
        """The same, but no more than the loop's thread has worked since the measurement before."""
        self._clock = clock
        self._worked = worked
        self._each = each
        self._refusals = refusals or Refusals()
        self._marks: deque[_Mark] = deque()  # of the last `HELD_UP_MS`, and one before
        self._due: float | None = None
        self._late_seconds = 0.0
        self._longest = self._longest_before = 0.0
        self._period_ends = clock() + PERIOD_SECONDS
        self._long_request = (0.0, 0)  # since the last measurement: how long it took, and its code
        self._timer: asyncio.TimerHandle | None = None
        self._watch = StallWatch(self._overdue)

    def start(self) -> None:
        """Measure the running loop."""
        if self._timer is None:
            self._watch.start(asyncio.get_running_loop())
            self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._watch.stop()
        self._timer = self._due = None
        self._late_seconds = 0.0
        self._marks.clear()

    def waited_ms(self) -> float:
        """How long at most data that is read now has waited because of the loop."""
        if self._due is None:
            return 0.0
        return max(self._late_seconds, self._clock() - self._due, 0.0) * 1000

    @property
    def longest_ms(self) -> float:
        """The longest delay of the last 30 to 60 seconds."""
        return max(self._longest, self._longest_before) * 1000

    def took_long(self, code: int, seconds: float) -> None:
        """A request has occupied the loop for this long; the longest between two measurements counts."""
        if seconds > self._long_request[0]:
            self._long_request = (seconds, code)

    def busy_ms(self, waited_ms: float) -> float:
        """How much of the last `waited_ms` was due to work of the loop: the CPU time of its thread, from the
        measurement before on. All of it from `HELD_UP_MS` on, whatever the cause: the client may have given up.

        The rest was spent on a disk or on other programs. The loop had no more work than before, and refusing requests
        that arrived meanwhile would fail calls that can be handled in a millisecond now.
        """
        if waited_ms >= HELD_UP_MS or self._due is None:
            return waited_ms
        since = self._clock() - waited_ms / 1000
        before = next((mark.worked for mark in reversed(self._marks) if mark.at <= since), None)
        if before is None:
            return waited_ms
        return min(waited_ms, (self._worked() - before) * 1000)

    def _overdue(self) -> float:
        """By how many seconds the next measurement is late. For any thread."""
        due = self._due
        return 0.0 if due is None else self._clock() - due

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        now = self._clock()
        self._marks.append(_Mark(now, self._worked()))
        while len(self._marks) > 2 and self._marks[1].at <= now - HELD_UP_MS / 1000:
            self._marks.popleft()
        self._due = now + TICK_SECONDS
        self._timer = loop.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        assert self._due is not None, "the timer runs between start and stop"
        now, worked = self._clock(), self._worked() - self._marks[-1].worked
        late = now - self._due
        self._late_seconds = max(self._late_seconds, late)  # of the one before, if what lay ready then is not read yet
        if late > 0:
            # Loops read sockets before or after they run timers. What lay ready has been read when the turn after
            # this one begins.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._forget)
        self._count(now, max(0.0, late), worked)
        self._each(TICK_SECONDS)
        self._arm()

    def _count(self, now: float, late: float, worked: float) -> None:
        self.delays.observe(late)
        self.busy_delays.observe(min(late, worked))
        if now >= self._period_ends:
            self._longest, self._longest_before, self._period_ends = 0.0, self._longest, now + PERIOD_SECONDS
        self._longest = max(self._longest, late)
        if late >= STALL_SECONDS:
            self._log_stall(late, worked)
        self._watch.forget()
        self._long_request = (0.0, 0)

    def _log_stall(self, late: float, worked: float) -> None:
        seconds, code = self._long_request
        request = f" request={code} request_ms={seconds * 1000:.0f}" if seconds else ""
        text = "event=loop_stalled ms=%d worked_ms=%d%s %s"
        seen = self._watch.seen or "seen=nothing"
        self._refusals.log(_log, text, late * 1000, worked * 1000, request, seen, lines=STALL_LINES)

    def _forget(self) -> None:
        self._late_seconds = 0.0
