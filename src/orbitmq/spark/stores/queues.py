"""Consume queues as tables: the physical offsets of messages of selected topics, and the entries themselves.

Queue entries are verified: a unit is accepted only if it has the physical offset of its entry. Knows no Spark or
options.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from orbitmq.errors import UnitError
from orbitmq.message.unit import MAGIC, MAGIC_LONG_TOPIC, UNIT_OVERHEAD
from orbitmq.spark.stores.log import WINDOW_SIZE, Damage, Found, Gone, LogFile, Run
from orbitmq.spark.topic_names import TopicNames
from orbitmq.spark.units import HEAD, Units, records_at
from orbitmq.store.reader import NO_MESSAGE_SIZE, LogFiles, StoreDirectory

ENTRY = np.dtype([("place", ">i8"), ("size", ">i4"), ("code", ">i8")])
GAP_MAX = 32 << 10  # bytes of other topics that are read along, which is cheaper than another read

Entries = NDArray[np.void]


def written(data: bytes) -> Entries:
    """The entries of a queue file before the first empty one."""
    entries = np.frombuffer(data, ENTRY)
    empty = entries["size"] <= 0
    return entries[: int(np.argmax(empty))] if empty.any() else entries


def places(directory: StoreDirectory, topics: TopicNames, begin: int, end: int) -> tuple[NDArray[np.int64], ...]:
    """Physical offset and size of the messages of `topics` that start from `begin` to before `end`, in log order."""
    found = [np.empty(0, ENTRY)]
    for topic, queue_id in directory.queues():
        if topic in topics:
            for _, data in directory.entries(topic, queue_id, begin, end):
                entries = written(data)
                found.append(entries[(entries["place"] >= begin) & (entries["place"] < end) & is_message(entries)])
    together = np.concatenate(found)
    at, first = np.unique(together["place"].astype(np.int64), return_index=True)
    return at, together["size"][first].astype(np.int64)


def is_message(entries: Entries) -> NDArray[np.bool_]:
    """Which entries have a message. The others fill the queue before its first message."""
    mask: NDArray[np.bool_] = entries["size"] != NO_MESSAGE_SIZE
    return mask


class PlaceWalk:
    """Iterates once over the units at ascending physical offsets."""

    def __init__(self, log: LogFiles, at: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        self._log = log
        self._at = at
        self._sizes = sizes
        self._window = bytearray(WINDOW_SIZE)

    def __iter__(self) -> Iterator[Found]:
        log = self._log
        if not len(self._at):
            return
        numbers = self._at // log.file_size if log.file_size else np.zeros_like(self._at)
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(self._at)]
        for first, last in pairwise(bounds):
            start = log.start_of(int(self._at[first]))
            path = log.path(start)
            try:
                file = LogFile(path, start, log.file_size)
            except FileNotFoundError:
                yield Gone(int(self._at[first]), int(self._at[last - 1] + self._sizes[last - 1]), path)
            else:
                with file:
                    yield from self._in_file(file, first, last)

    def _in_file(self, file: LogFile, first: int, last: int) -> Iterator[Found]:
        """Read windows with as many messages as fit, each stretch without larger gaps in one read."""
        while first < last:
            near = slice(first, min(last, first + WINDOW_SIZE // UNIT_OVERHEAD))
            ends = np.cumsum(self._sizes[near] + _gaps_before(self._at[near], self._sizes[near]))
            count = max(1, int(np.searchsorted(ends, len(self._window), "right")))
            if ends[0] > len(self._window):
                self._window = bytearray(int(min(ends[0], file.end - file.start)))
            yield from self._units(file, self._at[first : first + count], self._sizes[first : first + count])
            first += count

    def _units(self, file: LogFile, at: NDArray[np.int64], sizes: NDArray[np.int64]) -> Iterator[Found]:
        gaps = _gaps_before(at, sizes)
        positions = np.cumsum(gaps + sizes) - sizes
        window = memoryview(self._window)
        heads = np.flatnonzero((gaps == 0) & (np.append(True, at[1:] != at[:-1] + sizes[:-1])))
        for head, behind in zip(heads.tolist(), [*heads.tolist()[1:], len(at)], strict=True):
            start, end = int(positions[head]), int(positions[behind - 1] + sizes[behind - 1])
            if end > len(window) or file.read_into(window[start:end], int(at[head])) < end - start:
                yield _missing(file, at[head:], sizes[head:], "the file is cut off")
                at, sizes, positions = at[:head], sizes[:head], positions[:head]
                break
        if len(at):
            yield from _units_at(file, window, positions, at, sizes)


def _gaps_before(at: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes read along before each message: the gap to the previous one, 0 for a large gap."""
    gaps = np.zeros(len(at), np.int64)
    gaps[1:] = at[1:] - at[:-1] - sizes[:-1]
    return np.where((gaps < 0) | (gaps > GAP_MAX), 0, gaps)


def _units_at(
    file: LogFile, window: memoryview, positions: NDArray[np.int64], at: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Iterator[Found]:
    """The units. They are bisected when one does not match its entry."""
    try:
        yield Run(_exactly(window, positions, at, sizes), file.path)
    except UnitError:
        if len(at) == 1:
            yield _missing(file, at, sizes, "a queue entry points here, but there is no such message")
            return
        middle = len(at) // 2
        for half in (slice(None, middle), slice(middle, None)):
            yield from _units_at(file, window, positions[half], at[half], sizes[half])


def _exactly(
    window: memoryview, positions: NDArray[np.int64], at: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Units:
    window = window[: int(positions[-1] + sizes[-1])]
    if (sizes < UNIT_OVERHEAD).any():
        raise UnitError("a queue entry has a size below the minimum")
    heads = records_at(window, HEAD, positions)
    is_unit = (heads["magic"] == MAGIC) | (heads["magic"] == MAGIC_LONG_TOPIC)
    if not (is_unit & (heads["physical_offset"] == at) & (heads["size"] == sizes)).all():
        raise UnitError("a queue entry does not point to a message")
    return Units(window, positions)


def _missing(file: LogFile, at: NDArray[np.int64], sizes: NDArray[np.int64], text: str) -> Damage | Gone:
    start, end = int(at[0]), int(at[-1] + sizes[-1])
    return Damage(start, end, file.path, text) if file.is_there else Gone(start, end, file.path)
