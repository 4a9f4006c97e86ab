"""The steps of the worker threads that flush, so that the event loop never waits for a disk."""

from __future__ import annotations

import logging
from collections.abc import Callable

from orbitmq.runtime.clock import Clock
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.files import PAGE
from orbitmq.store.flush_waits import CommitGroup
from orbitmq.store.options import StoreOptions
from orbitmq.store.positions import PhysicalOffset
from orbitmq.store.queues import ConsumeQueues

_log = logging.getLogger(__name__)


class LogFlusher:
    """Flushes the commit log. `on_flush` gets the offset up to which it is on disk, on the flushing thread. With
    SYNC_FLUSH `group` counts the messages that wait for that.
    """

    def __init__(
        self,
        log: CommitLog,
        checkpoint: Checkpoint,
        options: StoreOptions,
        clock: Clock,
        on_flush: Callable[[PhysicalOffset], object],
    ) -> None:
        self._log = log
        self._checkpoint = checkpoint
        self._least_bytes = options.flush_commit_log_least_pages * PAGE
        self._thorough_interval_ms = options.flush_commit_log_thorough_interval_ms
        self._clock = clock
        self._on_flush = on_flush
        self._last_thorough_ms = clock.now_ms()
        self._is_requested = False
        self.group = CommitGroup() if options.flushes_each else None

    def request(self) -> bool:
        """Have the next step flush whatever is new; whether this is the first request since the last flush."""
        first, self._is_requested = not self._is_requested, True
        return first

    @property
    def has_enough(self) -> bool:
        """Whether so much is new that it should be flushed."""
        return self._log.written - self._log.flushed >= self._least_bytes

    def step(self) -> float | None:
        """Flush if enough is new, if it is time, if requested, or if messages wait. OSError when the disk failed. The
        milliseconds until the next step; None is the interval.
        """
        now_ms = self._clock.now_ms()
        thorough = now_ms - self._last_thorough_ms >= self._thorough_interval_ms
        if thorough:
            self._last_thorough_ms = now_ms
        group = self.group
        if group is None:
            if thorough or self._is_requested or self.has_enough:
                self.flush()
            return None
        if thorough or self._is_requested or group.linger_s() == 0:
            self.flush()
        linger_s = group.linger_s()
        return None if linger_s is None else linger_s * 1000

    def flush(self) -> None:
        """Flush whatever is new."""
        # Before the end is read: what is appended from here on makes a new request.
        self._is_requested = False
        if self.group is not None:
            self.group.begin()
        timestamp = self._log.written_timestamp
        flushed = self._log.flush()
        self._checkpoint.log_timestamp = max(self._checkpoint.log_timestamp, timestamp)
        if self.group is not None:
            self.group.end()
        self._on_flush(flushed)


class LogCommitter:
    """Copies messages from the transient pool to the log's files. `on_commit` gets the offset up to which it did."""

    def __init__(
        self, log: CommitLog, options: StoreOptions, clock: Clock, on_commit: Callable[[PhysicalOffset], object]
    ) -> None:
        self._log = log
        self._least_bytes = options.commit_commit_log_least_pages * PAGE
        self._thorough_interval_ms = options.commit_commit_log_thorough_interval_ms
        self._clock = clock
        self._on_commit = on_commit
        self._last_ms = clock.now_ms()
        self._is_requested = False

    def request(self) -> None:
        """Have the next step copy whatever is new."""
        self._is_requested = True

    def step(self) -> None:
        """Commit if enough is new, a file is full, it is time, or if requested. OSError when the disk failed."""
        now_ms = self._clock.now_ms()
        new_bytes = self._log.end - self._log.written
        is_full = self._log.staging is not None and self._log.staging.has_full_file
        is_due = is_full or self._is_requested or now_ms - self._last_ms >= self._thorough_interval_ms
        if new_bytes and (is_due or new_bytes >= self._least_bytes):
            self._last_ms = now_ms
            self._is_requested = False
            self._on_commit(self._log.commit())


class QueueFlusher:
    """Flushes the consume queues and writes the checkpoint.

    All entries of messages below `settled` are on disk: after a crash they need not be rebuilt from the log.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        options: StoreOptions,
        clock: Clock,
    ) -> None:
        self.settled = PhysicalOffset(0)
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._is_requested = False
        self._least_bytes = max(1, options.flush_consume_queue_least_pages * PAGE)
        self._thorough_interval_ms = options.flush_consume_queue_thorough_interval_ms
        self._clock = clock
        self._last_thorough_ms = clock.now_ms()

    def request(self) -> None:
        """Have the next step flush all queues."""
        self._is_requested = True

    def step(self) -> None:
        """Flush queues with enough new entries; all of them when it is time, or if requested. OSError when the disk
        failed.
        """
        now_ms = self._clock.now_ms()
        if self._is_requested or now_ms - self._last_thorough_ms >= self._thorough_interval_ms:
            self._last_thorough_ms = now_ms
            self.flush()
            return
        self._queues.flush([queue for queue in self._queues if queue.end - queue.flushed >= self._least_bytes])

    def flush(self) -> None:
        """Flush every queue, then write the checkpoint; in this order, or a crash in between would lose entries."""
        self._is_requested = False
        # The last message may have no entry yet; but `settled` is only compared with the ends of files.
        end = self._log.end
        timestamp = self._dispatcher.store_timestamp
        self._queues.flush(self._queues)
        self._checkpoint.queue_timestamp = max(self._checkpoint.queue_timestamp, timestamp)
        self._checkpoint.save()
        self.settled = end
