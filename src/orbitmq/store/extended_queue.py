"""The extension of a consume queue: what a 20-byte entry has no room for, one unit for each message.

    offset | size | field
         0 |    2 | size of the unit
         2 |    8 | hash of the tags, or when it is due: what the entry would hold
        10 |    8 | store time of the message
        18 |    2 | size of the bitmap
        20 |    B | bitmap of the filters that take the message

The entry then holds the address of the unit, lower than every tag hash. Where a unit does not fit, a size of -1 closes
the file. A unit that is lost costs nothing but speed: readers take such a message as one that matches.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import NamedTuple

from orbitmq.store.files import MappedFile
from orbitmq.store.numbered import NumberedFiles

HEAD = struct.Struct(">hqqh")
SIZE = struct.Struct(">h")
CLOSED = -1
SPARE = 4  # bytes that stay free at the end of every file, so that it can be closed
UNIT_SIZE_MAX = 0x7FFF
FIRST_ADDRESS = -(1 << 63)
ADDRESS_MAX = -(1 << 31) - 1  # tag hashes begin above
RESERVE_STEP = 64 << 10
NOTHING_FLUSHED = -1  # also of a file whose end was only cleared


class Extension(NamedTuple):
    """One unit."""

    code: int
    store_timestamp: int
    bitmap: bytes


def is_address(code: int) -> bool:
    """Whether the third field of a queue entry leads here."""
    return code <= ADDRESS_MAX


class ExtendedQueue:
    """`end` is the place of the next unit. Places count from 0 as the files do; addresses are FIRST_ADDRESS + place."""

    def __init__(self, files: NumberedFiles) -> None:
        self.files = files
        self.end = 0
        self.flushed = 0
        self._limit = 0  # disk blocks are claimed up to here
        self._data: mmap.mmap | bytearray = bytearray()  # of the last file

    # ------------------------------------------------------------------------------------------------------- writing

    def put(self, code: int, store_timestamp: int, bitmap: bytes) -> int:
        """Add a unit; returns the address for the queue entry. OSError if the disk is full; then nothing is added."""
        size = HEAD.size + len(bitmap)
        if size > min(UNIT_SIZE_MAX, self.files.file_size - SPARE):
            return code
        if not self.files.files or self.end + size + SPARE > self.files.end:
            self._next_file()
        self._claim(self.end + size + SPARE)
        place = self.end
        position = place - (self.files.end - self.files.file_size)
        unit = HEAD.pack(size, code, store_timestamp, len(bitmap)) + bitmap
        self._data[position : position + size] = unit
        self.end += size
        return FIRST_ADDRESS + place

    def _next_file(self) -> None:
        """Close the last file, if it is not full to its end, and begin the next."""
        start = self.files.end if self.files.files else self.files.start_of(self.end)
        is_open = bool(self.files.files) and self.end < self.files.end
        if is_open:
            self._claim(self.end + SIZE.size)  # after a start nothing may be claimed behind the last unit
        file = self.files.create_with(start, RESERVE_STEP)
        if is_open:
            SIZE.pack_into(self._data, self.end - (self.files.end - self.files.file_size), CLOSED)
        self.files.add(file)
        self._data = file.data
        self.end = start
        self._limit = start + RESERVE_STEP

    def _claim(self, end: int) -> None:
        while self._limit < end:
            start = self.files.end - self.files.file_size
            self.files.files[-1].reserve(self._limit - start, RESERVE_STEP)
            self._limit += RESERVE_STEP

    # ------------------------------------------------------------------------------------------------------- reading

    def find(self, address: int) -> Extension | None:
        """The unit at an address; None when it is lost."""
        place = address - FIRST_ADDRESS
        file = self.files.find(place)
        if file is None or place >= self.end:
            return None
        return read_unit(file.view, place % self.files.file_size)

    # ------------------------------------------------------------------------------------------------- after a start

    def recover(self, last_address: int | None, *, clean: bool, sync: bool = True) -> None:
        """Continue after the unit of the last entry that has one. Addresses are never reused, even if their unit is
        lost: an entry would find the unit of another message. What is cut off is gone from the disk at once, or without
        `sync` after the next flush.
        """
        end = self._behind(last_address - FIRST_ADDRESS) if last_address is not None else self.files.start
        if not clean or end < self.files.end - self.files.file_size:
            (self.files.cut if sync else self.files.clear)(end)
        self.end = self._limit = end
        self.flushed = end if sync else NOTHING_FLUSHED
        if self.files.files:
            self._data = self.files.files[-1].data

    def _behind(self, place: int) -> int:
        file = self.files.find(place)
        unit = read_unit(file.filled, place % self.files.file_size) if file is not None else None
        if unit is not None:
            return place + HEAD.size + len(unit.bitmap)
        behind = self.files.start_of(place) + self.files.file_size
        if behind > self.files.end:  # files follow one another without gaps, so the row begins anew
            self.files.cut(self.files.start)
        return behind

    def remove_below(self, address: int) -> list[MappedFile]:
        """Take files out that end before the unit at `address`; the last file stays."""
        removed = []
        while len(self.files.files) > 1 and self.files.start + self.files.file_size <= address - FIRST_ADDRESS:
            removed.append(self.files.remove_first())
        return removed

    # ------------------------------------------------------------------------------------------------ flush and close

    def unflushed(self) -> list[MappedFile]:
        """Files with data that may not be on disk. Thread-safe."""
        end = self.end
        return self.files.between(self.flushed, end) if end > self.flushed else []

    def close(self) -> None:
        self._data = bytearray()
        self.files.close()

    def destroy(self) -> None:
        """Remove the extension from disk."""
        self._data = bytearray()
        self.files.destroy()


def read_unit(view: memoryview, position: int) -> Extension | None:
    """The unit at a position of a file; None if there is none."""
    if position + HEAD.size > len(view):
        return None
    size, code, store_timestamp, bitmap_size = HEAD.unpack_from(view, position)
    if bitmap_size < 0 or size != HEAD.size + bitmap_size or position + size > len(view):
        return None
    return Extension(code, store_timestamp, bytes(view[position + HEAD.size : position + size]))


def read_units(files: NumberedFiles) -> Iterator[tuple[int, Extension]]:
    """Every unit with its address, in order."""
    for number, file in enumerate(files.files):
        position = 0
        filled = file.filled
        while (unit := read_unit(filled, position)) is not None:
            yield FIRST_ADDRESS + files.start + number * files.file_size + position, unit
            position += HEAD.size + len(unit.bitmap)
