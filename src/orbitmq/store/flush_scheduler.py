"""Decides when the flushers of log, queues and transient pool run, and calls back when messages are durable."""

from __future__ import annotations

from orbitmq.runtime.clock import Clock
from orbitmq.store.arrivals import Arrivals
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.flush_waits import FlushCallback, FlushWaits
from orbitmq.store.flusher import LogCommitter, LogFlusher, QueueFlusher
from orbitmq.store.options import StoreOptions
from orbitmq.store.positions import PhysicalOffset
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.worker import Deliver, MakeWorker


class FlushScheduler:
    """`waits` are the callbacks of messages that are not on disk yet. Used by the thread that appends, but for `fail`;
    `deliver` brings it what the `workers` report.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        arrivals: Arrivals,
        options: StoreOptions,
        clock: Clock,
        deliver: Deliver,
        worker: MakeWorker,
    ) -> None:
        self.waits = FlushWaits(clock, options.sync_flush_timeout_ms)
        self.log_flusher = LogFlusher(log, checkpoint, options, clock, self._on_flush)
        self.log_committer = LogCommitter(log, options, clock, self._on_commit)
        self.queue_flusher = QueueFlusher(log, queues, dispatcher, checkpoint, options, clock)
        self.log_worker = worker("flush-log", self.log_flusher.step, options.flush_interval_commit_log_ms)
        self.queue_worker = worker("flush-queues", self.queue_flusher.step, options.flush_interval_consume_queue_ms)
        self.commit_worker = worker("commit-log", self.log_committer.step, options.commit_interval_commit_log_ms)
        self.workers = [self.log_worker, self.queue_worker]
        if options.uses_transient_pool:
            self.workers.append(self.commit_worker)
        self._log = log
        self._arrivals = arrivals
        self._deliver = deliver
        self._group = self.log_flusher.group
        self._flushes_each = options.flushes_each
        self._flushes_on_append = options.flushes_each or not options.flush_commit_log_timed
        self.is_stopped = False  # nothing is flushed any more

    def appended(self) -> None:
        """Wake the flusher if there is enough to flush."""
        if not self._flushes_on_append:
            return
        if self._group is None:
            if self.log_flusher.has_enough:
                self.flush_log_soon()
        elif self._group.join():
            self.log_worker.wake()

    def flush_log_soon(self) -> None:
        if self.log_flusher.request():
            self.log_worker.wake()

    def flush_all_soon(self) -> None:
        self.flush_log_soon()
        self.queue_flusher.request()
        self.queue_worker.wake()

    def when_flushed(self, offset: PhysicalOffset, callback: FlushCallback) -> None:
        """Flush the log up to `offset` now; then `callback(True)`, or `callback(False)` when the disk fails or takes
        longer than syncFlushTimeout. Offsets of successive calls must not decrease.

        Callbacks are run by `deliver` and by `waits.expire`, those of one flush together and in the order of the calls.
        """
        self.waits.add(offset, callback)
        if self.is_stopped:
            self.waits.fail()
        else:
            self.log_committer.request()
            self.commit_worker.wake()
            self.flush_log_soon()

    def when_durable(self, offset: PhysicalOffset, callback: FlushCallback) -> None:
        """The same for a message that was put. With SYNC_FLUSH it may wait a little for others, see `CommitGroup`."""
        if self._group is None or self.is_stopped or offset <= self._log.flushed:
            self.when_flushed(offset, callback)
        else:
            self.waits.add(offset, callback)  # `appended` has scheduled the flush

    def fail(self) -> None:
        """Fail all callbacks, present and future: the disk has failed, or the store is stopping. For any thread."""
        self.is_stopped = True
        self._deliver(self.waits.fail)

    def _on_flush(self, flushed: PhysicalOffset) -> None:
        """On the flushing thread: the consequences belong to the thread that appends."""
        if self._flushes_each or self.waits:
            self._deliver(lambda: self._flushed(flushed))

    def _flushed(self, flushed: PhysicalOffset) -> None:
        if self._flushes_each:
            self._arrivals.show(flushed)
        self.waits.reached(flushed)

    def _on_commit(self, committed: PhysicalOffset) -> None:
        """On the committing thread; as `_on_flush`."""
        self._deliver(lambda: self._arrivals.show(committed))
        if self.waits:
            self.flush_log_soon()
