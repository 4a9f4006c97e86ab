"""Work that is finished although its caller is cancelled: half a change is worse than a change without a response.

Knows nothing of the work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from orbitmq.errors import OrbitMQError

_log = logging.getLogger(__name__)

T = TypeVar("T")


class ShieldedTasks:
    """Runs such work and keeps it until it is done."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work, or its error. If the caller is cancelled it continues, and an error is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise

    async def settled(self) -> None:
        """Return when no work is in flight."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def abandon(self) -> None:
        """Cancel all work in flight. Threads used by it end by themselves."""
        for task in self._tasks:
            task.cancel()
        await self.settled()


def _log_failure(task: asyncio.Task[Any]) -> None:
    if task.cancelled() or (error := task.exception()) is None:
        return
    what = getattr(task.get_coro(), "__qualname__", task)
    if isinstance(error, OrbitMQError):  # a refusal, which would have been the response
        _log.info("event=unheard_refusal work=%s error=%s", what, error)
    else:
        _log.error("event=unheard_failure work=%s", what, exc_info=error)
