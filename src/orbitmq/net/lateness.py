"""How late the event loop is: what is read now may have waited so long in the kernel's buffers.

One loop serves all connections, so a request waits while others are worked on, and nobody sees it wait. A timer that
should have fired meanwhile does: how late it comes is how long what lay ready at that time has waited. How much of such
a time the loop has worked is told apart from it: who is late for too much work should get less, who was held up once
has caught up a moment later. Knows neither sockets nor requests.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

TICK_SECONDS = 0.02  # how often lateness is measured; costs 50 timers a second
HELD_UP_MS = 1000  # of being held up that are forgiven: as long as RocketMQ's page cache may be busy


class Lateness:
    """Measures from `start` to `stop`. `clock` tells seconds of real time: a loop's own may stand still in a turn.
    `worked` tells those that the loop's thread has had of a processor. `each` is told at every measurement how many
    seconds apart they are.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        worked: Callable[[], float] = time.thread_time,
        each: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._worked = worked
        self._each = each
        self._marks: deque[tuple[float, float]] = deque(maxlen=int(HELD_UP_MS / 1000 / TICK_SECONDS) + 1)
        self._due: float | None = None
        self._late_seconds = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Measure the running loop."""
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._due = None
        self._late_seconds = 0.0
        self._marks.clear()

    def waited_ms(self) -> float:
        """How long at most what is read at this moment has waited, as far as the loop is to blame."""
        if self._due is None:
            return 0.0
        return max(self._late_seconds, self._clock() - self._due, 0.0) * 1000

    def busy_ms(self, waited_ms: float) -> float:
        """How much of the last `waited_ms` counts as waiting for a loop that works: what its thread has had of a
        processor, from the last measurement before on. All of it from `HELD_UP_MS` on, whatever held the loop up:
        whoever waits may have given up.

        The rest went to a disk or to other programs. The loop had no more to do than before, and refusing what came
        meanwhile would fail calls that are answered in a millisecond now.
        """
        if waited_ms >= HELD_UP_MS or self._due is None:
            return waited_ms
        since = self._clock() - waited_ms / 1000
        before = next((worked for at, worked in reversed(self._marks) if at <= since), None)
        if before is None:
            return waited_ms
        return min(waited_ms, (self._worked() - before) * 1000)

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        now = self._clock()
        self._marks.append((now, self._worked()))
        self._due = now + TICK_SECONDS
        self._timer = loop.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        assert self._due is not None, "the timer runs between start and stop"
        self._late_seconds = self._clock() - self._due
        if self._late_seconds > 0:
            # Loops read sockets before or after they run timers. What lay ready has been read when the turn after
            # this one begins.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._forget)
        self._each(TICK_SECONDS)
        self._arm()

    def _forget(self) -> None:
        self._late_seconds = 0.0
