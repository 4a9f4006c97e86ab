"""Event loops: which one an object belongs to, and what may end one. Knows nothing of the object.

An object that waits on one event loop cannot be used on another: asyncio reports that late and unclearly, or not at
all.

A SystemExit or KeyboardInterrupt in a task stops its loop. On the application's own loop that is what asyncio promises.
The loop behind the synchronous classes must survive it: every thread of the process that calls a client needs that
loop. A CancelledError ends the task that was cancelled; raised in a task that was not cancelled, by something that the
called function waited for, it is a failure like others.
"""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop as running_loop  # which raises nothing where none runs
from weakref import WeakSet

from orbitmq.errors import InvalidStateError

__all__ = ["check_loop", "is_failure", "protect", "running_loop"]

_protected: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def check_loop(owner: str, own: asyncio.AbstractEventLoop | None, *, or_none: bool = False) -> None:
    """InvalidStateError unless the caller runs on `own`, or `owner` belongs to no loop yet. With `or_none` a thread
    without a loop may call, too: for what touches nothing that waits.
    """
    here = running_loop()
    if own is None or here is own or (or_none and here is None):
        return
    raise InvalidStateError(
        f"{owner} belongs to the event loop that started it, {own}; it cannot be used in "
        f"{here or 'a thread without one'}. Make another client here, or use orbitmq.client.sync, which works in any "
        "thread"
    )


def protect(loop: asyncio.AbstractEventLoop) -> None:
    """Let nothing that application code raises end `loop`."""
    _protected.add(loop)


def is_failure(error: BaseException) -> bool:
    """Whether `error`, which application code raised on the running loop, is a failure; if not, raise it again."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return asyncio.get_running_loop() in _protected
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or not task.cancelling()
    return isinstance(error, Exception)
