"""The keys of messages, read from the commit log in slices. Knows the log and no index.

Each slice begins with a read of the file, which lets go of the interpreter lock, so that the event loop never waits for
more than one slice.
"""

from __future__ import annotations

import logging
from typing import Final

from orbitmq.errors import UnitError
from orbitmq.message.unit import BLANK, BLANK_MAGIC, Buffer
from orbitmq.runtime.clock import Clock
from orbitmq.store import time_search
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.files import MappedFile
from orbitmq.store.index.key_scan import FoundKeys, HashedKeys, key_hashes, scan, scan_one
from orbitmq.store.index.loops import IS_COMPILED, walk
from orbitmq.store.progress import Progress

_log = logging.getLogger(__name__)

SLICE_BYTES: Final = 128 << 10
SLICE_MESSAGES = 256  # about a millisecond

NO_KEYS: Final = HashedKeys([], [], [])


def scan_hashes(data: bytes, offset: int, count_max: int) -> tuple[int, HashedKeys]:
    """`key_scan.scan`, with the hash of each key instead of its topic and itself.

    Compiled, `loops` walks byte by byte, which then costs least. Interpreted, `key_scan` scans hundreds of messages
    together. Both find the same.
    """
    if IS_COMPILED:
        return walk(data, offset, count_max)
    size, found = scan(data, offset, count_max)
    return size, hashed(found)


def scan_one_hashes(data: Buffer, offset: int) -> tuple[int, HashedKeys]:
    """The same of `key_scan.scan_one`. UnitError as there."""
    size, found = scan_one(data, offset)
    return size, hashed(found)


def hashed(found: FoundKeys) -> HashedKeys:
    return HashedKeys(key_hashes(found.topics, found.keys), found.offsets, found.timestamps)


class LogKeys:
    """What the index needs of the log."""

    def __init__(self, log: CommitLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    @property
    def start(self) -> int:
        """Where the log begins; 0 for an empty one."""
        return max(0, self._log.min_offset)

    @property
    def end(self) -> int:
        """The offset of the next message."""
        return self._log.end

    def units(self, start: int, end: int) -> bytes:
        """What `slice` looks at; nothing when the log cannot be read there, or not yet."""
        file, place = self._log.files.find(start), start % self._log.files.file_size
        if file is None or start >= end:
            return b""
        return file.read(place, min(file.size - place, end - start, SLICE_BYTES))

    def slice(self, start: int, end: int) -> tuple[int, HashedKeys]:
        """The keys of some hundred messages from `start` on, none that ends behind `end`, and how many bytes they take;
        0 when the log cannot be read there, or not yet.
        """
        file, place = self._log.files.find(start), start % self._log.files.file_size
        if file is None or start >= end:
            return 0, NO_KEYS
        room = min(file.size - place, end - start)
        size, found = scan_hashes(file.read(place, min(room, SLICE_BYTES)), start, SLICE_MESSAGES)
        return (size, found) if size else self._odd_one(file, start, room)

    def _odd_one(self, file: MappedFile, start: int, room: int) -> tuple[int, HashedKeys]:
        """Units that `scan` does not handle: the end of a file, a unit larger than a slice, one that RocketMQ 4.9 has
        not written. Returns 0 for a partial unit; one with inconsistent lengths is skipped.
        """
        place = start % file.size
        head = file.read(place, min(room, BLANK.size))
        size, magic = BLANK.unpack(head.ljust(BLANK.size, b"\0"))
        if magic == BLANK_MAGIC:
            return file.size - place, NO_KEYS
        if not 0 < size <= room:
            return 0, NO_KEYS
        try:
            return scan_one_hashes(file.read(place, size), start)
        except UnitError as error:
            _log.warning("event=index_skipped offset=%d error=%s", start, error)
            return size, NO_KEYS

    def one(self, offset: int) -> tuple[int, HashedKeys]:
        """Size and keys of the message at a place of the log; nothing when it cannot be read."""
        unit = self._log.unit_at(offset)
        try:
            return scan_one_hashes(unit or b"", offset)
        except UnitError:
            return 0, NO_KEYS

    def hashes_at(self, offset: int) -> list[int] | None:
        """The hashes of the keys of the message at a place of the log, None when it cannot be read."""
        size, found = self.one(offset)
        return found.hashes if size else None

    def behind(self, offset: int) -> int:
        """Where the message at a place of the log ends; the place itself when it cannot be read."""
        return offset + self.one(offset)[0]

    def store_time(self, offset: int) -> int:
        """Store time of the message at a place of the log, -1 when it cannot be read."""
        return time_search.store_time(self._log, offset)

    def first_with_keys(self, start: int, end: int) -> int | None:
        """The first message from `start` on and below `end` that has keys, as far as the log can be read."""
        progress = Progress(self._clock, start, end, "index_checking")
        while True:
            size, found = self.slice(start, end)
            if found.offsets or size == 0:
                return found.offsets[0] if found.offsets else None
            start += size
            if start >= progress.next_look:
                progress.look(start)
