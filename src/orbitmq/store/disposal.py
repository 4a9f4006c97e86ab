"""Removes files that no longer belong to a stream, without anybody noticing: a worker's job, in small bites.

The name goes first, so that no start ever finds half a file. Then the memory is let go and the disk blocks are given
back in steps: freeing a gigabyte in one go keeps the file system busy for a third of a second, and with it every flush.

A reader may still hold a slice of the file (RocketMQ counts references; here the memoryviews do it). Its pages must not
be taken away, or its next look would kill the process. Such a file is looked at again later; after a while it is left
to the kernel, which frees it with the last slice.
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
    """A file without a name that somebody reads."""

    file: MappedFile
    since_ms: int


class Disposal:
    """Files on their way out, in the order they were given. `retry_ms`: how often a held file is looked at;
    `patience_ms`: after how long it is left to the kernel.
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
        """Whether all files given so far are gone and their blocks are free, or nobody waits for that any more."""
        return not self._new and not self._held

    def add(self, files: Iterable[MappedFile], *, named: bool) -> None:
        """Take files that nobody can find any more; those that are `named` still have their name. For any thread."""
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
