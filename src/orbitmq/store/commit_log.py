"""The commit log: every message of the broker, one unit after another, in files of one size.

The event loop's thread alone appends. Disk blocks are claimed ahead of the writer, normally by a worker; a write
never touches a page without one, because on a full disk that would kill the process instead of failing.
"""

from __future__ import annotations

import mmap
import threading
from pathlib import Path

from orbitmq.message.unit import BLANK, BLANK_MAGIC, INT32
from orbitmq.store.files import Files, MappedFile
from orbitmq.store.numbered import NumberedFiles
from orbitmq.store.positions import NO_OFFSET, PhysicalOffset

RESERVE_STEP = 4 << 20  # one claim; some 50 ms of the highest load one core can take
RESERVE_AHEAD = 4 * RESERVE_STEP  # the worker needs a quarter of the time to prepare it


class CommitLog:
    """`end` is where the next unit goes, `limit` how far units may go before `make_room` must be asked.

    Invariants: start <= flushed <= end <= limit + BLANK.size, and every byte below the latter has disk blocks.
    """

    def __init__(self, door: Files, directory: Path, file_size: int) -> None:
        self.files = NumberedFiles(door, directory, file_size)
        self.end = PhysicalOffset(0)
        self.flushed = PhysicalOffset(0)
        self.limit = 0
        self.last_store_timestamp = 0
        self.units_size_max = file_size - BLANK.size
        self._door = door
        self._data: mmap.mmap | bytearray = bytearray()  # of the file being written
        self._file_start = self._file_end = 0  # equal while there is none
        self._next: MappedFile | None = None  # made ahead, not yet part of the log
        self._reserved = 0
        self._reserving = threading.Lock()  # guards _next and _reserved

    @property
    def min_offset(self) -> PhysicalOffset:
        """The first byte that still exists, -1 for a log without files."""
        return PhysicalOffset(self.files.start) if self.files.files else NO_OFFSET

    def begin_at(self, end: int, *, flushed: int, clean: bool) -> None:
        """Go on writing at `end`; unless nothing lies behind it, because the exit was `clean`, that is removed."""
        if not clean:
            self.files.cut(end)
        self.end, self.flushed = PhysicalOffset(end), PhysicalOffset(flushed)
        self.limit = self._reserved = end
        if self.files.files:
            self._write_into(self.files.files[-1])

    def _write_into(self, file: MappedFile) -> None:
        self._data = file.data
        self._file_end = self.files.end
        self._file_start = self._file_end - self.files.file_size

    # ------------------------------------------------------------------------------------------------------ writing

    def append(self, units: bytes, store_timestamp: int) -> None:
        """Write whole units at `end`. They must fit below `limit`."""
        start = self.end - self._file_start
        stop = start + len(units)
        self._data[start:stop] = units
        self.end = PhysicalOffset(self._file_start + stop)
        self.last_store_timestamp = store_timestamp

    def make_room(self, size: int) -> PhysicalOffset:
        """The place for `size` bytes of units, in the next file when this one cannot take them.

        OSError when the disk has no room; the log is then as before.
        """
        needed = size + BLANK.size
        with self._reserving:
            start = self.end if self.end + needed <= self._file_end else self._next_start()
            self._reserved = max(self._reserved, start)
            while self._reserved < start + needed:
                self._reserve_step()
            if start >= self._file_end:
                self._next_file(start)
            self.limit = min(self._reserved, self._file_end) - BLANK.size
        return self.end

    def _next_start(self) -> int:
        return self._file_end or self.files.start_of(self.end)

    def _next_file(self, start: int) -> None:
        """Close the file with a blank record and begin the one made ahead."""
        file, self._next = self._next, None
        assert file is not None, "reserving beyond the last file makes the next one"
        if self._file_end > self.end:  # a start may find the last file closed already
            BLANK.pack_into(self._data, self.end - self._file_start, start - self.end, BLANK_MAGIC)
        self.files.add(file)
        self._write_into(file)
        self.end = PhysicalOffset(start)

    def reserve_ahead(self) -> None:
        """Claim blocks ahead of the writer; a worker's job. OSError when the disk has no room."""
        while self._data and self._reserved < self.end + RESERVE_AHEAD:
            with self._reserving:
                if self._next is not None and self._reserved >= self.files.end + self.files.file_size:
                    return  # a whole file is ready already
                file, position, size = self._reserve_step()
            file.warm(position, size)

    def _reserve_step(self) -> tuple[MappedFile, int, int]:
        file = self.files.find(self._reserved) or self._next
        if file is None:
            file = self._next = self.files.create(self._reserved)
        position = self._reserved % self.files.file_size
        step = min(RESERVE_STEP, self.files.file_size - position)
        file.reserve(position, step)
        self._reserved += step
        return file, position, step

    # ------------------------------------------------------------------------------------------------------ reading

    def slice(self, offset: int, size: int) -> memoryview | None:
        """`size` bytes at `offset`, without a copy; None when they are not (or no longer) in one file of the log."""
        files = self.files
        index, position = divmod(offset - files.start, files.file_size)
        if index < 0 or size < 0 or offset + size > self.end or position + size > files.file_size:
            return None
        return files.files[index].view[position : position + size]

    def unit_at(self, offset: int) -> memoryview | None:
        """The bytes of the unit that begins at `offset`, judged by its size field alone."""
        head = self.slice(offset, INT32.size)
        if head is None:
            return None
        (size,) = INT32.unpack(head)
        return self.slice(offset, size) if size > 0 else None

    # ------------------------------------------------------------------------------------------------ flush and close

    def flush(self) -> PhysicalOffset:
        """Return when what was appended before the call is on disk. OSError when it is not. For any thread."""
        end = self.end
        if end > self.flushed:
            self.files.sync(self.flushed, end)
            self.flushed = end
        return end

    def close(self) -> None:
        """Let go of the files; one made ahead and never used is removed."""
        unused = self._next
        self._next, self._data = None, bytearray()
        if unused is not None:
            unused.close()
            self._door.remove(unused.path)
        self.files.close()
