"""A background thread that does one thing again and again, when its interval is over or when woken."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Worker:
    """Runs `step` until stopped. An error that leaves `step` ends the thread and is given to `on_failure`."""

    def __init__(
        self, name: str, step: Callable[[], None], interval_ms: int, on_failure: Callable[[Exception], None]
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
        self._woken.set()

    def stop(self) -> None:
        """Return when the step under way is done; no further one begins."""
        self._stopping = True
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._woken.wait(self._interval_s)
                self._woken.clear()
                if not self._stopping:
                    self._step()
        except Exception as error:
            self._on_failure(error)
