"""Calls a function of the application on a thread of its own.

The thread is a daemon: unlike one of an executor it does not keep the interpreter from ending if the function hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from orbitmq.errors import InvalidStateError

R = TypeVar("R")


async def on_thread(name: str, function: Callable[[], R]) -> R:
    """What `function` returns or raises; InvalidStateError for what no task can raise, such as SystemExit. When the
    caller is cancelled the thread continues, and its result is lost.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[R] = loop.create_future()

    def settle(act: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
            loop.call_soon_threadsafe(lambda: None if outcome.done() else act())

    def run() -> None:
        try:
            result = function()
        except BaseException as error:
            plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            failed = error if plain else InvalidStateError(f"the function left its thread: {error!r}")
            settle(lambda: outcome.set_exception(failed))
        else:
            settle(lambda: outcome.set_result(result))

    threading.Thread(target=run, name=name, daemon=True).start()
    return await outcome
