"""The frames of all threads, for stack traces of a live process."""

from __future__ import annotations

import gc
import sys
import threading
from types import FrameType

_lock = threading.Lock()


def current_frames() -> dict[int, FrameType]:
    """The innermost frame of each thread by thread identifier, like `sys._current_frames`.

    CPython creates frame objects while it holds the lock of its thread list. A garbage collection at that moment runs
    finalizers, which let other threads run; one of them that starts or lists threads then waits for that lock and
    never releases the interpreter: the process hangs. Hence no collection during the call.
    """
    with _lock:  # so that no other caller enables the collector too early
        collecting = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()  # noqa: SLF001 - documented, despite the underscore
        finally:
            if collecting:
                gc.enable()
