"""Warm-up of commit log files before the first message: every page present, and locked so that it stays.

For brokers that would rather spend memory and disk writes ahead than a page fault on a message. A worker's job.
"""

from __future__ import annotations

import logging

from orbitmq.store import memory
from orbitmq.store.files import PAGE, MappedFile

_log = logging.getLogger(__name__)


class Warmer:
    """Warms files a step at a time. `sync_pages` is how often that is flushed; 0 leaves it to the flusher."""

    def __init__(self, sync_pages: int) -> None:
        self._sync_bytes = sync_pages * PAGE
        self._unsynced = 0
        self._locked: list[MappedFile] = []
        self._is_refused = False

    def warm(self, file: MappedFile, start: int, size: int) -> None:
        """Warm one step of a new file; after the last one the file is locked in memory. OSError when a sync fails."""
        file.populate(start, size)
        is_done = start + size >= file.size
        self._unsynced += size
        if self._sync_bytes and (self._unsynced >= self._sync_bytes or is_done):
            self._unsynced = 0
            file.sync()
        if is_done:
            self._lock(file)

    def _lock(self, file: MappedFile) -> None:
        try:
            file.lock_memory()
            self._locked.append(file)
        except OSError as error:
            if not self._is_refused:
                self._is_refused = True
                _log.warning(
                    "event=memory_not_locked size=%d limit=%s error=%s (raise the limit of locked memory, `ulimit -l`)",
                    file.size, memory.lock_limit(), error,
                )  # fmt: skip

    def leave(self, in_use: MappedFile | None) -> None:
        """Unlock the files before the one that is written now."""
        while self._locked and in_use is not None and self._locked[0].path.name < in_use.path.name:
            self._locked.pop(0).unlock_memory()
