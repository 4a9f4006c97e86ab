"""Periodic background work on the event loop. Knows nothing of the work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from inspect import isawaitable

_log = logging.getLogger(__name__)


class Periodic:
    """Calls functions at fixed intervals, and awaits coroutines; a failure is logged, and the next call made."""

    def __init__(self) -> None:
        self._jobs: list[tuple[float, Callable[[], object]]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, seconds: float, job: Callable[[], object]) -> None:
        """Have `job` called each `seconds`, the first time after one pause."""
        self._jobs.append((seconds, job))

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._repeat(seconds, job), name=_name(job)) for seconds, job in self._jobs]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    @staticmethod
    async def _repeat(seconds: float, job: Callable[[], object]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                result = job()
                if isawaitable(result):
                    await result
            except Exception:  # the next round must still come
                _log.exception("event=periodic_job_failed job=%s", _name(job))


def _name(job: Callable[[], object]) -> str:
    return str(getattr(job, "__qualname__", job))
