"""Walks over the units of one commit log file. Pure: bytes in, units out; recovery and tools share it."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

from orbitmq.errors import UnitError
from orbitmq.message.unit import BLANK, BLANK_MAGIC, HEADS, Buffer, Unit, body_crc, decode_unit
from orbitmq.store.positions import FilePosition

SECTOR = 512  # the least that a disk writes as a whole; larger ones are multiples of it


class WalkEnd(Enum):
    """Why a walk ended."""

    FILE_END = auto()  # no room for another record
    BLANK = auto()  # a blank record: the log goes on in the next file
    NOTHING = auto()  # zeros, the part that was never written
    DAMAGED = auto()  # anything else


class Walk:
    """Iterates once over the units from `position` on; afterwards `position` is behind the last good one.

    `file_start` is the offset of the buffer's first byte: a unit that claims another place is old garbage. `check_text`
    finds units of which a power cut has left topic or properties out: no sum covers these. With `is_copy` the last unit
    of the log may end anywhere, and what is missing of it is zeros.
    """

    def __init__(
        self,
        buffer: Buffer,
        file_start: int,
        position: int = 0,
        *,
        check_crc: bool = True,
        check_text: bool = False,
        is_copy: bool = False,
    ) -> None:
        self.position = FilePosition(position)
        self.ended: WalkEnd | None = None
        self._buffer = buffer
        self._file_start = file_start
        self._check_crc = check_crc
        self._check_text = check_text
        self._is_copy = is_copy

    def __iter__(self) -> Iterator[Unit]:
        while (unit := self._unit()) is not None:
            yield unit
            self.position = FilePosition(self.position + unit.size)
        self.ended = self._why()

    def _unit(self) -> Unit | None:
        try:
            unit = decode_unit(self._buffer, self.position)
        except UnitError:
            return None
        if unit.physical_offset != self._file_start + self.position:
            return None
        if self._check_crc and unit.body and body_crc(unit.body) != unit.body_crc:
            return None
        if self._check_text and ("\0" in unit.topic or "\0" in unit.properties) and self._lacks_sector(unit):
            return None
        if self._is_copy and unit.properties.endswith("\0") and not any(self._behind(unit)):
            return None
        return unit

    def _behind(self, unit: Unit) -> Buffer:
        """Where the next unit would begin."""
        end = self.position + unit.size
        return self._buffer[end : end + BLANK.size]

    def _lacks_sector(self, unit: Unit) -> bool:
        """Whether a whole sector of the text is zero, or the part of it that belongs to the unit."""
        end = self.position + unit.size
        text = self.position + HEADS[unit.sys_flag >> 4 & 3].size + len(unit.body)
        starts = range(-(-text // SECTOR) * SECTOR, end, SECTOR)
        return any(not any(self._buffer[start : min(start + SECTOR, end)]) for start in starts)

    def _why(self) -> WalkEnd:
        if len(self._buffer) - self.position < BLANK.size:
            return WalkEnd.FILE_END
        size, magic = BLANK.unpack_from(self._buffer, self.position)
        if magic == BLANK_MAGIC:
            return WalkEnd.BLANK
        return WalkEnd.NOTHING if size == magic == 0 else WalkEnd.DAMAGED
