"""A consume queue: 20 bytes for each message of one queue, pointing into the commit log.

    offset | size | field
         0 |    8 | physical offset of the message
         8 |    4 | size of the message
        12 |    8 | its code: the hash of its tags, or what the broker has for its topic (when a message of the delay
           |      | topic is due), or an address in the queue's extension

Entries follow one another from offset 0 on; the entry of queue offset n is at byte 20 * n. An entry with size 0 was
never written.
"""

from __future__ import annotations

import logging
import mmap
import threading
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from orbitmq.message import batch
from orbitmq.store.extended_queue import NOTHING_FLUSHED, ExtendedQueue, Extension, is_address
from orbitmq.store.files import MappedFile, check_spare_files
from orbitmq.store.numbered import NumberedFiles, file_name
from orbitmq.store.positions import NO_OFFSET, QueueOffset

_log = logging.getLogger(__name__)

ENTRY: Final = batch.ENTRY
ENTRY_SIZE: Final = ENTRY.size
FILLER: Final = ENTRY.pack(0, 0x7FFFFFFF, 0)  # for messages that had expired before the queue was created
FILLER_SIZE: Final = 0x7FFFFFFF
RESERVE_STEP: Final = 64 << 10  # 3276 entries; small, since a broker may have thousands of queues
CLAIMED_LEAST: Final = RESERVE_STEP // 2  # of these, half are left when the next are claimed

Entry = tuple[int, int, int]
NO_ENTRY: Final = (0, 0, 0)
FAR_AWAY: Final = 1 << 63  # behind every place of a log


class Unflushed(NamedTuple):
    """Files of a queue, and of its extension, with data that may not be on disk, up to the byte `end`."""

    files: list[MappedFile]
    end: int
    extended_end: int
    beginnings: int


