"""A background thread that repeats one step, when its interval is over or when woken."""

from __future__ import annotations

import threading
from collections.abc import Callable

Step = Callable[[], float | None]
Deliver = Callable[[Callable[[], object]], object]  # runs a callback on the thread that appends


class Worker:
    """Runs `step` until stopped; a step may return the milliseconds until the next one, instead of the interval.

    An error that `step` raises ends the thread and is passed to `on_failure`.
    """

    def __init__(self, name: str, step: Step, interval_ms: int, on_failure: Callable[[Exception], None]) -> None:
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
        if not self._woken.is_set():  # cheaper than setting it again
            self._woken.set()

    def stop(self) -> None:
        """Return when the current step is done; no further one begins."""
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


MakeWorker = Callable[[str, Step, int], Worker]
