"""How late the event loop is: what is read now may have waited so long in the kernel's buffers.

One loop serves all connections, so a request waits while others are worked on, and nobody sees it wait. A timer that
should have fired meanwhile does: how late it comes is how long what lay ready at that time has waited. Knows neither
sockets nor requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

TICK_SECONDS = 0.02  # how often lateness is measured; costs 50 timers a second


class Lateness:
    """Measures from `start` to `stop`. `clock` tells seconds of real time: a loop's own may stand still in a turn.
    `each` is told at every measurement how many seconds apart they are.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, each: Callable[[float], None] = lambda _: None
    ) -> None:
        self._clock = clock
        self._each = each
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

    def waited_ms(self) -> float:
        """How long at most what is read at this moment has waited, as far as the loop is to blame."""
        if self._due is None:
            return 0.0
        return max(self._late_seconds, self._clock() - self._due, 0.0) * 1000

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = self._clock() + TICK_SECONDS
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
