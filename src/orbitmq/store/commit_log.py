"""The commit log: every message of the broker, one unit after another, in files of one size.

The event loop's thread alone appends. Disk blocks are claimed ahead of the writer, normally by a worker; a write
never touches a page without one, because on a full disk that would kill the process instead of failing.
"""

from __future__ import annotations

import mmap
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.errors import StoreError
from orbitmq.message.unit import BLANK, BLANK_MAGIC, INT32
from orbitmq.store.files import PAGE, Files, MappedFile, Read
from orbitmq.store.numbered import NumberedFiles
from orbitmq.store.positions import NO_OFFSET, PhysicalOffset
from orbitmq.store.transient_pool import Staging
from orbitmq.store.walk import Walk, WalkEnd
from orbitmq.store.warmer import Warmer

if TYPE_CHECKING:
    from mypy_extensions import i64

RESERVE_STEP = 4 << 20  # one claim; some 50 ms of the highest load one core can take
STEPS_A_TURN: Final = 4  # after which a worker can be stopped
FILES_AHEAD: Final = 2  # the maximum, as in RocketMQ; reached only by small messages
RESERVE_AHEAD: Final = 4 * RESERVE_STEP  # the worker needs a quarter of the time to prepare it
# Bytes of an append that are written by a call: its whole pages come into memory without being cleared first, which
# costs several times what the copy does. Of less, the call costs more than it saves. Unlike a store to the map it waits
# for a claim of blocks in the same file, which holds the file's lock: 0.04 ms for 4 MiB on ext4, 0.5 ms at most of 64
# claims, and no write of 64 KiB beside them took longer than one without. When more pages are dirty than the kernel
# allows, both ways wait for the disk; nothing here bounds that.
CALLED_FROM: Final = 16 << 10


