"""A small file kept equal to something in memory, written off the event loop. Knows nothing of the content."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from orbitmq.errors import StoreError
from orbitmq.runtime.files import save_with_backup

_log = logging.getLogger(__name__)


class SavedFile:
    """Writes what `render` returns to `path`: a text, or a function that makes it beside the event loop. Changes that
    come while a write is under way share the next one.
    """

    def __init__(self, path: Path, render: Callable[[], str | Callable[[], str]]) -> None:
        self.path = path
        self._render = render
        self._dirty = False
        self._writing: asyncio.Task[OSError | None] | None = None

    def mark(self) -> None:
        """The content changed: write it soon."""
        self._dirty = True
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def retry(self) -> None:
        """Write again what could not be written; to be called every now and then."""
        if self._dirty:
            self.mark()

    async def flush(self) -> None:
        """Return when everything marked so far is on disk; what failed before is tried again. StoreError if in vain."""
        self.retry()
        while self._writing is not None:
            error = await asyncio.shield(self._writing)
            if error is not None:
                raise StoreError(f"{self.path} cannot be written: {error.strerror or error}") from error

    async def _write(self) -> OSError | None:
        """The error that kept the last content from the disk. Clears `_writing` in the step that finds nothing more
        to write, so that no mark falls between the two."""
        try:
            while self._dirty:
                self._dirty = False
                await asyncio.to_thread(_save, self.path, self._render())
        except OSError as error:
            self._dirty = True
            _log.error("event=save_failed path=%s error=%s", self.path, error)
            return error
        finally:
            self._writing = None
        return None


def _save(path: Path, rendered: str | Callable[[], str]) -> None:
    save_with_backup(path, rendered if isinstance(rendered, str) else rendered())
