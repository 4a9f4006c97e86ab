"""The progress of a long scan of the log: a line every few seconds, with its rate."""

from __future__ import annotations

import logging

from orbitmq.runtime.clock import Clock

_log = logging.getLogger(__name__)

LOOK_BYTES = 16 << 20  # how often a scan reads the clock,
REPORT_MS = 5000  # and how often it reports


class Progress:
    """From `start` to `goal`, both offsets of the log; `event` names the walk. `bytes` is how much was read of it.

    A walk calls `look` once it has passed `next_look`, and `skip` for parts it need not read.
    """

    def __init__(self, clock: Clock, start: int, goal: int, event: str = "recovering") -> None:
        self._clock = clock
        self._start = start
        self._goal = goal
        self._event = event
        self._skipped = 0
        self._began_ms = self._last_ms = clock.now_ms()
        self.next_look = start + LOOK_BYTES

    def skip(self, size: int) -> None:
        """This number of bytes is skipped."""
        self._skipped += size

    def look(self, position: int) -> None:
        """The scan has reached `position`."""
        self.next_look = position + LOOK_BYTES
        now_ms = self._clock.now_ms()
        if now_ms - self._last_ms >= REPORT_MS:
            self._last_ms = now_ms
            percent = 100 * (position - self._start) // max(1, self._goal - self._start)
            _log.info(
                "event=%s position=%d goal=%d percent=%d ms=%d mb_per_s=%d",
                self._event, position, self._goal, percent, *self.rate(position),
            )  # fmt: skip

    def bytes(self, position: int) -> int:
        """How much was read up to there."""
        return position - self._start - self._skipped

    def rate(self, position: int) -> tuple[int, int]:
        """Milliseconds so far, and megabytes read a second."""
        passed_ms = self._clock.now_ms() - self._began_ms
        return passed_ms, self.bytes(position) // 1000 // max(1, passed_ms)
