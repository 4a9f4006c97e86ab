"""The key index: a sequence of index files, the newest written, all searched. Knows physical offsets, not messages.

A file is named after the local time of its creation. When one is full the next begins; the full one is flushed later,
by the caller of `flush`, and the checkpoint then records that it needs no proof after a crash. One thread at a time
adds and removes files; any thread may search meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from orbitmq.runtime.clock import Clock
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.files import Files, MappedFile, Read
from orbitmq.store.index.file import IndexFile, IndexShape
from orbitmq.store.index.recovery import IndexedLog, IndexRecovery

_log = logging.getLogger(__name__)

NAME_DIGITS: Final = 17  # yyyyMMddHHmmssSSS


def file_name(now_ms: int) -> str:
    """The name of a file created now, in local time."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"


class KeyIndex:
    """The files of one directory, oldest first."""

    def __init__(
        self,
        fs: Files,
        directory: Path,
        shape: IndexShape,
        checkpoint: Checkpoint,
        clock: Clock,
        dispose: Callable[[MappedFile], object] | None = None,
    ) -> None:
        self.files: list[IndexFile] = []
        self._fs = fs
        self._directory = directory
        self._shape = shape
        self._checkpoint = checkpoint
        self._clock = clock
        self._dispose = dispose
        self._full: deque[IndexFile] = deque()  # full files that the checkpoint does not cover yet

    @property
    def newest(self) -> IndexFile | None:
        """The newest file with entries."""
        return next((file for file in reversed(self.files) if not file.is_empty), None)

    # --------------------------------------------------------------------------------------------------------- adding

    def add(self, hashes: Sequence[int], offsets: Sequence[int], timestamps: Sequence[int]) -> None:
        """Add keys in the order of the log. OSError if the disk is full: `newest_rows` says how many were added."""
        done = 0
        while done < len(hashes):
            file = self._writable()
            done += file.add(hashes[done:], offsets[done:], timestamps[done:])

    def add_found(self, units: bytes, offset: int, count_max: int) -> int:
        """Add the keys of up to `count_max` units of the log, which are at `offset` of it. Returns how many bytes are
        done; 0, and nothing is added, where `add` must do it. OSError as there.
        """
        return self.files[-1].add_found(units, offset, count_max) if self.files else 0

    def _writable(self) -> IndexFile:
        last = self.files[-1] if self.files else None
        if last is not None and not last.is_full:
            return last
        name = file_name(self._clock.now_ms())
        if last is not None and name <= last.file.path.name:
            # Files are sorted by name when they are loaded, but clocks are set back, by an hour every autumn.
            name = f"{int(last.file.path.name) + 1:0{NAME_DIGITS}d}"
        file = IndexFile(self._fs.create(self._directory / name, self._shape.file_size), self._shape)
        try:
            file.reserve(self._shape.entries_start)
        except OSError:  # a later start would read entries without blocks
            self._remove(file)
            raise
        if last is not None:
            file.begin_after(last)
            self._full.append(last)
        self.files.append(file)
        return file

    # ------------------------------------------------------------------------------------------------------ searching

    def find(self, key_hash: int, begin: int, end: int, read: Read = MappedFile.read) -> Iterator[int]:
        """Physical offsets stored under the hash from `begin` to `end` (milliseconds, both included), newest first."""
        for file in reversed(self.files[:]):
            if file.overlaps(begin, end):
                yield from file.find(key_hash, begin, end, read)
            if file.begin_timestamp < begin:
                return

    def newest_rows(self) -> tuple[int, list[int]]:
        """The physical offset of the last message that has entries, and their hashes, oldest first; -1 without any."""
        last = self.newest
        if last is None:
            return -1, []
        offset = last.end_offset
        hashes: list[int] = []
        for file in reversed(self.files):
            for number in range(file.count - 1, 0, -1):
                found, place, _, _ = file.entry(number)
                if place != offset:
                    return offset, hashes[::-1]
                hashes.append(found)
        return offset, hashes[::-1]

    # ------------------------------------------------------------------------------------------------- after a start

    def load(self, log: IndexedLog, *, clean: bool, keep_unproven: bool = True) -> None:
        """Map the files. Unless the exit was `clean`, those that the checkpoint does not cover keep only entries that
        prove one another; with `keep_unproven` false they are removed, and so is everything after a gap. Entries at or
        after the end of the log are removed.

        StoreDamaged for a file of another size.
        """
        self._map()
        recovery = IndexRecovery(
            self._shape, log, self._checkpoint.index_timestamp, clean=clean, keep_unproven=keep_unproven
        )
        believed = recovery.believed(self.files)
        if believed == len(self.files) and not recovery.repaired:
            return
        self._remove_from(believed)
        self._full.extend(file for file in recovery.repaired if file.is_full)
        # Another crash must not restore what was cut off: other messages will be at these offsets.
        self.flush()
        self._fs.sync_directory(self._directory)

    def _map(self) -> None:
        for name in self._fs.names(self._directory):
            path = self._directory / name
            if not name.isdecimal():
                continue
            if self._fs.size(path) == 0:  # a crash came between its creation and its preallocation
                self._fs.remove(path)
                continue
            self.files.append(IndexFile(self._fs.open(path, self._shape.file_size, writable=True), self._shape))

    # ----------------------------------------------------------------------------------------------- flush and remove

    @property
    def awaits_flush(self) -> bool:
        """Whether a file has become full since the last flush."""
        return bool(self._full)

    def flush(self) -> None:
        """Return when what was added before the call is on disk. OSError if it is not. Thread-safe."""
        covers = 0
        while self._full:
            self._full[0].sync()
            covers = self._full.popleft().end_timestamp
        if covers:
            self._checkpoint.index_timestamp = covers
            self._checkpoint.save()
        if self.files:
            self.files[-1].sync()

    def forget_below(self, physical_offset: int) -> None:
        """Remove the oldest files while all their messages lie below the offset; never the last file."""
        while len(self.files) > 1 and self.files[0].end_offset < physical_offset:
            file = self.files.pop(0)
            if self._dispose is not None:  # in steps: freeing half a gigabyte at once would delay every flush
                self._dispose(file.file)
            else:
                self._remove(file)

    def clear(self) -> None:
        """Remove all files."""
        self._remove_from(0)

    def _remove_from(self, number: int) -> None:
        while len(self.files) > number:
            self._remove(self.files.pop())

    def _remove(self, file: IndexFile) -> None:
        file.file.close()
        self._fs.remove(file.file.path)

    def close(self) -> None:
        for file in self.files:
            file.file.close()
        self.files.clear()
