"""Records from a background thread what an event loop is doing while it stalls.

Afterwards the cause is unknown, so the stack must be taken in time. Compiled code has no frames, so a stack may end
with its caller; code that holds the interpreter's lock is seen when it releases it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from orbitmq.runtime.frames import current_frames

INTERVAL_S = 0.04  # between two checks, and the least stall that is described: so that none of 100 ms is missed
FRAMES_MAX = 6  # innermost frames of a stack


class StallWatch:
    """`overdue` returns, on any thread, by how many seconds the loop is late now."""

    def __init__(self, overdue: Callable[[], float]) -> None:
        self.seen = ""
        """The stack of the current stall, for a line of the log; empty before it was taken."""
        self._overdue = overdue
        self._stopped = threading.Event()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch the loop, which runs in the calling thread."""
        self._stopped = threading.Event()
        arguments = (loop, threading.get_ident(), self._stopped)
        threading.Thread(target=self._run, args=arguments, name="orbitmq-stalls", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def forget(self) -> None:
        """The stall is over."""
        self.seen = ""

    def _run(self, loop: asyncio.AbstractEventLoop, ident: int, stopped: threading.Event) -> None:
        while not stopped.wait(INTERVAL_S) and not loop.is_closed():
            if not self.seen and self._overdue() >= INTERVAL_S:
                self.seen = _described(loop, ident)


def _described(loop: asyncio.AbstractEventLoop, ident: int) -> str:
    """The task that runs, if one does, and the innermost frames of the loop's thread."""
    task = asyncio.current_task(loop)
    frame = current_frames().get(ident)
    stack = ",".join(_frames(frame)) or "-"
    return f"task={task.get_name() if task is not None else '-'} stack={stack}"


def _frames(frame: FrameType | None) -> list[str]:
    found: list[str] = []
    while frame is not None and len(found) < FRAMES_MAX:
        found.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}:{frame.f_code.co_name}")
        frame = frame.f_back
    return found
