"""The bytes on a connection between master and slave. Pure: bytes in, numbers and bytes out.

slave -> master    8 bytes      the end of the slave's log
master -> slave   12 bytes      the physical offset of the following bytes, and their number; 0 is a heartbeat
                   n bytes      of the log, never beyond the end of one of its files
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from orbitmq.errors import BodyError

REPORT = struct.Struct(">q")
HEAD = struct.Struct(">qi")
PIECE_MAX = 4 << 20  # the buffer of RocketMQ's slaves, so no master sends more


class Reports:
    """Reads a slave's reports: the last one counts."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The offset of the slave's last complete report; None if there is none."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        return int(REPORT.unpack_from(data, whole - REPORT.size)[0]) if whole else None


class Pieces:
    """Reads a master's data. Parts are returned as they arrive, cut where the connection cut them."""

    def __init__(self) -> None:
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
