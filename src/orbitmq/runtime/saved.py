"""A small file kept equal to something in memory, written off the event loop. Knows nothing of the content."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from orbitmq.runtime.files import save_with_backup

_log = logging.getLogger(__name__)


class SavedFile:
    """Writes what `render` returns to `path`. Changes that come while a write is under way share the next one."""

    def __init__(self, path: Path, render: Callable[[], str]) -> None:
        self.path = path
        self._render = render
        self._dirty = False
        self._writing: asyncio.Task[None] | None = None

    def mark(self) -> None:
        """The content changed: write it soon."""
        self._dirty = True
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())
            self._writing.add_done_callback(self._written)

    async def flush(self) -> None:
        """Return when everything marked so far is on disk. OSError when the last write failed."""
        while self._writing is not None:
            await asyncio.shield(self._writing)

    def save_now(self) -> None:
        """Write on the calling thread: before the loop starts or after it ended."""
        self._dirty = False
        save_with_backup(self.path, self._render())

    async def _write(self) -> None:
        while self._dirty:
            self._dirty = False
            await asyncio.to_thread(save_with_backup, self.path, self._render())

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._dirty = True
            _log.error("event=save_failed path=%s error=%s", self.path, error)
