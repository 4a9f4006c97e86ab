"""Scans a part of a commit log in large steps: runs of units, and damaged bytes between them.

A part may start anywhere. Its first unit is found by the magic number and by the physical offset inside each unit: a
copy of a unit within a body has another offset. A forged body could have the right one, so with queues the caller first
looks up the message that the part starts in (`behind_unit_at`). A unit belongs to the part that contains its first
byte, so adjacent parts have every unit once. Knows no Spark, columns or options.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from orbitmq.errors import UnitError
from orbitmq.message.unit import BLANK, BLANK_MAGIC, INT64, TOPIC_LENGTHS, UNIT_OVERHEAD
from orbitmq.spark.damage import MAGIC_AT, MAGIC_START
from orbitmq.spark.units import SIZE_AND_MAGIC, Positions, Units, unit_run
from orbitmq.store.reader import LogFiles, StoreDirectory

WINDOW_SIZE = 6 << 20  # thousands of units: enough for column operations, and fits a cache
SPARE_SIZE = 64 << 10  # bytes read after a small part: most messages that start in it end there
PHYSICAL_OFFSET_AT = 28  # of a unit
HEAD_SIZE = PHYSICAL_OFFSET_AT + INT64.size


class Damage(NamedTuple):
    """A range of the log without a whole unit, by physical offsets, and its file."""

    start: int
    end: int
    path: Path
    text: str


class Gone(NamedTuple):
    """A range of the log whose file does not exist (any more)."""

    start: int
    end: int
    path: Path


class Run(NamedTuple):
    """Units at their own physical offsets. The buffer is reused for the next run."""

    units: Units
    path: Path


Found = Run | Damage | Gone
FILE_IS_OVER = "the file is over"


class LogFile:
    """One file of the log, open for reading. FileNotFoundError when it does not exist (any more)."""

    def __init__(self, path: Path, start: int, size: int) -> None:
        self.path = path
        self.start = start
        self.end = start + size
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill the buffer from a physical offset on. Returns the number of bytes read."""
        done = 0
        while done < len(buffer) and (
            count := os.preadv(self._descriptor, [buffer[done:]], offset - self.start + done)
        ):
            done += count
        return done

    @property
    def is_there(self) -> bool:
        """Whether it still has its name: brokers unlink a file first and free its blocks later."""
        return self.path.exists()


