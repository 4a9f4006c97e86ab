"""Read-only access to a store directory, live or copied, for tools and for Spark. Takes no lock and writes nothing.

What a live broker appends meanwhile is seen by the next reader; file sizes are taken from the files themselves.
Readers know no options and no broker.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from orbitmq.errors import StoreError
from orbitmq.message.unit import Unit, decode_unit
from orbitmq.store.files import Files
from orbitmq.store.numbered import NumberedFiles
from orbitmq.store.positions import PhysicalOffset, QueueOffset
from orbitmq.store.queue import ENTRY, ENTRY_SIZE, FILLER_SIZE, Entry
from orbitmq.store.walk import Walk, WalkEnd

LOOKS = 10  # a live broker may remove its oldest file between the look for names and the look at the file


class QueueReader:
    """One queue as it was when it was opened. Offsets are `min_offset` .. `max_offset - 1`."""

    def __init__(self, files: NumberedFiles) -> None:
        self._files = files
        self.max_offset = QueueOffset(_end_of_entries(files))
        self.min_offset = QueueOffset(self._first_message())

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        """(physical offset, size, code) of the entries from `start` up to, not including, `stop`."""
        position, end = max(start, self.min_offset) * ENTRY_SIZE, min(stop, self.max_offset) * ENTRY_SIZE
        while position < end and (file := self._files.find(position)) is not None:
            file_start = self._files.start_of(position)
            stop_here = min(end - file_start, self._files.file_size)
            yield from ENTRY.iter_unpack(file.view[position - file_start : stop_here])
            position = file_start + stop_here

    def _first_message(self) -> int:
        first = self._files.start // ENTRY_SIZE
        return bisect_left(range(self.max_offset), True, first, self.max_offset, key=self._is_message)

    def _is_message(self, queue_offset: int) -> bool:
        return _entry(self._files, queue_offset)[1] != FILLER_SIZE


class StoreReader:
    """The store directory `root`. `commit_logs` are the directories of the commit log, those that get no new files
    among them, when it does not lie in `commitlog` below `root`.
    """

    def __init__(self, root: Path, *, commit_logs: Sequence[Path] = (), files: Files | None = None) -> None:
        self._door = files or Files()
        self._queues = root / "consumequeue"
        self._log = self._load(*commit_logs or (root / "commitlog",))
        self._open: list[NumberedFiles] = [self._log]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the files go; buffers handed out stay valid."""
        for files in self._open:
            files.close()

    def queues(self) -> list[tuple[str, int]]:
        """(topic, queue id) of every queue, sorted."""
        return sorted(
            (topic, int(name))
            for topic in self._door.names(self._queues)
            for name in self._door.names(self._queues / topic)
            if name.isdecimal()
        )

    def queue(self, topic: str, queue_id: int) -> QueueReader:
        """A queue; one that does not exist is empty."""
        files = self._load(self._queues / topic / str(queue_id))
        self._open.append(files)
        return QueueReader(files)

    def unit(self, physical_offset: int, size: int) -> memoryview | None:
        """The bytes of a unit, uncopied; None when its file is gone."""
        file = self._log.find(physical_offset)
        position = physical_offset % self._log.file_size if file is not None else 0
        if file is None or position + size > self._log.file_size:
            return None
        return file.view[position : position + size]

    def units(self, topic: str, queue_id: int, start: int, stop: int) -> Iterator[Unit]:
        """The messages of a queue in a range of offsets; those whose file is gone are left out."""
        for physical_offset, size, _ in self.queue(topic, queue_id).entries(start, stop):
            data = self.unit(physical_offset, size)
            if data is not None:
                yield decode_unit(data)

    def log_units(self) -> Iterator[Unit]:
        """Every message of the log in the order of storing, up to the first that is not whole."""
        for file_start in range(self._log.start, self._log.end, self._log.file_size):
            file = self._log.find(file_start)
            assert file is not None, "files follow one another without gaps"
            walk = Walk(file.view, file_start)
            yield from walk
            if walk.ended is not WalkEnd.BLANK:
                return

    @property
    def min_physical_offset(self) -> PhysicalOffset:
        """Where the log begins."""
        return PhysicalOffset(self._log.start)

    def _load(self, *directories: Path) -> NumberedFiles:
        for _ in range(LOOKS):
            files = self._files_of(*directories)
            try:
                files.load(writable=False)
            except FileNotFoundError:
                files.close()
            else:
                return files
        raise StoreError(f"{directories[0]}: its files are removed faster than they can be opened")

    def _files_of(self, directory: Path, *more: Path) -> NumberedFiles:
        """Not loaded yet; a file without a size is about to get one."""
        sizes = (self._door.size(each / name) for each in (directory, *more) for name in self._door.names(each))
        return NumberedFiles(self._door, directory, next((size for size in sizes if size > 0), ENTRY_SIZE), more=more)


def _entry(files: NumberedFiles, queue_offset: int) -> Entry:
    position = queue_offset * ENTRY_SIZE
    file = files.find(position)
    assert file is not None, "the search stays inside the queue"
    return ENTRY.unpack_from(file.view, position - files.start_of(position))


def _end_of_entries(files: NumberedFiles) -> int:
    """Number of the first entry that was never written; entries are written in order."""
    if not files.files:
        return 0
    filled = files.end - files.file_size + len(files.files[-1].filled)
    first, last = files.start // ENTRY_SIZE, filled // ENTRY_SIZE
    return bisect_left(range(last), True, first, last, key=lambda number: _entry(files, number)[1] <= 0)
