"""What a store directory holds, as readers see it: messages by queue offset, time, key or place in the log.

Loads and closes the parts; `engine` recovers and changes them. Used by the thread that appends, but for `query`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from orbitmq.errors import StoreError
from orbitmq.runtime.clock import Clock
from orbitmq.store import pull_batch, time_search
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatcher, EntryCode, FilterBitmap
from orbitmq.store.disposal import Disposal
from orbitmq.store.extended_queue import Extension, is_address
from orbitmq.store.files import DirectoryLock, Files
from orbitmq.store.index.search import KeySearch, QueryResult
from orbitmq.store.multi_dispatch import MultiDispatch
from orbitmq.store.options import StoreOptions
from orbitmq.store.positions import NO_OFFSET, PhysicalOffset, QueueOffset
from orbitmq.store.pull_batch import EVERYTHING, BatchLimits, GetResult, GetStatus, Selection
from orbitmq.store.queue import ConsumeQueue, Entry
from orbitmq.store.queues import ConsumeQueues


class ReadableStore:
    """The commit log, consume queues and key index of a directory, which is locked while the store is open."""

    def __init__(
        self,
        options: StoreOptions,
        clock: Clock,
        entry_codes: Mapping[str, EntryCode],
        filter_bitmap: FilterBitmap,
        files: Files | None,
    ) -> None:
        self.options = options
        self._clock = clock
        self._door = files or Files()
        first, *more = options.commit_log_directories
        self._log = CommitLog(
            self._door,
            first,
            options.mapped_file_size_commit_log,
            more=more,
            read_only=options.read_only_commit_log_directories,
            patience_ms=options.os_page_cache_busy_timeout_ms,
        )
        self._queues = ConsumeQueues(
            self._door,
            options.root,
            options.consume_queue_file_size,
            options.mapped_file_size_consume_queue_ext if options.enable_consume_queue_ext else 0,
        )
        self._multi_dispatch = MultiDispatch(options.enable_multi_dispatch, options.enable_lmq)
        self._dispatcher = Dispatcher(self._queues, entry_codes, self._multi_dispatch, filter_bitmap)
        self._checkpoint = Checkpoint(self._door, options.root / "checkpoint")
        self._disposal = Disposal(
            self._door, clock, options.redelete_hanged_file_interval_ms, options.destroy_mapped_file_interval_ms
        )
        self._keys = KeySearch(self._door, self._log, self._checkpoint, options, clock, self._disposal.add)
        self._limits = BatchLimits(options)
        self._lock: DirectoryLock | None = None

    @property
    def commit_log(self) -> CommitLog:
        """For metrics and copies; only the store changes it."""
        return self._log

    @property
    def consume_queues(self) -> ConsumeQueues:
        """For scans over all queues; only the store changes them."""
        return self._queues

    def _release(self) -> None:
        """Close every file and unlock the directory."""
        self._log.close()
        self._queues.close()
        self._keys.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _open_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        if self._lock is None:
            raise StoreError("the store is not open")
        return self._queues.table.get((topic, queue_id))

    # ------------------------------------------------------------------------------------------------------ messages

    def get(self, topic: str, queue_id: int, offset: int, max_count: int, wanted: Selection = EVERYTHING) -> GetResult:
        """The selected messages of a queue, from `offset` on. StoreError while not open.

        The buffers stay valid when the store goes on, removes the file, or closes.
        """
        queue = self._open_queue(topic, queue_id)
        if queue is None:
            zero = QueueOffset(0)
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, zero, zero, zero, [])
        return pull_batch.get(self._log, queue, offset, max_count, wanted, self._limits)

    def unit_at(self, physical_offset: int) -> memoryview | None:
        """The unit at a physical offset, None when nothing can be read there. Its content is not checked."""
        return self._log.unit_at(physical_offset)

    def query(self, topic: str, key: str, count: int, begin: int, end: int, *, at_once: bool = False) -> QueryResult:
        """Up to `count` messages that have `key` among their keys or as unique id, the newest of those stored from
        `begin` to `end` (milliseconds, both included), and others whose key has the same hash. StoreError while not
        open. For any thread: it may wait for index and disk; `at_once` raises BlockingIOError instead.
        """
        if self._lock is None:
            raise StoreError("the store is not open")
        return self._keys.query(topic, key, count, begin, end, at_once=at_once)

    # ---------------------------------------------------------------------------------------------- queues and offsets

    def queue_ids(self, topic: str) -> list[int]:
        """Queues of a topic that ever got a message."""
        return [queue.queue_id for queue in self._queues.of(topic)]

    def max_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """The offset after the last readable message of the queue; 0 for a queue that does not exist."""
        queue = self._open_queue(topic, queue_id)
        return queue.readable_offset if queue is not None else QueueOffset(0)

    def min_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """The first message of the queue that still exists; 0 for a queue that does not exist."""
        queue = self._open_queue(topic, queue_id)
        return queue.min_offset if queue is not None else QueueOffset(0)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> QueueOffset:
        """The first message stored at or after `timestamp`, in milliseconds; the end of the queue when there is none, 0
        for a queue that does not exist.
        """
        queue = self._open_queue(topic, queue_id)
        return time_search.offset_by_time(self._log, queue, timestamp) if queue is not None else QueueOffset(0)

    def last_offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> QueueOffset:
        """The last message stored at or before `timestamp`, in milliseconds; the first one of the queue when there is
        none, 0 for a queue that does not exist.
        """
        queue = self._open_queue(topic, queue_id)
        return time_search.last_offset_by_time(self._log, queue, timestamp) if queue is not None else QueueOffset(0)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store time of the first message of the queue in milliseconds, -1 without one."""
        queue = self._open_queue(topic, queue_id)
        entry = queue.entry(queue.min_offset) if queue is not None else None
        return time_search.store_time(self._log, entry[0]) if entry is not None else -1

    def is_on_disk(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a message is assumed to have left the page cache; False for a message that does not exist."""
        queue = self._open_queue(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return entry is not None and self._log.end - entry[0] > self._limits.memory_bytes

    def entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[Entry]:
        """Up to `count` queue entries from `offset` on: physical offset, size, and tag hash or due time."""
        queue = self._open_queue(topic, queue_id)
        if queue is None:
            return []
        found = islice(queue.entries(offset, queue.readable), count)
        return [self._dispatcher.resolved(queue, entry, self._log.unit_at) for entry in found]

    def extension(self, topic: str, queue_id: int, offset: int) -> Extension | None:
        """The extension of a queue entry; None when it has none."""
        queue = self._open_queue(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return queue.extension(entry[2]) if queue is not None and entry is not None and is_address(entry[2]) else None

    # ------------------------------------------------------------------------------------------------- the commit log

    @property
    def commit_log_min_offset(self) -> PhysicalOffset:
        """First byte of the log that still exists, -1 for an empty log."""
        return self._log.min_offset

    @property
    def commit_log_max_offset(self) -> PhysicalOffset:
        """Where the next message is appended."""
        return self._log.end

    @property
    def readable_offset(self) -> PhysicalOffset:
        """The end of what readers see. With SYNC_FLUSH it follows `flushed_offset` a turn of the event loop later."""
        return self._log.readable

    @property
    def flushed_offset(self) -> PhysicalOffset:
        """The log is on disk up to here."""
        return self._log.flushed

    @property
    def earliest_message_time(self) -> int:
        """Store time of the first message of the log in milliseconds, -1 for an empty log."""
        first = self._log.min_offset
        return time_search.store_time(self._log, first) if first != NO_OFFSET else -1