class ConsumeQueue:
    """One queue of one topic. `end` is the byte of the next entry, `limit` how far blocks are allocated.

    `readable` is the end of what readers may see; the owner moves it when they may see the message. `extended` is the
    extension that addresses point into; None for a queue that has none and will have none.

    Invariant: max_physical_offset is the end of the message of the last entry, -1 without any.
    """

    def __init__(self, topic: str, queue_id: int, files: NumberedFiles, extended: ExtendedQueue | None = None) -> None:
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.queue_id = queue_id
        self.files = files
        self.extended = extended
        self.end = 0
        self.readable = 0
        self.limit = 0
        self._claims = threading.RLock()  # guards the next three and `_is_gone`: a worker claims, too
        self._claimed = 0  # disk blocks are there up to here
        self._ahead: list[MappedFile] = []  # made, not yet part of the queue
        self._beginning: int | None = None  # of a queue without files: where its first entry will be, if not at `end`
        # Bytes of room that a queue in use should have left; files that are small get theirs when they are needed.
        self._least = CLAIMED_LEAST if files.file_size >= 2 * RESERVE_STEP else 0
        self._is_gone = False  # closed, or removed: nothing may be made for it any more
        self.flushed = 0
        self._beginnings = 0  # how often `end` was set to another place, by the thread that puts
        self.max_physical_offset: int = NO_OFFSET
        self._shift = 0  # by how much the last message claimed another offset than it got
        self.lost_files = False  # files were missing when it was loaded, and those behind them were removed
        self._min = 0
        self._data: mmap.mmap | bytearray = bytearray()  # of the file being written
        self._file_start = 0

    @property
    def max_offset(self) -> QueueOffset:
        """The offset of the next message."""
        return QueueOffset(self.end // ENTRY_SIZE)

    @property
    def readable_offset(self) -> QueueOffset:
        """Behind the last message that readers may see."""
        return QueueOffset(self.readable // ENTRY_SIZE)

    @property
    def min_offset(self) -> QueueOffset:
        """The first entry whose message still exists."""
        return QueueOffset(self._min // ENTRY_SIZE)

    # ------------------------------------------------------------------------------------------------------ writing

    def put(self, queue_offset: int, physical_offset: int, size: int, code: int) -> None:
        """Add a message, unless it is one that recovery has found here already. OSError if the disk is full.

        The entry is added at the end, whatever offset the message has, unless that is the first one of a recreated
        topic. RocketMQ skips a message whose offset is taken; it would lose messages of a recreated topic, and of a
        broker that had lost entries and reused their offsets.
        """
        if physical_offset + size <= self.max_physical_offset:
            return
        if queue_offset * ENTRY_SIZE != self.end:
            self._jump(queue_offset)
        if self.end >= self.limit:
            self.make_room()
        ENTRY.pack_into(self._data, self.end - self._file_start, physical_offset, size, code)
        self.end += ENTRY_SIZE
        self.max_physical_offset = physical_offset + size

    def put_run(self, entries: bytes | bytearray) -> None:
        """Add the entries of new messages, one behind the other in the log. OSError when the disk is full."""
        place, size, _ = ENTRY.unpack_from(entries, len(entries) - ENTRY_SIZE)
        while entries:
            if self.end >= self.limit:
                self.make_room()
            position, step = self.end - self._file_start, min(len(entries), self.limit - self.end)
            self._data[position : position + step] = entries[:step]
            self.end += step
            entries = entries[step:]
        self.max_physical_offset = place + size

    def has_room(self, count: int) -> bool:
        """Whether so many entries fit below `limit`."""
        return self.end + count * ENTRY_SIZE <= self.limit

    def make_room(self, count: int = 1) -> None:
        """Allocate room for this many entries. OSError if the disk is full; the queue is then unchanged."""
        with self._claims:
            self.claim(count)
            self._use_claimed(count)

    def claim(self, count: int) -> None:
        """The part of `make_room` that may have to wait for a disk. For any thread; OSError as there."""
        with self._claims:
            while self._claimed < self._next + count * ENTRY_SIZE and not self._is_gone:
                self._claim_step()

    def claim_ahead(self) -> None:
        """One more step, if the queue still needs it. Thread-safe; OSError as in `make_room`."""
        with self._claims:
            if self.wants_room and not self._is_gone:
                self._claim_step()

    def take_room(self, count: int) -> bool:
        """`make_room` from allocated blocks; False if these are too few, or another thread is allocating."""
        if not self._claims.acquire(blocking=False):
            return False
        try:
            is_there = self._claimed >= self._next + count * ENTRY_SIZE
            if is_there:
                self._use_claimed(count)
            return is_there
        finally:
            self._claims.release()

    @property
    def wants_room(self) -> bool:
        """Whether the next room should be claimed before it is needed. The next file is made when it is needed."""
        return self._claimed - self.limit < self._least and self._claimed < self.files.end

    def begin_at(self, queue_offset: int) -> None:
        """The next room of a queue without files is for this entry. Where the log begins in the middle, so does the
        queue: with fillers from the start of the entry's file.
        """
        if self.files.files or self._beginning == queue_offset * ENTRY_SIZE:
            return
        with self._claims:
            self._discard_ahead()
            self._beginning = queue_offset * ENTRY_SIZE
            self._claimed = self.files.start_of(self._beginning)

    @property
    def _next(self) -> int:
        return self.end if self._beginning is None else self._beginning

    def _use_claimed(self, count: int) -> None:
        if self._beginning is not None:
            self._min = self.end = self.readable = self._beginning
            self.flushed = self.files.start_of(self._min)
            self._beginnings += 1
            self._beginning = None
        if not self.files.files or self.end == self.files.end:
            if self.files.files:
                self.files.files[-1].expect_reads(is_likely=True)
            self._ahead[0].expect_reads(is_likely=False)
            self.files.add(self._ahead.pop(0))
            self._write_into(self.files.files[-1])
        # Not all of it at once: when a part is used, the worker sees that the queue needs more.
        part = self.end + max(CLAIMED_LEAST, count * ENTRY_SIZE)
        self.limit = min(self._claimed, self.files.end, part) // ENTRY_SIZE * ENTRY_SIZE

    def _claim_step(self) -> None:
        position = self._claimed % self.files.file_size
        step = min(RESERVE_STEP, self.files.file_size - position)
        file = self.files.find(self._claimed)
        start = self.files.start_of(self._claimed)
        if file is None and not (self._ahead and self._ahead[-1].path.name == file_name(start)):
            check_spare_files()
            self._ahead.append(self.files.create_with(start, position + step))
        else:
            (file or self._ahead[-1]).reserve(position, step)
        self._claimed += step
        if self._beginning is not None:
            first, last = position // ENTRY_SIZE, min(position + step, self._beginning - start) // ENTRY_SIZE
            if first < last:
                self._ahead[-1].data[first * ENTRY_SIZE : last * ENTRY_SIZE] = FILLER * (last - first)

    def _write_into(self, file: MappedFile) -> None:
        self._data = file.data
        self._file_start = self.files.end - self.files.file_size

    def _jump(self, queue_offset: int) -> None:
        """The next entry does not follow the last one.

        A queue of whose messages none exists any more, and which has lost the entries of others, begins anew further
        on: messages keep the offsets they were acknowledged with.
        """
        is_gone = self._min >= self.end and queue_offset * ENTRY_SIZE > self.end
        is_gone = is_gone or self.end == self.files.start  # a start has cleared its only file
        with self._claims:
            if is_gone or queue_offset == 0:
                self.files.cut(self.files.start)  # the extension is not cut: it may have the next entry's unit already
            if not self.files.files:
                self.begin_at(queue_offset)
                self.make_room()
                return
        self._note_shift(queue_offset)

    def _note_shift(self, queue_offset: int) -> None:
        if queue_offset - self.max_offset != self._shift:
            self._shift = queue_offset - self.max_offset
            _log.warning(
                "event=queue_offset_skipped topic=%s queue=%d expected=%d found=%d",
                self.topic, self.queue_id, self.max_offset, queue_offset,
            )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------ reading

    def entry(self, queue_offset: int) -> Entry | None:
        """(physical offset, size, code); None if there is no such entry."""
        view = self.view(queue_offset)
        return ENTRY.unpack_from(view) if view is not None else None

    def stored_entry(self, queue_offset: int) -> Entry:
        """The bytes at the position of an entry, whether it belongs to the queue or not; zeros without a file."""
        file = self.files.find(queue_offset * ENTRY_SIZE)
        place = queue_offset * ENTRY_SIZE % self.files.file_size
        if file is None or place + ENTRY_SIZE > len(file.filled):
            return NO_ENTRY
        return ENTRY.unpack_from(file.view, place)

    def last_entry(self) -> Entry | None:
        return self.entry(self.end // ENTRY_SIZE - 1)

    def resolve(self, code: int) -> int | None:
        """What an entry's third field means: the field itself, or what lies at that address; None if that is lost."""
        if not is_address(code):
            return code
        extension = self.extension(code)
        return extension.code if extension is not None else None

    def extension(self, address: int) -> Extension | None:
        """What lies at an address; None if that is lost."""
        return self.extended.find(address) if self.extended is not None else None

    def view(self, queue_offset: int, end: int | None = None) -> memoryview | None:
        """The entries from `queue_offset` to the end of its file, or to the byte `end`; None if there is none."""
        start, end = queue_offset * ENTRY_SIZE, self.end if end is None else end
        file = self.files.find(start)
        if file is None or not 0 <= start < end:
            return None
        file_start = self.files.start_of(start)
        return file.view[start - file_start : min(end - file_start, self.files.file_size)]

    def entries(self, queue_offset: int, end: int | None = None) -> Iterator[Entry]:
        """All entries from `queue_offset` on, or those up to the byte `end` of the queue."""
        while (view := self.view(queue_offset, end)) is not None:
            yield from ENTRY.iter_unpack(view)
            queue_offset += len(view) // ENTRY_SIZE

    def first_place(self) -> int:
        """Physical offset of the first message that has an entry; beyond every log without any."""
        entry = self.entry(self._first_at_or_behind(0))
        return entry[0] if entry is not None else FAR_AWAY

    def places(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Place and size of the messages from `start` of the log on and below `end`."""
        for place, size, _ in self.entries(self._first_at_or_behind(start)):
            if place >= end:
                return
            yield place, size

    # ------------------------------------------------------------------------------------------------- after a start

    def recover(self) -> None:
        """Find the end after a clean exit: the first entry that was never written."""
        files = self.files.files
        index = max(0, len(files) - 1)
        while index > 0 and not count_valid(files[index].filled[:ENTRY_SIZE]):
            index -= 1
        start = self.files.start + index * self.files.file_size
        end = start + ENTRY_SIZE * count_valid(files[index].filled) if files else 0
        if index < len(files) - 1:
            self.files.clear(end)  # a power cut can bring back files that were made ahead and removed
        self._end_at(end)
        self.flushed = start
        if self.extended is not None:
            self.extended.recover(self._last_address(), clean=True)

    def cut(self, queue_offset: int) -> None:
        """End before the entry `queue_offset`. What lies behind is removed: on disk with the next flush, names with
        `Disk.sync` or `sync_names`. Thousands of queues are cut after a crash, and one by one each would wait for the
        disk.
        """
        self.files.clear(queue_offset * ENTRY_SIZE)
        self._end_at(queue_offset * ENTRY_SIZE)
        self.flushed = NOTHING_FLUSHED
        if self.extended is not None:
            self.extended.recover(self._last_address(), clean=False, sync=False)

    def _last_address(self) -> int | None:
        """Of the last entry that has one: while extensions were switched off, entries got none."""
        if self.extended is None or not self.extended.files.files:
            return None
        for number in range(self.end // ENTRY_SIZE - 1, self.files.start // ENTRY_SIZE - 1, -1):
            entry = self.entry(number)
            if entry is not None and is_address(entry[2]):
                return entry[2]
        return None

    def truncate(self, physical_offset: int) -> None:
        """Remove the entries of messages at `physical_offset` and behind."""
        if self.max_physical_offset > physical_offset:
            end = ENTRY_SIZE * self._first_at_or_behind(physical_offset)
            with self._claims:
                self._discard_ahead()  # the queue continues in an earlier file
                self.files.cut(end)
                self._end_at(end)

    def _end_at(self, end: int) -> None:
        self.end = self.readable = self.flushed = self.limit = self._claimed = end
        self._beginning = None
        self._beginnings += 1
        if self.files.files:
            self._write_into(self.files.files[-1])
        last = self.last_entry()
        self.max_physical_offset = last[0] + last[1] if last and last[1] != FILLER_SIZE else NO_OFFSET

    def forget_below(self, physical_offset: int) -> None:
        """The commit log begins at `physical_offset`: move the minimum to the first entry that still has a message."""
        self._min = ENTRY_SIZE * self._first_at_or_behind(max(physical_offset, 0))

    def remove_below(self, physical_offset: int) -> list[MappedFile]:
        """The same, and take files out of the queue that hold no other entries; the last file stays."""
        self.forget_below(physical_offset)
        removed = []
        while len(self.files.files) > 1 and self.files.start + self.files.file_size <= self._min:
            removed.append(self.files.remove_first())
        first = self.entry(self.min_offset)
        if self.extended is not None and first is not None and is_address(first[2]):
            removed += self.extended.remove_below(first[2])
        return removed

    def _first_at_or_behind(self, physical_offset: int) -> int:
        first, last = self.files.start // ENTRY_SIZE, self.end // ENTRY_SIZE
        return bisect_left(range(last), physical_offset, first, last, key=self._place)

    def _place(self, queue_offset: int) -> int:
        """Physical offset of an entry; a filler lies before everything."""
        entry = self.entry(queue_offset)
        assert entry is not None, "the search stays inside the queue"
        return NO_OFFSET if entry[1] == FILLER_SIZE else entry[0]

    # ------------------------------------------------------------------------------------------------ flush and close

    def unflushed(self) -> Unflushed:
        """What may not be on disk. Thread-safe."""
        beginnings, end = self._beginnings, self.end  # which are changed the other way round
        extended_end = self.extended.end if self.extended is not None else 0
        files = self.extended.unflushed() if self.extended is not None else []  # before the entries that lead there
        if end > self.flushed:
            files += self.files.between(self.flushed, end)
        return Unflushed(files, end, extended_end, beginnings)

    def came(self, found: Unflushed) -> None:
        """Its files are on disk now; of a queue that was cut meanwhile that proves nothing."""
        if found.beginnings == self._beginnings:
            self.flushed = found.end
            if self.extended is not None:
                self.extended.flushed = found.extended_end

    def flush(self) -> None:
        """Return when the entries made before the call are on disk. OSError when they are not. For any thread."""
        found = self.unflushed()
        for file in found.files:
            file.sync()
        self.came(found)

    def _end_claims(self) -> None:
        with self._claims:
            self._is_gone = True
            self._discard_ahead()

    def _discard_ahead(self) -> None:
        while self._ahead:
            self.files.discard(self._ahead.pop())

    def close(self) -> None:
        self._data = bytearray()
        self._end_claims()
        self.files.close()
        if self.extended is not None:
            self.extended.close()

    def destroy(self) -> None:
        """Remove the queue from disk."""
        self._data = bytearray()
        self._end_claims()
        self.files.destroy()
        if self.extended is not None:
            self.extended.destroy()


def is_full(file: MappedFile) -> bool:
    """Whether the last entry of a file was written."""
    return count_valid(file.filled[file.size - ENTRY_SIZE :]) > 0


def whole_entries(view: memoryview) -> memoryview:
    """The view without a part of an entry at its end."""
    return view[: len(view) // ENTRY_SIZE * ENTRY_SIZE]


def count_valid(view: memoryview) -> int:
    """Entries of a file before the first that was never written."""
    count = 0
    for physical_offset, size, _ in ENTRY.iter_unpack(whole_entries(view)):
        if size <= 0 or physical_offset < 0:
            break
        count += 1
    return count
