"""A background thread that does one thing again and again, when its interval is over or when woken."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Worker:
    """Runs `step` until stopped; a step may return after how many milliseconds the next one should come at the latest.

    An error that leaves `step` ends the thread and is given to `on_failure`.
    """

    def __init__(
        self, name: str, step: Callable[[], float | None], interval_ms: int, on_failure: Callable[[Exception], None]
    ) -> None:
        self._step = step
        self._interval_s = interval_ms / 1000
        self._on_failure = on_failure
        self._woken = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Run the step soon."""
        if not self._woken.is_set():  # which is cheaper than to tell a thread that knows
            self._woken.set()

    def stop(self) -> None:
        """Return when the step under way is done; no further one begins."""
        self._stopping = True
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s = self._interval_s
        try:
            while not self._stopping:
                self._woken.wait(pause_s)
                self._woken.clear()
                if not self._stopping:
                    pause_ms = self._step()
                    pause_s = self._interval_s if pause_ms is None else pause_ms / 1000
        except Exception as error:
            self._on_failure(error)
