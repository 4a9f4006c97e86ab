"""Whether what a function of the application raised on an event loop is a failure like others, or ends its caller.

A SystemExit or KeyboardInterrupt in a task stops its loop: so asyncio has it, and on the application's own loop that is
the application's will. The loop behind the synchronous classes is not the application's: to end it would leave every
thread of the process waiting for ever. A CancelledError ends the task that was cancelled; one that comes up where
nobody cancelled the task, out of something the function waited for, is a failure. Knows neither listeners nor clients.
"""

from __future__ import annotations

import asyncio
from weakref import WeakSet

_kept: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def keep(loop: asyncio.AbstractEventLoop) -> None:
    """Nothing that an application raises ends `loop` from now on."""
    _kept.add(loop)


def is_failure(error: BaseException) -> bool:
    """Whether `error`, raised on the running loop, is a failure; else the caller raises it again."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return asyncio.get_running_loop() in _kept
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or not task.cancelling()
    return isinstance(error, Exception)