class CommitLog:
    """`end` is where the next unit is written, `limit` how far units may extend before `make_room` must be called.

    `readable` is how far readers may see: up to `end`, unless `shows_at_once` is false; then the owner moves it.

    Invariants: start <= flushed <= end <= limit + BLANK.size, and readable <= end; every byte below the limit has disk
    blocks.
    """

    def __init__(
        self,
        fs: Files,
        directory: Path,
        file_size: int,
        *,
        more: Sequence[Path] = (),
        read_only: Sequence[Path] = (),
        patience_ms: int = 1000,
    ) -> None:
        self.files = NumberedFiles(fs, directory, file_size, more=(*more, *read_only), choose=self._directory_of)
        self._directories = sorted({directory, *more} - set(read_only))
        self.crowded: frozenset[Path] = frozenset()  # directories that should get no more files
        self.end = PhysicalOffset(0)
        self.flushed = PhysicalOffset(0)
        self.readable = PhysicalOffset(0)
        self.shows_at_once = True
        self.whole: PhysicalOffset | None = None  # of a copy: behind the last unit that is in its queues
        self.limit = 0
        self.last_store_timestamp = 0
        self._committed_timestamp = 0
        self.units_size_max = file_size - BLANK.size
        self._data: mmap.mmap | bytearray = bytearray()  # of the file being written
        self._file: MappedFile | None = None  # the same, unless messages take the way through memory
        self._called_to = NO_OFFSET  # where the last append ended that was written by a call
        self._file_start = self._file_end = 0  # equal while there is none
        self._ahead: deque[MappedFile] = deque()  # made, not yet part of the log
        self._reserved = 0
        self._reserving = threading.Lock()  # guards _ahead and _reserved
        self._flushing = threading.Lock()  # held while files are synced: none may go meanwhile
        self._rewinds = 0  # how often the end of a copy was taken back
        self._patience_s = patience_ms / 1000
        self._is_slow = False
        self.staging: Staging | None = None  # set before `begin_at`, when messages take the way through memory
        self.warmer: Warmer | None = None

    @property
    def min_offset(self) -> PhysicalOffset:
        """The first byte that still exists, -1 for a log without files."""
        return PhysicalOffset(self.files.start) if self.files.files else NO_OFFSET

    @property
    def written(self) -> PhysicalOffset:
        """How far the files contain what was appended."""
        return self.end if self.staging is None else self.staging.committed

    @property
    def written_timestamp(self) -> int:
        """Store time up to which the files hold everything."""
        return self.last_store_timestamp if self.staging is None else self._committed_timestamp

    def commit(self) -> PhysicalOffset:
        """Write what was appended before the call to the files. OSError if the disk fails. For one worker."""
        if self.staging is None:
            return self.end
        timestamp = self.last_store_timestamp
        committed = self.staging.commit(self.end)
        self._committed_timestamp = timestamp
        return committed

    def begin_at(self, end: int, *, flushed: int, clean: bool) -> None:
        """Go on writing at `end`; unless nothing lies behind it, because the exit was `clean`, that is removed."""
        if not clean:
            self.files.cut(end)
        self.end = self.readable = PhysicalOffset(end)
        self.flushed = PhysicalOffset(flushed)
        self.limit = self._reserved = end
        if self.files.files:
            self._write_into(self.files.files[-1].data, self.files.files[-1])
        if self.staging is not None:
            self.staging.begin_at(self.files.files[-1] if self.files.files else None, self._file_start, end)

    def _write_into(self, data: mmap.mmap, file: MappedFile) -> None:
        self._data, self._file = data, file if self.staging is None else None
        self._file_end = self.files.end
        self._file_start = self._file_end - self.files.file_size

    def _directory_of(self, number: int) -> Path:
        """The directories take turns, by the rule of RocketMQ."""
        roomy = [directory for directory in self._directories if directory not in self.crowded] or self._directories
        return roomy[number % len(roomy)]

    @property
    def is_busy(self) -> bool:
        """Whether a message waited in vain for room, and the next one would; or the transient pool is exhausted."""
        return self._is_slow or (self.staging is not None and self.staging.is_exhausted)

    # ------------------------------------------------------------------------------------------------------ writing

    def append(self, units: bytes | bytearray, store_timestamp: int) -> None:
        """Write whole units at `end`. They must fit below `limit`. StoreError when the disk fails, for large ones."""
        start = self.end - self._file_start
        stop = start + len(units)
        if len(units) < CALLED_FROM or self._file is None:
            self._data[start:stop] = units
        else:
            self._write_by_call(self._file, start, units)
        self.end = PhysicalOffset(self._file_start + stop)
        if self.shows_at_once:
            self.readable = self.end if self.whole is None else self.whole
        self.last_store_timestamp = store_timestamp

    def _write_by_call(self, file: MappedFile, start: int, units: bytes | bytearray) -> None:
        try:
            file.write(start, units)
        except OSError as error:
            raise StoreError(f"{file.path} cannot be written: {error}") from error
        self._called_to = PhysicalOffset(self._file_start + start + len(units))

    def make_room_for_copy(self, size: int) -> None:
        """Have `size` bytes of another log fit at `end`. They have the other's blank records, and end with its file.
        Raises what `make_room` raises.
        """
        with self._reservation():
            while self._reserved < self.end + size:
                self._reserve_step()
            if self.end >= self._file_end:
                self._next_file(self.end)
            self.limit = min(self._reserved, self._file_end) - BLANK.size

    def end_whole(self) -> None:
        """Drop the partial unit at the end of a replica: its master will send it again, another master something else.
        Whole units stay, also those that wait for room in their queues: they were acknowledged to the master, and
        perhaps to producers.
        """
        if self.whole is not None and self._file_start <= self.whole < self.end:
            end = self._behind_whole_units(self.whole)
            self._data[end - self._file_start : self.end - self._file_start] = bytes(self.end - end)
            self._rewinds += 1
            self.end, self.flushed = end, min(self.flushed, end)

    def _behind_whole_units(self, start: int) -> PhysicalOffset:
        """The offset of the partial unit after `start` in the file being written; `end` if there is none."""
        file_start = self._file_start
        walk = Walk(self.files.files[-1].view[: self.end - file_start], file_start, start - file_start)
        for _ in walk:
            pass
        if self.end == self._file_end and walk.ended in (WalkEnd.BLANK, WalkEnd.FILE_END):
            return self.end  # the file is closed
        return PhysicalOffset(file_start + walk.position)

    def begin_copy_at(self, start: int) -> None:
        """Let a log without messages begin at `start`, the start of a file of the master's."""
        with self._flushing, self._reserving:
            self.files.forget(self._ahead)
            self._ahead.clear()
            self._data, self._file = bytearray(), None
            self._file_start = self._file_end = 0
            self.begin_at(start, flushed=start, clean=True)
            self.whole = self.end

    def make_room(self, size: int) -> PhysicalOffset:
        """The position for `size` bytes of units, in the next file if this one has no room.

        OSError if the disk has no room, TimeoutError if it does not respond in time, BlockingIOError if the file needs
        a buffer and none is free, or the system has no map for it; the log is then unchanged.
        """
        needed = size + BLANK.size
        with self._reservation():
            start = self.end if self.end + needed <= self._file_end else self._next_start()
            self._reserved = max(self._reserved, start)
            while self._reserved < start + needed:
                self._reserve_step()
            if start >= self._file_end:
                if self.staging is not None and self.staging.lacks_buffer:
                    raise BlockingIOError("every buffer of the transient pool waits to be committed")
                self._next_file(start)
            self.limit = min(self._reserved, self._file_end) - BLANK.size
        return self.end

    @contextmanager
    def _reservation(self) -> Iterator[None]:
        """Wait for the worker, which may be in the middle of a step. After one timeout no other caller waits."""
        if not self._reserving.acquire(timeout=0 if self._is_slow else self._patience_s):
            self._is_slow = True
            # The worker may have finished and reported before this was set. If it has all blocks it needs it would
            # never report again, and every message would be refused.
            if not self._reserving.acquire(blocking=False):
                raise TimeoutError(f"no room for messages within {self._patience_s:g} s")
        self._is_slow = False
        try:
            yield
        finally:
            self._reserving.release()

    def _next_start(self) -> int:
        return self._file_end or self.files.start_of(self.end)

    def _next_file(self, start: int) -> None:
        """Close the file with a blank record and begin the one made ahead."""
        if self._file_end > self.end:  # after a start nothing may be claimed behind the last message
            self.files.files[-1].reserve(self.end - self._file_start, BLANK.size)
        file = self._ahead.popleft()  # reserving beyond the last file has made it
        stop = int(self.end)
        if self._file_end > self.end:  # a start may find the last file closed already
            BLANK.pack_into(self._data, self.end - self._file_start, start - self.end, BLANK_MAGIC)
            stop += BLANK.size
        self.files.add(file)
        if self.staging is not None:
            self.staging.leave(stop)
            self._write_into(self.staging.begin(file, start), file)
        else:
            self._write_into(file.data, file)
        self.end = PhysicalOffset(start)

    def reserve_ahead(self) -> bool:
        """Allocate blocks ahead of the writer, on a worker. Whether there is more to do. OSError if the disk is
        full.
        """
        if self.warmer is not None:
            self.warmer.leave(self.files.files[-1] if self.files.files else None)
        ahead = RESERVE_AHEAD if self.warmer is None else self.files.file_size
        for _ in range(STEPS_A_TURN):
            if not self._data or self._reserved >= self.end + ahead:
                return False
            with self._reserving:
                is_enough = self._reserved >= self.files.end + FILES_AHEAD * self.files.file_size  # of whole files
                step = None if is_enough else self._reserve_step()
            self._is_slow = False  # after the release: a caller that still found it locked has set it before
            if step is None:
                return False
            file, position, size = step
            if self.warmer is not None:
                self.warmer.warm(file, position, size)
            elif self._called_to != self.end:  # writes by a call need no pages
                file.warm(position, size)
        return True

    def _reserve_step(self) -> tuple[MappedFile, int, int]:
        position = self._reserved % self.files.file_size
        step = min(RESERVE_STEP, self.files.file_size - position)
        file = self.files.find(self._reserved)
        if file is None and position == 0:
            file = self.files.create_with(self._reserved, step)
            self._ahead.append(file)
        else:
            file = file or self._ahead[-1]
            file.reserve(position, step)
        self._reserved += step
        return file, position, step

    # ------------------------------------------------------------------------------------------------------ reading

    def slice(self, offset: int, size: int) -> memoryview | None:
        """`size` bytes at `offset`, without a copy; None when they are not (or no longer) in one file of the log."""
        start, files = self.files.stream
        file_size: i64 = self.files.file_size
        if offset < start:
            return None
        distance: i64 = offset - start
        length: i64 = size
        position = distance % file_size
        end = position + length
        if length < 0 or distance > self.readable - start - length or end > file_size:
            return None
        return files[distance // file_size].view[position:end]

    def unit_at(self, offset: int) -> memoryview | None:
        """The bytes of the unit that begins at `offset`, judged by its size field alone."""
        head = self.slice(offset, INT32.size)
        if head is None:
            return None
        (size,) = INT32.unpack(head)
        return self.slice(offset, size) if size > 0 else None

    def copy_of_unit(self, offset: int, read: Read) -> bytes | None:
        """`unit_at` as a copy, for readers that must not touch a page of the map. Raises what `read` raises."""
        file, place = self.files.find(offset), offset % self.files.file_size
        room = min(self.readable - offset, self.files.file_size - place)
        if file is None or room < INT32.size:
            return None
        data = read(file, place, min(room, max(INT32.size, PAGE - place % PAGE)))  # most end on the page they begin on
        size = INT32.unpack_from(data)[0] if data else 0
        if not 0 < size <= room:
            return None
        return data[:size] if size <= len(data) else data + read(file, place + len(data), size - len(data))

    # ------------------------------------------------------------------------------------------------ flush and close

    def flush(self) -> PhysicalOffset:
        """Return when what was appended before the call is on disk. OSError if it is not. Thread-safe."""
        with self._flushing:
            end, rewinds = self.written, self._rewinds
            if end > self.flushed:
                self.files.sync(self.flushed, end)
                if rewinds != self._rewinds:
                    return self.flushed  # the bytes after it may have changed
                self.flushed = end
            return end

    def close(self) -> None:
        """Close the files; remove preallocated ones, the last one first: a crash must not leave a gap."""
        self._data, self._file = bytearray(), None
        while self._ahead:
            self.files.discard(self._ahead.pop())
        self.files.close()
