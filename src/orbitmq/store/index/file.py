"""One file of the key index: a hash table on disk, from the hash of `topic#key` to physical offsets.

    offset | size | field
         0 |    8 | store time of the first entry
         8 |    8 | store time of the last entry
        16 |    8 | physical offset of the first entry
        24 |    8 | physical offset of the last entry
        32 |    4 | number of slots in use
        36 |    4 | number of the next entry; the first one is 1, a file without entries may have 0
        40 |  4*S | slots: the number of the newest entry whose hash belongs to the slot, 0 without one
    40+4*S | 20*N | entries; the first 20 bytes are never used

    entry: 4 hash | 8 physical offset | 4 seconds since the file's first store time | 4 previous entry of the slot

A file has its full size from the beginning. Entries are written before the slots that point to them and before they are
counted, so other threads may search while one thread adds. This module knows neither messages nor other files.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

from orbitmq.store.files import PAGE, MappedFile, Read
from orbitmq.store.index.loops import IS_COMPILED, enter, enter_found

HEADER: Final = struct.Struct(">qqqqii")
NUMBER: Final = struct.Struct(">i")
ENTRY: Final = struct.Struct(">iqii")
SECONDS_MAX: Final = 0x7FFFFFFF
FOUND_MAX: Final = 4096  # keys of one slice of the log that are entered as they are found
RESERVE_STEP: Final = 4 << 20  # some 200,000 entries


@dataclass(frozen=True)
class IndexShape:
    """How many slots and entries a file has. Entry 0 does not count as one, but has its place."""

    slots: int
    entries: int

    def __reduce__(self) -> tuple[type[IndexShape], tuple[int, int]]:
        """For jobs of a rebuild: of a compiled class, pickle would set the attributes one by one, which are frozen."""
        return IndexShape, (self.slots, self.entries)

    @property
    def entries_start(self) -> int:
        return HEADER.size + NUMBER.size * self.slots

    @property
    def file_size(self) -> int:
        return self.entry_position(self.entries)

    def entry_position(self, number: int) -> int:
        return self.entries_start + ENTRY.size * number

    def slot_position(self, key_hash: int) -> int:
        return HEADER.size + NUMBER.size * (key_hash % self.slots)


class IndexFile:
    """`count` is the number the next entry gets, so `count - 1` entries are there. One thread at a time adds."""

    def __init__(self, file: MappedFile, shape: IndexShape) -> None:
        self.file = file
        self.shape = shape
        self.begin_timestamp: int
        self.end_timestamp: int
        self.begin_offset: int
        self.end_offset: int
        self.slots_used: int
        self.count: int
        self._reserved = 0  # disk blocks are claimed up to here: a write to a page without one kills on a full disk
        self._synced = 0
        (
            self.begin_timestamp, self.end_timestamp, self.begin_offset, self.end_offset, self.slots_used, self.count,
        ) = HEADER.unpack(file.read(0, HEADER.size))  # fmt: skip
        self.count = max(1, self.count)

    @property
    def is_empty(self) -> bool:
        return self.count <= 1

    @property
    def is_full(self) -> bool:
        return self.count >= self.shape.entries

    def begin_after(self, previous: IndexFile) -> None:
        """A new file continues from the end of the last one until it has an entry of its own."""
        self.begin_at(previous.end_timestamp, previous.end_offset)

    def begin_at(self, timestamp: int, offset: int) -> None:
        """The same by the store time and physical offset of the last entry before."""
        self.begin_timestamp = self.end_timestamp = timestamp
        self.begin_offset = self.end_offset = offset

    # -------------------------------------------------------------------------------------------------------- adding

    def add(self, hashes: Sequence[int], offsets: Sequence[int], timestamps: Sequence[int]) -> int:
        """Add as many entries as fit; returns their number. OSError if the disk is full; then nothing is added."""
        room = min(len(hashes), self.shape.entries - self.count)
        if room <= 0:
            return 0
        self.reserve(self.shape.entry_position(self.count + room))
        first = 0
        if self.is_empty:
            # RocketMQ counts the seconds of the first entry from the end of the last file; `find` knows better.
            first = 1
            self._enter(self.count, hashes[:first], offsets, timestamps)
            self.begin_timestamp, self.begin_offset = timestamps[0], offsets[0]
        self._enter(self.count + first, hashes[first:room], offsets[first:], timestamps[first:])
        self.end_timestamp, self.end_offset = timestamps[room - 1], offsets[room - 1]
        self.count += room
        self._write_header()
        return room

    def add_found(self, units: bytes, offset: int, count_max: int) -> int:
        """As `KeyIndex.add_found`: 0 for a file that is empty or nearly full, too."""
        room = min(FOUND_MAX, self.shape.entries - self.count)
        if self.is_empty or room < FOUND_MAX:
            return 0
        self.reserve(self.shape.entry_position(self.count + room))
        size, count, used, place, timestamp = enter_found(
            units, offset, count_max, self.file.data, self.shape.slots, self.count, room, self.begin_timestamp
        )
        if count:
            self.slots_used = min(self.slots_used + used, self.shape.slots)
            self.end_timestamp, self.end_offset = timestamp, place
            self.count += count
            self._write_header()
        return size

    def reserve(self, end: int) -> None:
        """Claim disk blocks up to the byte `end`, and some ahead. OSError when the disk is full."""
        while self._reserved < min(end, self.file.size):
            start = self._reserved or self.shape.entry_position(self.count)
            if not self._reserved:
                self.file.reserve(0, self.shape.entries_start)
            self.file.reserve(start, RESERVE_STEP)
            self._reserved = start + RESERVE_STEP

    def _enter(self, number: int, hashes: Sequence[int], offsets: Sequence[int], timestamps: Sequence[int]) -> None:
        """Write an entry for each hash, from `number` on, and the slots that lead to them."""
        data, slot_count = self.file.data, self.shape.slots
        if IS_COMPILED:
            used = enter(data, slot_count, number, self.begin_timestamp, hashes, offsets, timestamps)
            self.slots_used = min(self.slots_used + used, slot_count)  # a damaged header may contain anything
            return
        seconds = _seconds_since(self.begin_timestamp, timestamps[: len(hashes)])
        slots_start, slot_size = HEADER.size, NUMBER.size
        slots = [slots_start + slot_size * (key_hash % slot_count) for key_hash in hashes]
        previous = [head for (head,) in map(NUMBER.unpack_from, repeat(data), slots)]
        if len(set(slots)) < len(slots):
            _chain_within(slots, previous, number)
        self.slots_used = min(self.slots_used + previous.count(0), slot_count)
        start = self.shape.entry_position(number)
        entries = b"".join(map(ENTRY.pack, hashes, offsets, seconds, previous))
        data[start : start + len(entries)] = entries
        for _ in map(NUMBER.pack_into, repeat(data), slots, range(number, number + len(slots))):
            pass

    def _write_header(self) -> None:
        HEADER.pack_into(
            self.file.data, 0, self.begin_timestamp, self.end_timestamp, self.begin_offset, self.end_offset,
            self.slots_used, self.count,
        )  # fmt: skip

    def settle(self, heads: array[int]) -> None:
        """Keep the entries below `count`, to which the slots `heads` lead; what lies behind becomes zero."""
        end = self.shape.entry_position(self.count)
        self.file.clear_from(end)
        self.file.sync()
        self._reserved = 0
        self.reserve(end)
        self.begin_offset, self.end_offset = self.entry(1)[1], self.entry(self.count - 1)[1]
        self.slots_used = len(heads) - heads.count(0)
        if sys.byteorder == "little":
            heads.byteswap()
        self.file.data[HEADER.size : self.shape.entries_start] = heads.tobytes()
        self._write_header()

    def sync(self) -> None:
        """Return when what was added before the call is on disk. OSError if it is not. Thread-safe."""
        count = self.count
        if count != self._synced:
            self.file.sync()
            self._synced = count

    # ------------------------------------------------------------------------------------------------------ searching

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """(hash, physical offset, seconds, previous entry)."""
        return ENTRY.unpack_from(self.file.view, self.shape.entry_position(number))

    def find(self, key_hash: int, begin: int, end: int, read: Read = MappedFile.read) -> Iterator[int]:
        """Physical offsets stored under the hash from `begin` to `end` (milliseconds, both included), newest first.

        Times are known to the second only, rounded down; the first entry's is known exactly.
        """
        pages = _Pages(self.file, read)
        (number,) = NUMBER.unpack(pages.read(self.shape.slot_position(key_hash), NUMBER.size))
        newer = self.shape.entries
        while 0 < number < newer:  # a chain leads to ever older entries; anything else is damage and ends it
            found, offset, seconds, previous = ENTRY.unpack(pages.read(self.shape.entry_position(number), ENTRY.size))
            timestamp = self.begin_timestamp + 1000 * seconds if number > 1 else self.begin_timestamp
            if found == key_hash and begin <= timestamp <= end:
                yield offset
            if seconds < 0 or timestamp < begin:
                return
            newer = number
            number = previous

    def overlaps(self, begin: int, end: int) -> bool:
        """Whether entries of the file may be from that time."""
        return not self.is_empty and begin <= self.end_timestamp and end >= self.begin_timestamp


class _Pages:
    """Reads a file in pages and caches the last: entries of one chain are often adjacent."""

    def __init__(self, file: MappedFile, read: Read) -> None:
        self._file = file
        self._read = read
        self._start = 0
        self._data = b""

    def read(self, position: int, size: int) -> bytes:
        """Zeros for what cannot be read because the file was closed meanwhile; they end every chain."""
        start = position - self._start
        if start < 0 or start + size > len(self._data):
            self._start = position - position % PAGE
            start = position - self._start
            # Of the next page only what an entry has there: it may not be in memory.
            self._data = self._read(self._file, self._start, max(PAGE, start + size))
        return self._data[start : start + size].ljust(size, b"\0")


def _chain_within(slots: Sequence[int], previous: list[int], number: int) -> None:
    """Link an entry to the previous one of its batch with the same slot."""
    heads: dict[int, int] = {}
    for index, slot in enumerate(slots):
        previous[index] = heads.get(slot, previous[index])
        heads[slot] = number + index


def _seconds_since(begin: int, timestamps: Sequence[int]) -> list[int]:
    """Whole seconds; none of them while there is nothing to count from."""
    if begin <= 0:
        return [0] * len(timestamps)
    seconds = [(timestamp - begin) // 1000 for timestamp in timestamps]
    if seconds and not 0 <= min(seconds) <= max(seconds) <= SECONDS_MAX:  # the clock was set back, or by decades
        seconds = [min(max(0, second), SECONDS_MAX) for second in seconds]
    return seconds
