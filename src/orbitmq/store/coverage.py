"""After a crash: which queue entries are valid, and from where the log must be scanned to restore all of them.

Entries of messages below `settled` were flushed before the checkpoint was written. Later ones may be missing, torn or
stale; the scan writes them again. But files that were flushed long ago can also be damaged or lost. So every entry
below `settled` is checked, and a queue is cut at the first that does not follow its predecessor. If the sizes of all
entries that point into a log file add up to what the file contains, it need not be read. In any other file the parts
that no entry points to are read, and their messages are looked up one by one.

Light queues contain messages that are in other queues as well, so this does not detect what they lack. They are rebuilt
if one of their files is missing, or begins with an entry that should have been reached.
"""

from __future__ import annotations

import heapq
import logging
import struct
from collections import Counter
from collections.abc import Iterator
from operator import add
from typing import NamedTuple

from orbitmq.errors import UnitError
from orbitmq.message.topics import KEPT_TOPICS, is_lmq
from orbitmq.message.unit import BLANK, BLANK_MAGIC, Unit, decode_unit
from orbitmq.runtime.clock import Clock
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import is_queued
from orbitmq.store.numbered import NumberedFiles
from orbitmq.store.positions import NO_OFFSET
from orbitmq.store.progress import Progress
from orbitmq.store.queue import ENTRY, ENTRY_SIZE, FAR_AWAY, FILLER_SIZE, ConsumeQueue, whole_entries
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.walk import Walk

_log = logging.getLogger(__name__)

CHUNK = 500  # entries checked at a time: ten times as fast as one by one
PLACES = struct.Struct(">" + "q12x" * CHUNK)
SIZES = struct.Struct(">" + "8xi8x" * CHUNK)
PLACE_AND_SIZE = struct.Struct(">qi8x")


class Proof(NamedTuple):
    """The queues hold everything of the log below `start`; so many bytes of the log were read to know it."""

    start: int
    bytes_read: int


def prove(log: CommitLog, queues: ConsumeQueues, settled: int, clock: Clock) -> Proof:
    """Cut every queue behind its last entry that is believed, and find the start of the first file of the log that has
    messages below `settled` which a queue lacks; `settled` when none has.
    """
    coverage = Coverage(log)
    start = min((coverage.cut(queue, settled) for queue in watched(queues, clock)), default=settled)
    if start < settled:
        _log.warning("event=queues_torn walked_from=%d", start)
    if all(map(is_empty, queues)):
        return Proof(log.files.start, 0)  # nothing of the queues has survived
    return coverage.first_gap(queues, start, clock)


def watched(queues: ConsumeQueues, clock: Clock) -> Iterator[ConsumeQueue]:
    """The queues; progress is logged every few seconds, in bytes of their files."""
    done, sizes = 0, {queue: queue.files.end - queue.files.start for queue in queues}
    progress = Progress(clock, 0, sum(sizes.values()), "queues_checking")
    for queue, size in sizes.items():
        yield queue
        done += size
        if done >= progress.next_look:
            progress.look(done)


class Coverage:
    """How much of each file of the log the queues hold."""

    def __init__(self, log: CommitLog) -> None:
        self._files = log.files
        self._bytes: Counter[int] = Counter()  # start of a file -> bytes of messages in it that have an entry
        self._ends: dict[int, int] = {}  # and where the last one of these ends

    def cut(self, queue: ConsumeQueue, settled: int) -> int:
        """Cut the queue before the first invalid entry. Returns where to look for the messages below `settled` that it
        lost: in the log file of its last remaining one.
        """
        number = self.end_of(queue, settled)
        is_torn = queue.lost_files or _is_torn(queue, number, settled)
        queue.cut(number)
        return self._files.start_of(max(self._files.start, queue.max_physical_offset)) if is_torn else settled

    def end_of(self, queue: ConsumeQueue, settled: int) -> int:
        """The number of the first entry of the queue that is not believed, for entries of messages below `settled`."""
        number, last_end = queue.files.start // ENTRY_SIZE, 0
        for file in queue.files.files:
            view = whole_entries(file.filled)
            position = _fillers(view)
            number += position // ENTRY_SIZE
            for places, sizes in _chunks(view, position):
                good = _count_good(places, sizes, last_end, settled)
                if good:
                    last_end = places[good - 1] + sizes[good - 1]
                    if not is_lmq(queue.topic):
                        self._add(places[:good], sizes[:good])
                number += good
                if good < len(places):
                    return number
            if len(view) < file.size:
                break
        return number

    def _add(self, places: tuple[int, ...], sizes: tuple[int, ...]) -> None:
        first, last = map(self._files.start_of, (places[0], places[-1]))
        if first == last:
            self._bytes[first] += sum(sizes)
            self._ends[first] = max(self._ends.get(first, 0), places[-1] + sizes[-1])
            return
        for place, size in zip(places, sizes, strict=True):
            start = self._files.start_of(place)
            self._bytes[start] += size
            self._ends[start] = max(self._ends.get(start, 0), place + size)

    def holds_all_of(self, start: int) -> bool:
        """Whether the messages with an entry fill the file of the log that starts there, up to its blank record."""
        end = self._ends.get(start, 0)
        file = self._files.find(start)
        if file is None or end - start != self._bytes[start] or end - start > self._files.file_size - BLANK.size:
            return False
        left = start + self._files.file_size - end
        return BLANK.unpack_from(file.view, end - start) == (left, BLANK_MAGIC)

    def first_gap(self, queues: ConsumeQueues, limit: int, clock: Clock) -> Proof:
        """The start of the first file below `limit` with a message that a queue lacks, else `limit`."""
        first, size, read = self._files.start, self._files.file_size, 0
        expected = _Expected(self._files, queues)
        progress = Progress(clock, first, limit, "log_checking")
        for start in range(first, limit, size):
            missing, looked_at = self._scan_uncovered(queues, expected, start)
            read += looked_at
            progress.skip(size - looked_at)
            if missing is not None:
                return Proof(first if expected.is_within(missing) else start, read)
            if start + size >= progress.next_look:
                progress.look(start + size)
        return Proof(limit, read)

    def _scan_uncovered(self, queues: ConsumeQueues, expected: _Expected, start: int) -> tuple[Unit | None, int]:
        """The first message of the file that starts there which a queue lacks, and how many bytes were read for it."""
        read = 0
        file = self._files.find(start)
        if file is None or self.holds_all_of(start):
            return None, read
        for begin, end in self._parts_without_entry(queues, start):
            for unit in Walk(file.view, start, begin - start, check_crc=False):
                if unit.physical_offset >= end:
                    break
                read += unit.size
                if expected.includes(unit):
                    return unit, read
        return None, read

    def _parts_without_entry(self, queues: ConsumeQueues, start: int) -> Iterator[tuple[int, int]]:
        """(begin, end) of the parts of the file to which no entry points."""
        position, end = start, start + self._files.file_size
        entries = [queue.places(start, end) for queue in queues if not is_lmq(queue.topic)]
        for place, size in heapq.merge(*entries):
            if place > position:
                yield position, place
            position = max(position, place + size)
        if position < end:
            yield position, end


