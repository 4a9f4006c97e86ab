"""Removes files of a lake that are nobody's, at the end of a job and now and then while one goes on for ever. Knows
no job."""

from __future__ import annotations

import logging

from orbitmq.errors import LakeError
from orbitmq.pipeline.lake.lakes import HOUR_MS, Lake, sweep
from orbitmq.runtime.clock import Clock, SystemClock

LOG = logging.getLogger(__name__)

PAUSE_MS = 6 * HOUR_MS  # files lie for a day anyhow, and listing a large lake takes a while


class Sweeper:
    """Sweeps one lake; `removed` counts files."""

    def __init__(self, lake: Lake, clock: Clock | None = None) -> None:
        self.removed = 0
        self._lake = lake
        self._clock = clock or SystemClock()
        self._swept_ms = self._clock.now_ms()

    def sweep(self) -> None:
        """Sweep now. Errors are those of the lake."""
        self._swept_ms = self._clock.now_ms()
        self.removed += len(sweep(self._lake, self._swept_ms))

    def sweep_if_due(self) -> None:
        """Sweep when the last time is long ago. What goes wrong is logged: files that lie about stop no archive."""
        if self._clock.now_ms() - self._swept_ms < PAUSE_MS:
            return
        try:
            self.sweep()
        except (LakeError, OSError) as error:
            LOG.warning("event=sweep_failed error=%s", error)
