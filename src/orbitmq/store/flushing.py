"""What is flushed when. Steps of worker threads, so that the event loop never waits for a disk.

The log flusher also tells those who wait for their message to be on disk: all who came before a flush began are
told together after it, which is the group commit of SYNC_FLUSH.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from orbitmq.runtime.clock import Clock
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.files import PAGE
from orbitmq.store.options import StoreOptions
from orbitmq.store.positions import PhysicalOffset
from orbitmq.store.queues import ConsumeQueues

_log = logging.getLogger(__name__)

FlushCallback = Callable[[bool], object]
Deliver = Callable[[Callable[[], object]], object]


class LogFlusher:
    """Decides when the commit log is flushed. Waiting callbacks are few: no more than sends under way."""

    def __init__(
        self, log: CommitLog, checkpoint: Checkpoint, options: StoreOptions, clock: Clock, deliver: Deliver
    ) -> None:
        self._log = log
        self._checkpoint = checkpoint
        self._least_bytes = options.flush_commit_log_least_pages * PAGE
        self._thorough_interval_ms = options.flush_commit_log_thorough_interval_ms
        self._clock = clock
        self._deliver = deliver
        self._last_thorough_ms = clock.now_ms()
        self._waiting: deque[tuple[PhysicalOffset, FlushCallback]] = deque()

    def when_flushed(self, offset: PhysicalOffset, callback: FlushCallback) -> None:
        """Call back with True once the log is on disk up to `offset`, with False when it never will be."""
        self._waiting.append((offset, callback))

    def step(self) -> None:
        """Flush if enough is new, if it is time, or if somebody waits. OSError when the disk failed."""
        now_ms = self._clock.now_ms()
        thorough = now_ms - self._last_thorough_ms >= self._thorough_interval_ms
        if thorough:
            self._last_thorough_ms = now_ms
        if thorough or self._waiting or self._log.end - self._log.flushed >= self._least_bytes:
            self.flush()

    def flush(self) -> None:
        """Flush whatever is new and tell those who wait."""
        timestamp = self._log.last_store_timestamp
        flushed = self._log.flush()
        self._checkpoint.log_timestamp = max(self._checkpoint.log_timestamp, timestamp)
        self._tell(lambda offset: offset <= flushed, done=True)

    def give_up(self) -> None:
        """The disk failed: nobody who waits will get what it waits for."""
        self._tell(lambda _: True, done=False)

    def _tell(self, reached: Callable[[PhysicalOffset], bool], *, done: bool) -> None:
        ready = []
        while self._waiting and reached(self._waiting[0][0]):
            ready.append(self._waiting.popleft()[1])
        if ready:
            self._deliver(lambda: [callback(done) for callback in ready])


class QueueFlusher:
    """Decides when the consume queues are flushed and the checkpoint is written."""

    def __init__(
        self,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        options: StoreOptions,
        clock: Clock,
    ) -> None:
        self._queues = queues
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._least_bytes = max(1, options.flush_consume_queue_least_pages * PAGE)
        self._thorough_interval_ms = options.flush_consume_queue_thorough_interval_ms
        self._clock = clock
        self._last_thorough_ms = clock.now_ms()

    def step(self) -> None:
        """Flush queues with enough new entries; all of them when it is time. OSError when the disk failed."""
        now_ms = self._clock.now_ms()
        if now_ms - self._last_thorough_ms >= self._thorough_interval_ms:
            self._last_thorough_ms = now_ms
            self.flush()
            return
        for queue in self._queues:
            if queue.end - queue.flushed >= self._least_bytes:
                queue.flush()

    def flush(self) -> None:
        """Flush every queue, then say so in the checkpoint; in this order, or a crash between would lose entries."""
        timestamp = self._dispatcher.store_timestamp
        for queue in self._queues:
            queue.flush()
        self._checkpoint.queue_timestamp = max(self._checkpoint.queue_timestamp, timestamp)
        self._checkpoint.save()
