"""The bytes on a connection between master and slave. Pure: bytes in, numbers and bytes out.

slave -> master    8 bytes      the end of the slave's log
master -> slave   12 bytes      the physical offset of the following bytes, and their number; 0 is a heartbeat
                   n bytes      of the log, never beyond the end of one of its files

Replicas that elect their master say more, once each end knows by EXCHANGE_MASTERSHIP that the other one is such:

slave -> master    8 bytes      at first, -n: a member of the election introduces itself
                   n bytes      `Introduction` as JSON
master -> slave   12 bytes      an offset, and -1: what ends there or before is confirmed, and may be read
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from orbitmq.errors import BodyError

REPORT = struct.Struct(">q")
HEAD = struct.Struct(">qi")
PIECE_MAX = 4 << 20  # the buffer of RocketMQ's slaves, so no master sends more
CONFIRMED = -1  # in the place of a length
INTRODUCTION_MAX = 1024  # bytes


class Introduction(msgspec.Struct, frozen=True):
    """A slave that takes part in the election: who it is, and in which epoch it follows."""

    member: str
    epoch: int

    def encode(self) -> bytes:
        data = msgspec.json.encode(self)
        return REPORT.pack(-len(data)) + data


class Reports:
    """Reads a slave's reports: the last one counts. A master that `elects` takes an `introduction` before them."""

    def __init__(self, *, elects: bool = False) -> None:
        self._rest = b""
        self._is_first = elects
        self.introduction: Introduction | None = None

    def feed(self, data: bytes) -> int | None:
        """The offset of the slave's last complete report; None if there is none. BodyError for an invalid
        introduction.
        """
        data = self._rest + data
        if self._is_first and len(data) >= REPORT.size:
            size = -int(REPORT.unpack_from(data)[0])
            if len(data) < REPORT.size + min(size, INTRODUCTION_MAX):
                self._rest = data
                return None
            self._is_first = False
            if size > 0:
                self.introduction = _introduction(data, size)
                data = data[REPORT.size + size :]
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        return int(REPORT.unpack_from(data, whole - REPORT.size)[0]) if whole else None


def _introduction(data: bytes, size: int) -> Introduction:
    if size > INTRODUCTION_MAX:
        raise BodyError(f"a slave introduces itself with {size} bytes, {INTRODUCTION_MAX} are allowed")
    try:
        return msgspec.json.decode(data[REPORT.size : REPORT.size + size], type=Introduction)
    except msgspec.DecodeError as error:
        raise BodyError(f"the introduction of a slave is invalid: {error}") from None


class Pieces:
    """Reads a master's data. Parts are returned as they arrive, cut where the connection cut them. `confirmed` is the
    last offset that the master has confirmed to this member of an election, -1 before that.
    """

    def __init__(self, *, elects: bool = False) -> None:
        self._elects = elects
        self.confirmed = -1
        self._head = b""
        self._offset = 0
        self._missing = 0  # bytes of the piece that have not come

    def feed(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """Place and bytes; no bytes are a sign of life. BodyError for a length that no master sends."""
        view = memoryview(data)
        while view:
            if self._missing:
                part, view = view[: self._missing], view[self._missing :]
                yield self._offset, part
                self._offset += len(part)
                self._missing -= len(part)
                continue
            needed = HEAD.size - len(self._head)
            self._head += bytes(view[:needed])
            view = view[needed:]
            if len(self._head) == HEAD.size:
                self._offset, self._missing = HEAD.unpack(self._head)
                self._head = b""
                if self._missing == CONFIRMED and self._elects:
                    self.confirmed, self._missing = self._offset, 0
                    continue
                if not 0 <= self._missing <= PIECE_MAX:
                    raise BodyError(f"the master announces {self._missing} bytes, {PIECE_MAX} are allowed")
                if not self._missing:
                    yield self._offset, view[:0]


def first_place(reported: int, end: int, file_size: int) -> int:
    """Where a slave continues that reported `reported`: an empty one begins with its master's last file."""
    return reported or max(0, end - end % file_size)


def piece_size(place: int, end: int, file_size: int, most: int) -> int:
    """How many bytes at `place` go into one piece."""
    return min(most, end - place, file_size - place % file_size)
