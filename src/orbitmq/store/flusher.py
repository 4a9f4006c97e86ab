"""When to flush. Steps of worker threads, so that the event loop never waits for a disk."""

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
    """Decides when the commit log is flushed. `on_flush` is called by the flushing thread with the flushed offset.
    `group` has the callers that wait for each message, as with SYNC_FLUSH.
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
        self._asked = False
        self.group = CommitGroup() if options.flushes_each else None

    def ask(self) -> bool:
        """Request a flush in the next step; returns whether none was requested yet."""
        first, self._asked = not self._asked, True
        return first

    @property
    def has_enough(self) -> bool:
        """Whether so much is new that it should be flushed."""
        return self._log.written - self._log.flushed >= self._least_bytes

    def step(self) -> float | None:
        """Flush if enough is new, if it is time, or if a flush is requested or awaited. OSError if the disk failed.
        Returns the milliseconds until the next step; None leaves it to the interval.
        """
        now_ms = self._clock.now_ms()
        thorough = now_ms - self._last_thorough_ms >= self._thorough_interval_ms
        if thorough:
            self._last_thorough_ms = now_ms
        group = self.group
        if group is None:
            if thorough or self._asked or self.has_enough:
                self.flush()
            return None
        if thorough or self._asked or group.linger_s() == 0:
            self.flush()
        linger_s = group.linger_s()
        return None if linger_s is None else linger_s * 1000

    def flush(self) -> None:
        """Flush whatever is new."""
        # Before the end is read: later appends request it again.
        self._asked = False
        if self.group is not None:
            self.group.begin()
        timestamp = self._log.written_timestamp
        flushed = self._log.flush()
        self._checkpoint.log_timestamp = max(self._checkpoint.log_timestamp, timestamp)
        if self.group is not None:
            self.group.end()
        self._on_flush(flushed)


class LogCommitter:
    """Decides when the transient pool is copied to the log's files. `on_commit` is called with the offset."""

    def __init__(
        self, log: CommitLog, options: StoreOptions, clock: Clock, on_commit: Callable[[PhysicalOffset], object]
    ) -> None:
        self._log = log
        self._least_bytes = options.commit_commit_log_least_pages * PAGE
        self._thorough_interval_ms = options.commit_commit_log_thorough_interval_ms
        self._clock = clock
        self._on_commit = on_commit
        self._last_ms = clock.now_ms()
        self._asked = False

    def ask(self) -> None:
        """Request a copy in the next step."""
        self._asked = True

    def step(self) -> None:
        """Commit if enough is new, a file is full, it is time, or a copy is requested. OSError if the disk failed."""
        now_ms = self._clock.now_ms()
        new_bytes = self._log.end - self._log.written
        is_full = self._log.staging is not None and self._log.staging.has_full_file
        is_due = is_full or self._asked or now_ms - self._last_ms >= self._thorough_interval_ms
        if new_bytes and (is_due or new_bytes >= self._least_bytes):
            self._last_ms = now_ms
            self._asked = False
            self._on_commit(self._log.commit())


class QueueFlusher:
    """Decides when the consume queues are flushed and the checkpoint is written.

    Of messages below `settled` all entries are on disk: a crash would not need these messages to make them anew.
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
        self._asked = False
        self._least_bytes = max(1, options.flush_consume_queue_least_pages * PAGE)
        self._thorough_interval_ms = options.flush_consume_queue_thorough_interval_ms
        self._clock = clock
        self._last_thorough_ms = clock.now_ms()

    def ask(self) -> None:
        """Let the next step flush all queues."""
        self._asked = True

    def step(self) -> None:
        """Flush queues with enough new entries; all of them if it is time or requested. OSError if the disk failed."""
        now_ms = self._clock.now_ms()
        if self._asked or now_ms - self._last_thorough_ms >= self._thorough_interval_ms:
            self._last_thorough_ms = now_ms
            self.flush()
            return
        self._queues.flush([queue for queue in self._queues if queue.end - queue.flushed >= self._least_bytes])

    def flush(self) -> None:
        """Flush every queue, then write the checkpoint; in this order, or a crash in between would lose entries."""
        self._asked = False
        # The last message may not be dispatched yet; the check is whether it lies after a file, so those in the file
        # are.
        end = self._log.end
        timestamp = self._dispatcher.store_timestamp
        self._queues.flush(self._queues)
        self._checkpoint.queue_timestamp = max(self._checkpoint.queue_timestamp, timestamp)
        self._checkpoint.save()
        self.settled = end
