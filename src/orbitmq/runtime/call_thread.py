"""Calls functions on a background thread, for callers that must not block. Knows nothing of what they do."""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable


class CallThread:
    """Calls one function after the other, on a daemon thread that begins with the first of them. How many may wait is
    for those to limit who know what becomes of the others.
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
        """Whether all that came so far was called within so many seconds."""
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
            del function  # what it knows must not live until another comes
