"""A small file kept equal to something in memory, written off the event loop. Knows nothing of the content."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from orbitmq.errors import StoreError
from orbitmq.runtime.files import recover, save_with_backup

_log = logging.getLogger(__name__)
T = TypeVar("T")


class SavedFile:
    """Writes what `render` returns to `path`: a text, or a function that makes it off the event loop. Changes during a
    write share the next one. `damage` is the damage that `load` found, empty if there was none. `needs` is awaited
    before a text is written that was rendered: what the text relies on is on disk then. `saved` is called after each
    write.
    """

    needs: Callable[[], Awaitable[None]] | None = None
    saved: Callable[[], object] | None = None

    def __init__(self, path: Path, render: Callable[[], str | Callable[[], str]]) -> None:
        self.path = path
        self.damage = ""
        self._render = render
        self._changes = 0
        self._saved = 0  # of the changes
        self._writing: asyncio.Task[None] | None = None
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()  # for this many changes to be saved

    def load(self, parse: Callable[[str], T]) -> T | None:
        """The content of the file; None if there is none. An unreadable one is logged and kept under another name; what
        can be restored is returned. OSError.
        """
        found = recover(self.path, parse)
        self.damage = found.damage
        return found.value

    @property
    def is_saved(self) -> bool:
        """Whether every change so far is on disk."""
        return self._saved == self._changes

    def mark(self) -> None:
        """The content changed: write it soon."""
        self._changes += 1
        self.retry()

    def retry(self) -> None:
        """Retry a failed write; call this periodically."""
        if self._saved < self._changes and self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def flush(self) -> None:
        """Return when every change so far is on disk; retries a failed write, StoreError if it fails again."""
        self.retry()
        if self._saved < self._changes:
            saved = asyncio.get_running_loop().create_future()
            self._waiting.append((self._changes, saved))
            try:
                await saved
            except OSError as error:
                raise StoreError(f"{self.path} cannot be written: {error.strerror or error}") from error

    async def _write(self) -> None:
        """Clears `_writing` in the step that finds nothing more to write, so that no mark falls between the two."""
        try:
            while self._saved < self._changes:
                changes = self._changes
                rendered = self._render()
                if self.needs is not None:
                    await self.needs()
                await asyncio.to_thread(_save, self.path, rendered)
                self._saved = changes
                if self.saved is not None:
                    self.saved()
                while self._waiting and self._waiting[0][0] <= changes:
                    _settle(self._waiting.popleft()[1])
        except OSError as error:
            _log.error("event=save_failed path=%s error=%s", self.path, error)
            self._disappoint(error)
        except Exception as error:
            if not self._disappoint(error):
                raise  # for the event loop to log
        finally:
            self._writing = None
            for _, waiting in self._waiting:  # the loop ends
                waiting.cancel()
            self._waiting.clear()

    def _disappoint(self, error: Exception) -> bool:
        """Notify the waiting callers; whether there are any left."""
        waiting = [one for _, one in self._waiting if not one.done()]
        self._waiting.clear()
        for one in waiting:
            one.set_exception(error)
        return bool(waiting)


def _settle(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():  # the caller may be cancelled
        waiting.set_result(None)


def _save(path: Path, rendered: str | Callable[[], str]) -> None:
    save_with_backup(path, rendered if isinstance(rendered, str) else rendered())
