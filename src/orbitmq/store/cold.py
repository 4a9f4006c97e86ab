"""What of the store may have to come from the disk: asked of the kernel before the event loop reads it.

A page that is missed stops the thread that touches it, with the interpreter lock held, until the disk has brought it:
every connection would wait. What was written a moment ago is in memory, and not asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.message.unit import INT32
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.files import MappedFile
from orbitmq.store.queue import ENTRY_SIZE, ConsumeQueue

HOT_BYTES: Final = 64 << 20  # at the end of the log
HOT_ENTRIES: Final = 200  # at the end of a queue: about a page
GAP_MAX: Final = 128 << 10  # messages of other queues between two of a pull; these come along
AHEAD_BYTES: Final = 2 << 20  # read ahead at most, behind what was missed: its reader wants what follows soon,
AHEAD_TIMES: Final = 8  # and so many times as much as this; messages of a topic may lie far apart
UNIT_BYTES_MAX: Final = 16 << 20  # no response holds a larger message
QUEUE_AHEAD_BYTES: Final = 64 << 10
HEAD_BYTES: Final = 64 << 10  # of a message whose size is not known yet
WINDOW: Final = 1 << 20  # bytes that are asked for together
SEEN_SECONDS: Final = 0.5  # how long what was in memory is not asked for again: asking costs as much as ten messages
SEEN_MAX: Final = 10_000  # windows


class Pages(NamedTuple):
    """Bytes of a file, and how many more after them are worth reading."""

    file: MappedFile
    start: int
    size: int
    ahead: int


Then = Callable[[BaseException | None], object]
"""Called on the event loop, with the error if the disk failed."""
Fetch = Callable[[Sequence[Pages], Then], None]
"""Has pages brought into memory."""


def fetch(absent: Sequence[Pages]) -> None:
    """Bring them into memory; for a worker. OSError when the disk fails."""
    for file, start, size, ahead in absent:
        file.fetch(start, size, ahead)


class ColdPages:
    """Finds out what is not in memory. For the thread that serves reads; `now` counts seconds."""

    def __init__(self, log: CommitLog, now: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._now = now
        self._opened_at = 0
        self._seen: dict[tuple[Path, int], float] = {}  # windows that were in memory -> until when that counts

    def entries(self, queue: ConsumeQueue, offset: int, size: int) -> list[Pages]:
        """What is absent of `size` bytes of queue entries from `offset` on."""
        start = offset * ENTRY_SIZE
        if queue.readable - start <= HOT_ENTRIES * ENTRY_SIZE and self.is_hot(queue.max_physical_offset - 1):
            return []
        file = queue.files.find(start)
        if file is None:
            return []
        at = start % queue.files.file_size
        return self._absent(file, at, size, QUEUE_AHEAD_BYTES, written=queue.readable - start + at)

    def units(self, units: Iterable[tuple[int, int]]) -> list[Pages]:
        """What is absent of units of the log, each its place and its size, in rising order."""
        found: list[Pages] = []
        start = end = -1
        file_size = self._log.files.file_size
        for place, size in units:
            if start < 0 or not end <= place <= end + GAP_MAX or place // file_size != start // file_size:
                found += self._absent_units(start, end)
                start = place
            end = place + size
        return found + self._absent_units(start, end)

    def unit(self, place: int) -> list[Pages]:
        """The absent pages of the unit at a place, whose head has its size."""
        if self.is_hot(place) or (head := self._log.slice(place, INT32.size)) is None:
            return []
        if absent := self._absent_units(place, place + HEAD_BYTES):
            return absent
        size = min(INT32.unpack(head)[0], UNIT_BYTES_MAX)  # inside a message any four bytes may pass for a size
        return self._absent_units(place, place + size) if size > HEAD_BYTES else []

    def opened(self) -> None:
        """The log is open: what is there need not be in memory."""
        self._opened_at = self._log.end

    @property
    def hot_from(self) -> int:
        """The place of the log from which on everything was written a moment ago."""
        return max(self._log.end - HOT_BYTES, self._opened_at)

    def is_hot(self, place: int) -> bool:
        return place >= self.hot_from

    def _absent_units(self, start: int, end: int) -> list[Pages]:
        file = self._log.files.find(start) if start >= 0 and not self.is_hot(start) else None
        ahead = min(AHEAD_BYTES, AHEAD_TIMES * (end - start))
        if file is None:
            return []
        at = start % self._log.files.file_size
        return self._absent(file, at, end - start, ahead, written=self._log.end - start + at)

    def _absent(self, file: MappedFile, start: int, size: int, ahead: int, written: int) -> list[Pages]:
        written = min(written, file.size)
        end = min(start + size, written)
        for number in range(start // WINDOW, (end - 1) // WINDOW + 1):
            if not self._has_window(file, number, written):
                return [] if file.resident_end(start, end - start) >= end else [Pages(file, start, end - start, ahead)]
        return []

    def _has_window(self, file: MappedFile, number: int, written: int) -> bool:
        """Whether all of a window of the file is in memory: its readers come back for what follows.

        Behind the `written` bytes of a file nothing needs to be in memory, and in a new file nothing is.
        """
        now, key = self._now(), (file.path, number)  # not the file, whose memory would stay mapped
        if self._seen.get(key, 0.0) > now:
            return True
        start = number * WINDOW
        end = min(start + WINDOW, written)
        if file.resident_end(start, end - start) < end:
            return False
        if len(self._seen) >= SEEN_MAX:
            self._seen.clear()
        self._seen[key] = now + SEEN_SECONDS
        return True