def _is_torn(queue: ConsumeQueue, number: int, settled: int) -> bool:
    """Whether the queue has entries of messages below `settled` from `number` on, the first of which is invalid.

    For later files the first entry decides: a preallocated file is all zero.
    """
    in_file = queue.files.file_size // ENTRY_SIZE
    later = range(number - number % in_file + in_file, queue.files.end // ENTRY_SIZE, in_file)
    return any(size > 0 and place < settled for place, size, _ in map(queue.stored_entry, (number, *later)))


def is_empty(queue: ConsumeQueue) -> bool:
    """Whether nothing is left of it, or never was."""
    return queue.max_physical_offset == NO_OFFSET


class _Expected:
    """Which messages the queues must have, by the entries they have left."""

    def __init__(self, log: NumberedFiles, queues: ConsumeQueues) -> None:
        self._log = log
        self._queues = queues
        self._firsts = {queue: queue.first_place() for queue in queues}
        self._begins: dict[str, int] = {}  # topic -> its first message that has an entry
        for queue, first in self._firsts.items():
            if first != FAR_AWAY:
                self._begins[queue.topic] = min(first, self._begins.get(queue.topic, first))

    def includes(self, unit: Unit) -> bool:
        """Whether the message, to which no entry points, should have one.

        It should not if it is older than the remaining part of its queue, or of its topic without that queue, which was
        then removed and recreated; nor if no queue of the topic remains, which is what a deleted topic looks like. Some
        topics are never deleted. And it cannot if another message has its queue offset: a RocketMQ broker that had lost
        the entry reused it.
        """
        if not is_queued(unit.sys_flag):
            return False
        queue = self._queues.table.get((unit.topic, unit.queue_id))
        if queue is not None:
            if is_empty(queue) or unit.queue_offset * ENTRY_SIZE < queue.files.start:
                return True
            return unit.physical_offset > self._firsts[queue] and not self._is_taken(queue, unit)
        if unit.topic in KEPT_TOPICS:
            return True
        return self._queues.has_directory(unit.topic) and unit.physical_offset >= self._begins.get(unit.topic, 0)

    def _is_taken(self, queue: ConsumeQueue, unit: Unit) -> bool:
        """Whether the entry with the message's number is that of another message of this number."""
        entry = queue.entry(unit.queue_offset)
        file = self._log.find(entry[0]) if entry is not None else None
        if entry is None or file is None:
            return False
        try:
            other = decode_unit(file.view, entry[0] % file.size, with_body=False)
        except UnitError:
            return False
        return (other.topic, other.queue_id, other.queue_offset) == (unit.topic, unit.queue_id, unit.queue_offset)

    def is_within(self, unit: Unit) -> bool:
        """Whether more may be missing before it: its queue is gone, and this is not the first message."""
        return unit.queue_offset > 0 and (unit.topic, unit.queue_id) not in self._queues.table


def _fillers(view: memoryview) -> int:
    """Bytes at a file's beginning for messages that had expired before the queue was created."""
    position = 0
    while position < len(view) and ENTRY.unpack_from(view, position)[1] == FILLER_SIZE:
        position += ENTRY_SIZE
    return position


def _chunks(view: memoryview, position: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Places and sizes of the entries from `position` on, some hundred at a time."""
    while position + PLACES.size <= len(view):
        yield PLACES.unpack_from(view, position), SIZES.unpack_from(view, position)
        position += PLACES.size
    rest = list(PLACE_AND_SIZE.iter_unpack(view[position:]))
    if rest:
        places, sizes = zip(*rest, strict=True)
        yield places, sizes


def _count_good(places: tuple[int, ...], sizes: tuple[int, ...], last_end: int, settled: int) -> int:
    """How many entries follow one another and lie below `settled`."""
    ends = (last_end, *map(add, places, sizes))
    if min(sizes) > 0 and places[-1] < settled and all(map(int.__le__, ends, places)):
        return len(places)
    count = 0
    for place, size, end in zip(places, sizes, ends, strict=False):
        if size <= 0 or place >= settled or place < end:
            break
        count += 1
    return count
