"""Feeds the key index from the log, off the path of a put. Knows neither requests nor the event loop.

The indexer reads the log itself from where it stopped, whether that was a tenth of a second ago, before the last start
or never. So the log is its backlog, memory stays bounded however large its lag, and a crash, a full disk or a lost
index need no special handling. It works in slices of a few hundred messages.
"""

from __future__ import annotations

import logging
import threading

from orbitmq.runtime.clock import Clock
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.index.key_index import KeyIndex
from orbitmq.store.index.log_keys import SLICE_MESSAGES, LogKeys
from orbitmq.store.index.loops import IS_COMPILED
from orbitmq.store.positions import NO_OFFSET

_log = logging.getLogger(__name__)

STEP_MS = 1000  # a step ends after this time even if more is to be done, so that the worker can be stopped
CLOSE_MS = 10_000  # a close indexes up to some three million messages; the next start continues with the rest
REPORT_BYTES = 256 << 20  # a greater lag is logged,
REPORT_INTERVAL_MS = 10_000  # this often


class Indexer:
    """Everything below `position` of the log is in the index, once that was looked up."""

    def __init__(self, log: CommitLog, keys: LogKeys, index: KeyIndex, clock: Clock, flush_interval_ms: int) -> None:
        self.position = 0
        self._log = log
        self._keys = keys
        self._index = index
        self._clock = clock
        self._flush_interval_ms = flush_interval_ms
        self._last_flush_ms = self._last_report_ms = clock.now_ms()
        self._reported = 0  # where `position` was at the last report
        self._adding = threading.Lock()  # held by the worker, and by queries that cannot wait for it
        self._is_lost = True  # where the index ends must be looked up: at the start, and after a write that failed
        self._errno: int | None = None  # the failure that was logged, until it is over

    def _resume(self) -> None:
        """Go on behind the last message in the index, after adding what that one lacks.

        When the last entries are not of the message they point to, the index belongs to another log and is built anew.
        """
        offset, hashes = self._index.newest_rows()
        size, found = self._keys.one(offset)
        start = self._keys.start  # evaluated last: the beginning of the log may be removed meanwhile
        if offset < start:  # nothing is indexed, or only expired messages
            self.position = start
            return
        if set(hashes) <= set(found.hashes):
            done = len(hashes)  # more than expected where RocketMQ has entered its last message twice
            self._index.add(found.hashes[done:], found.offsets[done:], found.timestamps[done:])
            self.position = offset + size
        else:
            _log.warning("event=index_discarded reason=another_log offset=%d", offset)
            self._index.clear()
            self.position = start

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
            self._reported = self.position
        first = self._log.min_offset
        start = self.position = max(self.position, first) if first != NO_OFFSET else end
        size = self._index.add_found(self._keys.units(start, end), start, SLICE_MESSAGES) if IS_COMPILED else 0
        if not size:
            size, found = self._keys.slice(start, end)
            self._index.add(*found)
        self.position = start + size
        self._errno = None
        return size > 0

    def step(self) -> None:
        """A worker's step: catch up, remove expired files, flush if due. OSError if the disk failed to flush."""
        self.catch_up(self._log.readable, STEP_MS)
        with self._adding:
            self._index.forget_below(self._log.min_offset)
        now_ms = self._clock.now_ms()
        if self._index.awaits_flush or now_ms - self._last_flush_ms >= self._flush_interval_ms:
            self._last_flush_ms = now_ms
            self._index.flush()
        behind = self._log.readable - self.position
        passed_ms = now_ms - self._last_report_ms
        if passed_ms >= REPORT_INTERVAL_MS:
            if behind > REPORT_BYTES:
                rate = (self.position - self._reported) // 1000 // passed_ms
                _log.info("event=index_behind position=%d bytes=%d mb_per_s=%d", self.position, behind, rate)
            self._last_report_ms, self._reported = now_ms, self.position

    def finish(self) -> None:
        """Before a close, once the log is on disk: index and flush everything. OSError if the disk failed."""
        if not self.catch_up(self._log.flushed, CLOSE_MS):
            _log.warning("event=index_unfinished position=%d log_end=%d", self.position, self._log.flushed)
        self._index.flush()
