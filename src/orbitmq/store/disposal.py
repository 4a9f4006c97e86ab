"""Frees removed files in small steps, on a worker thread, so that flushes are not delayed.

The name is removed first, so that no start finds a partial file. Then the memory is released and the disk blocks are
freed in steps: freeing a gigabyte at once keeps the file system busy for a third of a second, and delays every flush.

A reader may still hold a slice of the file (RocketMQ counts references; here memoryviews do that). Its pages must not
be freed, or the next access would kill the process. Such a file is tried again later; after a while it is left to the
kernel, which frees it with the last slice.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from orbitmq.runtime.clock import Clock
from orbitmq.store.files import Files, MappedFile

_log = logging.getLogger(__name__)

FREE_STEP = 16 << 20  # some milliseconds each
FORGET_STEP = 4 << 20  # a quarter of a millisecond, with the interpreter lock held


@dataclass
class _Held:
    """A file without a name that a reader still holds."""

    file: MappedFile
    since_ms: int


class Disposal:
    """Files to be freed, in order. `retry_ms`: how often a held file is tried again; `patience_ms`: after how long it
    is left to the kernel.
    """

    def __init__(self, fs: Files, clock: Clock, retry_ms: int, patience_ms: int) -> None:
        self._fs = fs
        self._clock = clock
        self._retry_ms = retry_ms
        self._patience_ms = patience_ms
        self._new: deque[tuple[MappedFile, bool]] = deque()
        self._held: list[_Held] = []
        self._next_look_ms = 0

    @property
    def is_done(self) -> bool:
        """Whether all files added so far are freed or left to the kernel."""
        return not self._new and not self._held

    def add(self, files: Iterable[MappedFile], *, named: bool) -> None:
        """Add files that no reader can open any more; those that are `named` still have their name. Thread-safe."""
        self._new.extend((file, named) for file in files)

    def work(self) -> None:
        """Remove what was added and look at held files when it is time. OSError when a name cannot be removed; no
        later file is touched then, or the stream on disk would have a gap.
        """
        now_ms = self._clock.now_ms()
        while self._new:
            file = self._take()
            if not _free(file):
                self._held.append(_Held(file, now_ms))
                self._next_look_ms = now_ms + self._retry_ms
        if self._held and now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + self._retry_ms
            self._held = [held for held in self._held if not self._is_over(held, now_ms)]

    def _is_over(self, held: _Held, now_ms: int) -> bool:
        if _free(held.file):
            return True
        if now_ms - held.since_ms < self._patience_ms:
            return False
        _log.warning("event=file_held path=%s ms=%d", held.file.path, now_ms - held.since_ms)
        held.file.close()
        return True

    def close(self) -> None:
        """Remove the names; what is still held goes with its last reader. OSError as `work`."""
        for held in self._held:
            held.file.close()
        self._held.clear()
        while self._new:
            self._take().close()

    def _take(self) -> MappedFile:
        file, named = self._new[0]
        if named:
            self._fs.remove(file.path)
            self._fs.sync_directory(file.path.parent)  # before the next one goes: a crash must not leave a gap
        self._new.popleft()
        return file


def _free(file: MappedFile) -> bool:
    """Let memory and disk blocks go; False while somebody holds a slice."""
    if not file.data.closed:
        for start in range(0, file.size, FORGET_STEP):
            file.forget_pages(start, FORGET_STEP)
        if not file.unmap():
            return False
    for start in range(0, file.size, FREE_STEP):
        file.give_back(start, min(FREE_STEP, file.size - start))
    file.close()
    return True
