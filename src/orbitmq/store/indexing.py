"""Feeds the key index from the log, beside the way of the messages. Knows neither requests nor the event loop.

A put hands nothing over: the indexer reads the log itself from where it stopped, whether that was a tenth of a second
ago, before the last start or never. So the log is its backlog, memory stays bounded however far it lags, and a crash,
a full disk or a lost index need no way of their own.

It works in slices of a few hundred messages. Each begins with a read of the file, which lets go of the interpreter
lock, so that the event loop never waits for more than one slice.
"""

from __future__ import annotations

import logging
import threading

from orbitmq.errors import UnitError
from orbitmq.message.unit import BLANK, BLANK_MAGIC
from orbitmq.runtime.clock import Clock
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.files import MappedFile
from orbitmq.store.index import KeyIndex
from orbitmq.store.key_scan import FoundKeys, key_hashes, scan, scan_one
from orbitmq.store.positions import NO_OFFSET

_log = logging.getLogger(__name__)

SLICE_BYTES = 128 << 10
SLICE_MESSAGES = 256  # about a millisecond
STEP_MS = 1000  # a step of the worker ends then even if more is to be done, so that the worker can be stopped
CLOSE_MS = 10_000  # a close waits for some three million messages; what is left the next start takes up
REPORT_BYTES = 256 << 20  # to be further behind is worth a line in the log,
REPORT_INTERVAL_MS = 10_000  # this often

NO_KEYS = FoundKeys([], [], [], [])


class Indexer:
    """Everything below `position` of the log is in the index, once that was looked up."""

    def __init__(self, log: CommitLog, index: KeyIndex, clock: Clock, flush_interval_ms: int) -> None:
        self.position = 0
        self._log = log
        self._index = index
        self._clock = clock
        self._flush_interval_ms = flush_interval_ms
        self._last_flush_ms = self._last_report_ms = clock.now_ms()
        self._adding = threading.Lock()  # the worker adds, and so does who cannot wait for it
        self._is_lost = True  # where the index ends must be looked up: at the start, and after a write that failed
        self._errno: int | None = None  # the failure that was logged, until it is over

    def _resume(self) -> None:
        """Go on behind the last message in the index, after adding what that one lacks.

        When the last entries are not of the message they point to, the index belongs to another log and is built anew.
        """
        offset, hashes = self._index.newest_rows()
        size, found = self._one(offset)
        start = max(0, self._log.min_offset)  # asked for last: the log may let go of its beginning meanwhile
        if offset < start:  # nothing is indexed, or only what the log has lost
            self.position = start
            return
        expected = key_hashes(found.topics, found.keys)
        if set(hashes) <= set(expected):
            done = len(hashes)  # more than expected where RocketMQ has entered its last message twice
            self._index.add(expected[done:], found.offsets[done:], found.timestamps[done:])
            self.position = offset + size
        else:
            _log.warning("event=index_discarded reason=another_log offset=%d", offset)
            self._index.clear()
            self.position = start

    def _one(self, offset: int) -> tuple[int, FoundKeys]:
        """Size and keys of the message at a place of the log; nothing when it cannot be read."""
        unit = self._log.unit_at(offset)
        try:
            return scan_one(unit or b"", offset)
        except UnitError:
            return 0, NO_KEYS

    # ------------------------------------------------------------------------------------------------------- the work

    def catch_up(self, end: int, budget_ms: int) -> bool:
        """Index the log up to `end`, or as much as the time allows; whether all is done. For any thread."""
        deadline = self._clock.now_ms() + budget_ms
        try:
            while self.position < end and self._clock.now_ms() < deadline:
                with self._adding:
                    if not self._slice(end):
                        break
        except OSError as error:
            self._is_lost = True
            if error.errno != self._errno:
                _log.error("event=index_stopped position=%d error=%s", self.position, error)
                self._errno = error.errno
        return self.position >= end

    def _slice(self, end: int) -> bool:
        """Index some hundred messages; False when the log cannot be read here, or not yet."""
        if self._is_lost:
            self._resume()
            self._is_lost = False
        first = self._log.min_offset
        start = self.position = max(self.position, first) if first != NO_OFFSET else end
        file, place = self._log.files.find(start), start % self._log.files.file_size
        if file is None or start >= end:
            return False
        room = min(file.size - place, end - start)
        size, found = scan(file.read(place, min(room, SLICE_BYTES)), start, SLICE_MESSAGES)
        if size == 0:
            size, found = self._odd_one(file, start, room)
        self._index.add(key_hashes(found.topics, found.keys), found.offsets, found.timestamps)
        self.position = start + size
        self._errno = None
        return size > 0

    def _odd_one(self, file: MappedFile, start: int, room: int) -> tuple[int, FoundKeys]:
        """What `scan` does not take: the end of a file, a unit larger than a slice, one that RocketMQ 4.9 has not
        written. 0 for a unit that is not whole yet; one whose lengths disagree is stepped over.
        """
        place = start % file.size
        head = file.read(place, min(room, BLANK.size))
        size, magic = BLANK.unpack(head.ljust(BLANK.size, b"\0"))
        if magic == BLANK_MAGIC:
            return file.size - place, NO_KEYS
        if not 0 < size <= room:
            return 0, NO_KEYS
        try:
            return scan_one(file.read(place, size), start)
        except UnitError as error:
            _log.warning("event=index_skipped offset=%d error=%s", start, error)
            return size, NO_KEYS

    def step(self) -> None:
        """A worker's turn: catch up, let go of what the log has lost, flush when it is time. OSError when the disk
        failed to flush; a full one is waited out.
        """
        self.catch_up(self._log.readable, STEP_MS)
        with self._adding:
            self._index.forget_below(self._log.min_offset)
        now_ms = self._clock.now_ms()
        if self._index.awaits_flush or now_ms - self._last_flush_ms >= self._flush_interval_ms:
            self._last_flush_ms = now_ms
            self._index.flush()
        behind = self._log.readable - self.position
        if behind > REPORT_BYTES and now_ms - self._last_report_ms >= REPORT_INTERVAL_MS:
            self._last_report_ms = now_ms
            _log.info("event=index_behind position=%d bytes=%d", self.position, behind)

    def finish(self) -> None:
        """Before a close, when the log is on disk: everything in the index, and that on disk too. OSError when the disk
        failed.
        """
        if not self.catch_up(self._log.flushed, CLOSE_MS):
            _log.warning("event=index_unfinished position=%d log_end=%d", self.position, self._log.flushed)
        self._index.flush()
