"""Calls functions on a background thread, for callers that must not block."""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable


class CallThread:
    """Calls one function after the other, on a daemon thread that starts with the first of them. The queue is
    unbounded; callers limit it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._guard = threading.RLock()  # a signal handler may come for it while its thread has it
        self._thread: threading.Thread | None = None

    def put(self, function: Callable[[], object]) -> None:
        """Schedule a call of `function`; never blocks."""
        self._waiting.put(function)
        if self._thread is None:
            self._begin()

    @property
    def waiting(self) -> int:
        """Functions whose turn has not come."""
        return self._waiting.qsize()

    def flush(self, seconds: float) -> bool:
        """Whether all functions queued so far were called within this many seconds."""
        if self._thread is None:
            return True
        done = threading.Event()
        self._waiting.put(done.set)
        return done.wait(seconds)

    def _begin(self) -> None:
        with self._guard:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            function = self._waiting.get()
            try:
                function()
            except BaseException:  # the application's code, sys.exit included; the next one is called all the same
                traceback.print_exc()
            del function  # release its references before waiting for the next
