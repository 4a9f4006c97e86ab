"""After a crash: which files of the key index are valid, and whether together they hold every key of the log.

A full file that the checkpoint covers was flushed before; some of its entries are sampled. Of any other file only
entries that prove one another are kept. But a file can also be lost, or belong to another store. So each must begin
where its predecessor ends, with no message in between that has keys, and some of its entries are compared with the
messages they point to. From the first file on that fails, the index is rebuilt from the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Protocol

from orbitmq.store.index.file import IndexFile, IndexShape
from orbitmq.store.index.proof import looks_whole, proven_entries, samples

_log = logging.getLogger(__name__)

MESSAGES_COMPARED = 16  # of a file: enough to know an index of another log, and no more than as many reads


class IndexedLog(Protocol):
    """What recovery needs of the log."""

    @property
    def start(self) -> int:
        """Where it begins."""

    @property
    def end(self) -> int:
        """The offset of the next message."""

    def store_time(self, offset: int) -> int:
        """Store time of the message at a place, -1 when it cannot be read."""

    def hashes_at(self, offset: int) -> list[int] | None:
        """The hashes of the keys of the message at a place, None when it cannot be read."""

    def first_with_keys(self, start: int, end: int) -> int | None:
        """The first message from `start` on and below `end` that has keys."""

    def behind(self, offset: int) -> int:
        """Where the message at a place ends; the place itself when it cannot be read."""


class IndexRecovery:
    """`settled_ms`: files that end with a message stored then or before are on disk. `repaired` lists the files that
    were changed, which may not be.
    """

    def __init__(
        self, shape: IndexShape, log: IndexedLog, settled_ms: int, *, clean: bool, keep_unproven: bool
    ) -> None:
        self.repaired: list[IndexFile] = []
        self._shape = shape
        self._log = log
        self._settled_ms = settled_ms
        self._clean = clean
        self._keep_unproven = keep_unproven

    def believed(self, files: Sequence[IndexFile]) -> int:
        """How many files from the first on are valid; some of them have been cut."""
        for number, file in enumerate(files):
            is_settled = self._is_settled(file)
            if not is_settled and not (self._keep_unproven and self._repair(file)):
                return number
            if not self._clean and not (self._matches(file) and self._follows(files, number)):
                _log.warning("event=index_gap file=%s", file.file.path.name)
                return number
            if not is_settled:
                self.repaired.append(file)
                if not file.is_full:  # what follows in later files would leave a gap
                    return number + 1
        return len(files)

    def _is_settled(self, file: IndexFile) -> bool:
        """Whether header and slots can be believed as they are."""
        if file.count > self._shape.entries or file.end_offset >= self._log.end:
            return False
        if self._clean:
            return True
        return file.is_full and file.end_timestamp <= self._settled_ms and looks_whole(file)

    def _repair(self, file: IndexFile) -> bool:
        """Cut the file before the first entry that cannot be believed, and make slots and header anew. False when the
        file is of no use: nothing is left, the log has lost those messages, or the disk has no room for the repair.
        """
        claimed = file.count
        file.count, heads = proven_entries(file.file.filled, self._shape, self._log.end)
        _log.info("event=index_proven file=%s entries=%d of=%d", file.file.path.name, file.count - 1, claimed - 1)
        if file.is_empty:
            return False
        first, last = file.entry(1)[1], file.entry(file.count - 1)[1]
        begin = file.begin_timestamp if file.begin_offset == first else 0
        file.begin_timestamp = begin or self._log.store_time(first)
        file.end_timestamp = self._log.store_time(last)
        if min(file.begin_timestamp, file.end_timestamp) <= 0:
            return False
        try:
            file.settle(heads)
        except OSError as error:
            _log.warning("event=index_unrepaired file=%s error=%s", file.file.path.name, error)
            return False
        return True

    def _matches(self, file: IndexFile) -> bool:
        """Whether some of its entries are of the messages they lead to, as far as the log still has these."""
        for number in samples(file.count, MESSAGES_COMPARED):
            key_hash, offset, _, _ = file.entry(number)
            hashes = self._log.hashes_at(offset) if offset >= self._log.start else None
            if hashes is not None and key_hash not in hashes:
                return False
        return True

    def _follows(self, files: Sequence[IndexFile], number: int) -> bool:
        """Whether no key is missing between the previous files, or the beginning of the log, and the file."""
        log, file = self._log, files[number]
        begin = file.entry(1)[1]
        end = files[number - 1].end_offset if number else -1
        if begin < end or not all(self._holds_all_of(files, number, place) for place in {begin, end}):
            return False
        start = log.start if end < log.start else log.behind(end)
        return begin <= start or log.first_with_keys(start, begin) is None

    def _holds_all_of(self, files: Sequence[IndexFile], number: int, place: int) -> bool:
        """Whether the end of the previous file and the beginning of this one have every key of the message there. If
        its keys fill this file as well they continue in the next, and are checked with that.
        """
        file = files[number]
        expected = self._log.hashes_at(place) if self._log.start <= place < file.entry(file.count - 1)[1] else None
        if not expected:
            return True
        before = chain.from_iterable(_entries(other, -1) for other in reversed(files[:number]))
        return set(expected) <= {*_hashes_of(place, before), *_hashes_of(place, _entries(file, 1))}


def _entries(file: IndexFile, step: int) -> Iterator[tuple[int, int]]:
    """Hash and place of each entry, from the first on or from the last."""
    for number in range(1, file.count)[::step]:
        key_hash, offset, _, _ = file.entry(number)
        yield key_hash, offset


def _hashes_of(place: int, entries: Iterator[tuple[int, int]]) -> Iterator[int]:
    """The hashes of the entries for that place, which come first."""
    for key_hash, offset in entries:
        if offset != place:
            return
        yield key_hash
