"""A stopped or live store as its messages, read through maps of its files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from orbitmq.message.unit import Unit, decode_unit
from orbitmq.store.files import Files
from orbitmq.store.numbered import NumberedFiles
from orbitmq.store.positions import QueueOffset
from orbitmq.store.queue import ENTRY, ENTRY_SIZE, FILLER_SIZE, Entry
from orbitmq.store.walk import Walk, WalkEnd


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
    """The store directory `root`."""

    def __init__(self, root: Path) -> None:
        self._fs = Files()
        self._queues = root / "consumequeue"
        self._log = self._load(root / "commitlog")
        self._open: list[NumberedFiles] = [self._log]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; buffers handed out stay valid."""
        for files in self._open:
            files.close()

    def queues(self) -> list[tuple[str, int]]:
        """(topic, queue id) of every queue, sorted."""
        return sorted(
            (topic, int(name))
            for topic in self._fs.names(self._queues)
            for name in self._fs.names(self._queues / topic)
            if name.isdecimal()
        )

    def queue(self, topic: str, queue_id: int) -> QueueReader:
        """A queue; one that does not exist is empty."""
        files = self._load(self._queues / topic / str(queue_id))
        self._open.append(files)
        return QueueReader(files)

    def unit(self, physical_offset: int, size: int) -> memoryview | None:
        """The bytes of a unit, uncopied; None if its file has expired."""
        file = self._log.find(physical_offset)
        position = physical_offset % self._log.file_size if file is not None else 0
        if file is None or position + size > self._log.file_size:
            return None
        return file.view[position : position + size]

    def units(self, topic: str, queue_id: int, start: int, stop: int) -> Iterator[Unit]:
        """The messages of a queue in a range of offsets, without those whose file has expired."""
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

    def _load(self, directory: Path) -> NumberedFiles:
        sizes = (self._fs.size(directory / name) for name in self._fs.names(directory))
        files = NumberedFiles(self._fs, directory, next((size for size in sizes if size > 0), ENTRY_SIZE))
        files.load(writable=False)
        return files


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
