"""The stack of every thread and task of this process, as text, to find out why a consumer hangs."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

from orbitmq.runtime.frames import current_frames

STACKS_LENGTH_MAX = 1 << 20  # characters: the text is sent in one response


def stacks() -> str:
    """The stacks of all threads, then of the tasks of the running loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in current_frames().items()
    ]
    parts += [f"task {task.get_name()}\n{_waits_at(task)}" for task in asyncio.all_tasks()]
    return "\n".join(parts)[:STACKS_LENGTH_MAX]


def _waits_at(task: asyncio.Task[Any]) -> str:
    lines = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in _frames(task.get_coro()))
    return "".join(lines.format())


def _frames(coroutine: Any) -> Iterator[FrameType]:
    """From the task's own coroutine to the innermost one it waits for."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None:
            yield frame
        coroutine = getattr(coroutine, "cr_await", None)