class LogWalk:
    """Iterates once over the log from `start` to before `end`.

    `is_aligned`: a unit, or the record that closes a file, begins at `start`. Otherwise one is searched for.
    `range_end` is the end of the parts after `end` that other walks read.
    """

    def __init__(
        self,
        log: LogFiles,
        start: int,
        end: int,
        *,
        is_aligned: bool = False,
        range_end: int = 0,
        window_size: int = WINDOW_SIZE,
    ) -> None:
        self._log = log
        self._start = start
        self._end = end
        self._is_aligned = is_aligned
        self._range_end = range_end
        self._window = bytearray(min(window_size, max(0, end - start) + SPARE_SIZE))

    def __iter__(self) -> Iterator[Found]:
        position, log = self._start, self._log
        while position < self._end:
            file_start = log.start_of(position)
            file_end = file_start + log.file_size if log.file_size else self._end
            path, end = log.path(file_start), min(file_end, self._end)
            try:
                file = LogFile(path, file_start, file_end - file_start)
            except FileNotFoundError:
                yield Gone(position, end, path)
            else:
                with file:
                    yield from self._in_file(file, position, end)
            position = file_end

    def _in_file(self, file: LogFile, position: int, end: int) -> Iterator[Found]:
        if position > file.start and not (self._is_aligned and position == self._start):
            position = self._next_unit(file, position, end)
        while position < end:
            count = self._load(file, position)
            window = memoryview(self._window)[:count]
            positions, stop = unit_run(window, end - position)
            if len(positions):
                stop = yield from _intact(window, positions, stop, position, file.path)
            position += stop
            if stop and end <= position < min(self._range_end, file.end):
                yield from self._edge(file, position)
            if position < end and (text := self._why(file, position, window[stop:], is_first=not stop)):
                if text == FILE_IS_OVER:
                    return
                following = self._next_unit(file, position + 1, end)
                yield _hole(file, position, following, text)
                position = following

    def _load(self, file: LogFile, position: int) -> int:
        size = min(len(self._window), file.end - position)
        return file.read_into(memoryview(self._window)[:size], position)

    def _why(self, file: LogFile, position: int, rest: memoryview, *, is_first: bool) -> str:
        """Why no unit follows in the window. Empty when the next unit continues after it."""
        left = file.end - position
        if left < BLANK.size:
            return FILE_IS_OVER
        if len(rest) < BLANK.size:
            return "the file is cut off" if is_first else ""
        size, magic = BLANK.unpack_from(rest)
        if magic == BLANK_MAGIC:
            return FILE_IS_OVER if size == left else f"the record at the end of the file has {size} bytes left"
        if magic in TOPIC_LENGTHS and len(rest) < size <= left:
            return self._too_large(size) if is_first else ""
        if magic in TOPIC_LENGTHS and size >= UNIT_OVERHEAD and len(rest) >= HEAD_SIZE:
            (offset,) = INT64.unpack_from(rest, PHYSICAL_OFFSET_AT)
            if offset != position:
                return f"a message is here that belongs to {offset}"
        if size == magic == 0:
            return "nothing was written here, but the log continues"
        return "a message begins here that is not whole" if magic in TOPIC_LENGTHS else "no message begins here"

    def _too_large(self, size: int) -> str:
        """Grow the window for this message, unless the file ends."""
        if len(self._window) >= size:
            return "the file is cut off"
        self._window = bytearray(size)
        return ""

    def _next_unit(self, file: LogFile, position: int, end: int) -> int:
        """The start of the first unit at or after a position, or `end`."""
        while position < end:
            count = self._load(file, position)
            found = find_unit(self._window, count, position, file.end, end)
            if found is not None:
                return found
            if count < len(self._window):
                break
            position += count - HEAD_SIZE + 1
        return end

    def _edge(self, file: LogFile, position: int) -> Iterator[Found]:
        """Report damage right after the last unit, which the search of the next part would skip."""
        head = bytearray(HEAD_SIZE)
        count = file.read_into(memoryview(head), position)
        is_over = count < BLANK.size or BLANK.unpack_from(head)[1] == BLANK_MAGIC
        if not is_over and find_unit(head, count, position, file.end, position + 1) is None:
            yield _hole(file, position, position, "no whole message begins here")


def next_unit(directory: StoreDirectory, position: int, end: int) -> int:
    """The physical offset of the first unit at or after a position, or `end`."""
    for found in LogWalk(directory.log(), directory.behind_unit_at(position), end):
        if isinstance(found, Run):
            return int(found.units.field("physical_offset")[0])
    return end


def find_unit(buffer: bytearray, count: int, base: int, file_end: int, end: int) -> int | None:
    """The physical offset of the first unit below `end` in a buffer whose first `count` bytes are at `base`. Its magic
    number and offset must be right, and it must end within the file.
    """
    at = MAGIC_AT
    while (at := buffer.find(MAGIC_START, at, count)) >= 0:
        start = at - MAGIC_AT
        if base + start >= end or start + HEAD_SIZE > count:
            return None
        size, magic = SIZE_AND_MAGIC.unpack_from(buffer, start)
        if (
            INT64.unpack_from(buffer, start + PHYSICAL_OFFSET_AT)[0] == base + start
            and magic in TOPIC_LENGTHS
            and UNIT_OVERHEAD <= size <= file_end - base - start
        ):
            return base + start
        at += 1
    return None


def _intact(window: memoryview, positions: Positions, stop: int, base: int, path: Path) -> Generator[Run, None, int]:
    """The units with consistent lengths at their own offsets. Returns where they end in the window."""
    try:
        yield Run(_placed(window, positions, base), path)
    except UnitError:
        count = _count_intact(window, positions, base)
        if count:
            yield Run(_placed(window, positions[:count], base), path)
        return int(positions[count])
    return stop


def _placed(window: memoryview, positions: Positions, base: int) -> Units:
    units = Units(window, positions)
    if (units.field("physical_offset") != positions + base).any():
        raise UnitError("a unit is at the wrong offset")
    return units


def _count_intact(window: memoryview, positions: Positions, base: int) -> int:
    for count in range(len(positions)):
        try:
            _placed(window, positions[count : count + 1], base)
        except UnitError:
            return count
    raise AssertionError("a run with a fault has a unit with one")


def _hole(file: LogFile, start: int, end: int, text: str) -> Damage | Gone:
    """Damaged bytes, or a gap when the broker has removed the file meanwhile."""
    return Damage(start, end, file.path, text) if file.is_there else Gone(start, end, file.path)
