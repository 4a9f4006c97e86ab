"""Background tasks: tracked, supervised and ended together. Knows nothing of their work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from orbitmq.client.loops import is_failure

_log = logging.getLogger(__name__)


@contextmanager
def one_round(owner: str, work: str) -> Iterator[None]:
    """Wrap one iteration of an endless loop, without its wait: a failure is logged, and the loop continues."""
    try:
        yield
    except BaseException as error:
        if not is_failure(error):
            raise
        _log.exception("event=round_failed owner=%s work=%s", owner, work)


class Background:
    """The tasks of one owner. A task that fails is logged; the owner continues."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` until it ends or `stop` cancels it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self, grace_s: float, but: Iterable[asyncio.Task[None]] = ()) -> None:
        """Wait for the tasks to end, at most `grace_s` seconds, then `stop`. `but` are those that cannot end."""
        tasks = self._tasks - {asyncio.current_task(), *but}
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        await self.stop()

    async def stop(self) -> None:
        """Cancel every task and wait until all have ended."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("event=task_failed owner=%s", self._owner, exc_info=error)
