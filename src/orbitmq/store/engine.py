"""The store as a broker uses it: put, get, look up; open and close in the right order.

One thread, the broker's event loop, calls everything here. Worker threads flush, allocate disk blocks, index keys and
find files to remove; they never append, and pass changes of the log or a queue to `deliver`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Mapping
from itertools import islice, starmap
from typing import Final

from orbitmq.errors import BodyTooLarge, MessageIllegal, StoreError, StorePoisoned
from orbitmq.message.batch import PackedBatch, pack_batch
from orbitmq.message.flags import TRANSACTION_MASK
from orbitmq.message.hosts import HOST_V4_SIZE
from orbitmq.message.properties import PROPERTIES_SIZE_MAX
from orbitmq.message.topics import KEPT_TOPICS, TOPIC_LENGTH_MAX, is_lmq
from orbitmq.message.unit import Unit, body_crc, pack_unit, unit_size
from orbitmq.message.unit_loops import pack_common
from orbitmq.runtime.clock import Clock
from orbitmq.store import pull_batch, time_search
from orbitmq.store.arrivals import Arrivals, OnArrival
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.cleaner import Cleaner, ClearBelow, Deliver, KeepsFrom, keeps_nothing, nothing_waits
from orbitmq.store.cold import ColdPages, Pages
from orbitmq.store.commit_log import CALLED_FROM, CommitLog
from orbitmq.store.dispatch import Dispatcher, EntryCode, FilterBitmap, is_queued, no_bitmap
from orbitmq.store.extended_queue import Extension, is_address
from orbitmq.store.files import DirectoryLock, Files
from orbitmq.store.flush_waits import FlushCallback, FlushWaits
from orbitmq.store.flusher import LogCommitter, LogFlusher, QueueFlusher
from orbitmq.store.index.search import KeySearch, QueryResult
from orbitmq.store.multi_dispatch import MultiDispatch, size_when_stored, with_offsets
from orbitmq.store.options import StoreOptions
from orbitmq.store.positions import NO_OFFSET, PhysicalOffset, QueueOffset
from orbitmq.store.pull_batch import EVERYTHING, BatchLimits, GetResult, GetStatus, Selection
from orbitmq.store.queue import ConsumeQueue, Entry
from orbitmq.store.queue_room import QueueRoom, RoomAwaited
from orbitmq.store.queues import ConsumeQueues, check_storable
from orbitmq.store.records import (
    BUSY,
    ILLEGAL_BATCH,
    NO_FILE,
    PROPERTIES_TOO_LONG,
    TOO_MANY_LIGHT_QUEUES,
    UNAVAILABLE,
    PutRecord,
    PutResult,
    PutStatus,
    illegal,
    with_host_bits,
)
from orbitmq.store.recovery import recover
from orbitmq.store.retention import DiskUse, FindUnread, Unread, nothing_unread
from orbitmq.store.transient_pool import BufferPool, Staging
from orbitmq.store.walk import Walk
from orbitmq.store.warmer import Warmer
from orbitmq.store.worker import Worker

_log = logging.getLogger(__name__)

BATCH_GROWTH_MAX: Final = 8  # times maxMessageSize that a batch may take in the log: RocketMQ gives it that size, once
LONGEST_TOPIC: Final = bytes(TOPIC_LENGTH_MAX)
UNIT_SIZE_SLACK: Final = 64 << 10  # by which a unit may be larger than the largest body: head, topic and properties
RESERVE_INTERVAL_MS: Final = 1000  # the worker is woken when it is needed; this only bounds how late it may be
INDEX_INTERVAL_MS = 100  # a query brings the index up to date itself; this bounds how much it finds left to do


def call(job: Callable[[], object]) -> object:
    """Run a completion callback on the current thread."""
    return job()


def _commit_log(files: Files, options: StoreOptions) -> CommitLog:
    first, *more = options.commit_log_directories
    return CommitLog(
        files,
        first,
        options.mapped_file_size_commit_log,
        more=more,
        read_only=options.read_only_commit_log_directories,
        patience_ms=options.os_page_cache_busy_timeout_ms,
    )


class MessageStore:
    """A store directory, opened with `open` and closed with `close`.

    `on_arrival` is called with messages that have become readable; those of a batch together unless they become
    readable one by one. `deliver` runs completion callbacks of worker threads: a broker passes its event loop's
    `call_soon_threadsafe`. `entry_codes` are for topics whose queue entries do not hold the tags' hash. `filter_bitmap`
    returns the filters that match a message, for the queues' extensions. From the offset that `keeps_from` returns, the
    log is retained as long as the disk has room; what `find_unread` finds is retained even then, until it has expired.
    A file is never removed before `clear_below` returns that nothing is needed below its end. With `holds_back`
    messages stay out of their queues' readable part until `confirm` has their end; those that `open` finds do not.
    """

    def __init__(
        self,
        options: StoreOptions,
        *,
        clock: Clock,
        entry_codes: Mapping[str, EntryCode],
        on_arrival: OnArrival | None = None,
        deliver: Deliver = call,
        filter_bitmap: FilterBitmap = no_bitmap,
        keeps_from: KeepsFrom = keeps_nothing,
        find_unread: FindUnread = nothing_unread,
        clear_below: ClearBelow = nothing_waits,
        holds_back: bool = False,
        files: Files | None = None,
    ) -> None:
        self.options = options
        self._clock = clock
        self._fs = files or Files()
        self._abort = options.root / "abort"
        self._log = _commit_log(self._fs, options)
        self._queues = ConsumeQueues(
            self._fs,
            options.root,
            options.consume_queue_file_size,
            options.mapped_file_size_consume_queue_ext if options.enable_consume_queue_ext else 0,
        )
        self._multi_dispatch = MultiDispatch(options.enable_multi_dispatch, options.enable_lmq)
        self._dispatcher = Dispatcher(self._queues, entry_codes, self._multi_dispatch, filter_bitmap)
        self._checkpoint = Checkpoint(self._fs, options.root / "checkpoint")
        self._limits = BatchLimits(options)
        self._bulk_limits = BatchLimits(options, bulk=True)
        self._cold = ColdPages(self._log)
        self._batch_size_max = min(options.max_message_size * BATCH_GROWTH_MAX, self._log.units_size_max)
        self._unit_size_max = min(options.max_message_size + UNIT_SIZE_SLACK, self._log.units_size_max)
        self._lock: DirectoryLock | None = None
        self._refusal: StoreError | None = StoreError("the store is not open")
        self.was_killed = False  # whether `open` found that the last user of the directory had not closed it
        self._is_full = False
        self.put_count = self.put_bytes = 0  # messages stored since the start, and their size in the log
        self._deliver = deliver
        self._waits = FlushWaits(clock, options.sync_flush_timeout_ms)
        self._flushes_each = options.flushes_each
        self._wakes_flusher = options.flushes_each or not options.flush_commit_log_timed
        at_once = not (options.flushes_each or options.uses_transient_pool)
        self._arrivals = Arrivals(self._log, on_arrival, at_once=at_once, holds_back=holds_back)
        self._log_committer = LogCommitter(self._log, options, clock, self._on_commit)
        if options.warm_mapped_file_enable:
            self._log.warmer = Warmer(options.flush_least_pages_when_warm_mapped_file if self._flushes_each else 0)
        self._log_flusher = LogFlusher(self._log, self._checkpoint, options, clock, self._on_flush)
        self._group = self._log_flusher.group
        self._queue_flusher = QueueFlusher(self._log, self._queues, self._dispatcher, self._checkpoint, options, clock)
        self._cleaner = Cleaner(
            self._fs, self._log, self._queues, options, clock, deliver,
            settled=lambda: self._queue_flusher.settled, settle=self._settle, keeps_from=keeps_from,
            find_unread=find_unread, clear_below=clear_below,
        )  # fmt: skip
        self._clean_worker = self._worker("clean", self._cleaner.step, options.clean_resource_interval_ms)
        self._reserve_worker = self._worker("reserve", self._reserve, RESERVE_INTERVAL_MS)
        self._log_worker = self._worker("flush-log", self._log_flusher.step, options.flush_interval_commit_log_ms)
        interval_ms = options.flush_interval_consume_queue_ms
        self._queue_worker = self._worker("flush-queues", self._queue_flusher.step, interval_ms)
        self._commit_worker = self._worker(
            "commit-log", self._log_committer.step, options.commit_interval_commit_log_ms
        )
        patience_ms = options.os_page_cache_busy_timeout_ms
        self._room = QueueRoom(deliver, clock, patience_ms, lambda: self._room_worker.wake())
        self._room_worker = self._worker("room", self._room.step, RESERVE_INTERVAL_MS)
        self._keys = KeySearch(self._fs, self._log, self._checkpoint, options, clock, self._cleaner.dispose)
        self._workers = self._needed_workers()

    # ------------------------------------------------------------------------------------------------ open and close

    def open(self) -> None:
        """Lock the directory, load and recover its content; takes time after a crash.

        StoreLocked if another store owns it, StoreDamaged for files that do not belong there, StoreError if the disk
        refuses. A directory that does not exist is created.
        """
        try:
            self._fs.make_directory(self.options.root)
            self._lock = self._fs.lock(self.options.root / "lock")
            self._load()
            self._cold.opened()
        except OSError as error:
            self._let_go()
            raise StoreError(f"the store directory {self.options.root} cannot be used: {error}") from error
        except StoreError:
            self._let_go()
            raise
        self._refusal = None
        self._cleaner.look()
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """Flush everything and release the directory; a later start has nothing to recover.

        The abort file stays if the disk has failed, so that the next start recovers.
        """
        if self._lock is None:
            return
        for worker in self._workers:
            worker.stop()
        self._cleaner.close()
        if not self.is_poisoned:
            try:
                self._log.end_whole()
                self._log.commit()
                self._log_flusher.flush()
                self._queue_flusher.flush()
                self._keys.finish()
                self._fs.remove(self._abort)
            except OSError as error:
                self._poison(error)
        self._refusal = StoreError("the store is closed")
        self._let_go()

    def _load(self) -> None:
        clean = self._fs.size(self._abort) < 0
        if self.options.uses_transient_pool:
            self._log.staging = Staging(
                BufferPool(self.options.transient_store_pool_size, self.options.mapped_file_size_commit_log),
                must_have_buffer=self.options.fast_fail_if_no_buffer_in_store_pool,
            )
        self._log.files.load()
        clean = self._queues.load() and clean
        self.was_killed = not clean
        self._checkpoint.load()
        recover(
            self._log,
            self._queues,
            self._dispatcher,
            self._checkpoint,
            self._clock,
            clean=clean,
            check_crc=self.options.check_crc_on_recover,
            is_copy=self.options.is_slave,
        )
        if not clean:
            # Data of a killed process may be in memory only, names included; after this it counts as flushed.
            came_along = self._queues.flush(self._queues)
            below_root = (self.options.root / "index",) if came_along else (self.options.root,)
            for directory in {*below_root, *self._log.files.directories}:
                self._fs.sync_names(directory)
            self._log_flusher.flush()
            self._queue_flusher.flush()
        self._queue_flusher.settled = self._log.end
        self._keys.load(clean=clean)
        self._fs.write(self._abort, b"")

    def _needed_workers(self) -> list[Worker]:
        """The workers that these options need, in the order in which they start and stop."""
        workers = [
            self._reserve_worker,
            self._room_worker,
            self._log_worker,
            self._queue_worker,
            self._clean_worker,
        ]
        if self.options.uses_transient_pool:
            workers.append(self._commit_worker)
        if self._keys.is_enabled:
            workers.append(self._worker("index", self._keys.indexer.step, INDEX_INTERVAL_MS))
        return workers

    def _let_go(self) -> None:
        self._log.close()
        self._queues.close()
        self._keys.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # ------------------------------------------------------------------------------------------------------- writing

    def put(self, record: PutRecord, at_once: bool = False) -> PutResult:
        """Store one message. StorePoisoned after a failed flush, StoreError while not open.

        MessageIllegal for a topic that cannot be a directory; other refusals are a status. `at_once` raises RoomAwaited
        where a queue has no room yet, and the caller should not wait for a disk: nothing is stored then.
        """
        if self._refusal is not None:
            raise self._refusal
        if self._cleaner.is_full and not record.makes_room:
            return UNAVAILABLE
        topic, queue_id, body, properties = record.topic, record.queue_id, record.body, record.properties
        sys_flag = with_host_bits(record)
        queue = self._queues.table.get((topic, queue_id)) or self._queues.create(topic, queue_id)
        queued = is_queued(sys_flag)
        further: list[tuple[ConsumeQueue, QueueOffset]] = []
        if queued and self._multi_dispatch.is_enabled:
            names = self._multi_dispatch.queues(topic, queue_id, properties)
            if self._are_too_many(names):
                return TOO_MANY_LIGHT_QUEUES
            if names:
                further = [(other, other.max_offset) for other in starmap(self._queues.find_or_create, names)]
                properties = with_offsets(properties, [offset for _, offset in further])
        size = unit_size(sys_flag, body, queue.topic_bytes, properties)
        if len(properties) > PROPERTIES_SIZE_MAX:
            return PROPERTIES_TOO_LONG
        if (size > self._unit_size_max or len(body) > self.options.max_message_size) and (
            too_large := self._too_large(record, size)
        ) is not None:
            return too_large
        log = self._log
        if log.end + size > log.limit or queue.end >= queue.limit or further:
            refusal = self._find_room(
                size, [queue, *(other for other, _ in further)] if queued else [], at_once=at_once
            )
            if refusal is not None:
                return refusal
        offset = log.end
        now_ms = self._clock.now_ms()
        queue_offset = queue.max_offset if queued else QueueOffset(0)
        unit = pack_unit(
            size, body_crc(body), queue_id, record.flag, queue_offset, offset, sys_flag, record.born_timestamp,
            record.born_host, now_ms, record.store_host, record.reconsume_times, record.prepared_transaction_offset,
            body, queue.topic_bytes, properties,
        )  # fmt: skip
        log.append(unit, now_ms)
        if self._wakes_flusher:
            self._wake_flusher()
        if queued:
            code = self._enter(queue, queue_offset, offset, size, properties, now_ms)
            for other, other_offset in further:
                other.put(other_offset, offset, size, code)
                self._arrivals.add(other, other_offset, offset + size, code, now_ms)
        self.put_count += 1
        self.put_bytes += size
        return PutResult(PutStatus.PUT_OK, offset, queue_offset, size, now_ms, record.store_host)

    def put_common(
        self, topic: str, queue_id: int, data: bytes, body_start: int, body_end: int, properties: bytes, code: int,
        flag: int, sys_flag: int, born: int, born_host: bytes, store_host: bytes, times: int,
    ) -> tuple[PhysicalOffset, QueueOffset, int] | None:  # fmt: skip
        """`put` of a message for which nothing special is to be done, with its body inside of `data`; `code` is the
        hash of its tags. Its offsets and size. None, and nothing is done, if `put` might have to wait, refuse it, or do
        more.
        """
        log, queue = self._log, self._queues.table.get((topic, queue_id))
        if (
            queue is None
            or queue.extended is not None
            or queue.end >= queue.limit
            or self._refusal is not None
            or self._cleaner.is_full
            or self._multi_dispatch.is_enabled
            or self._dispatcher.has_entry_code(topic)
            or len(properties) > PROPERTIES_SIZE_MAX
            or len(born_host) != HOST_V4_SIZE
            or len(store_host) != HOST_V4_SIZE
        ):
            return None
        body = data[body_start:body_end]
        size = unit_size(0, body, queue.topic_bytes, properties)
        if size >= CALLED_FROM or size > self._unit_size_max or log.end + size > log.limit:  # a call may fail
            return None
        if body_end - body_start > self.options.max_message_size:
            return None
        offset, queue_offset, now_ms = log.end, queue.max_offset, self._clock.now_ms()
        stored = pack_common(
            data, body_start, body_end, queue.topic_bytes, properties, body_crc(body), queue_id, flag, queue_offset,
            offset, sys_flag, born, born_host, now_ms, store_host, times,
        )  # fmt: skip
        log.append(stored, now_ms)
        if self._wakes_flusher:
            self._wake_flusher()
        queue.put(queue_offset, offset, size, code)
        self._dispatcher.store_timestamp = now_ms
        self._arrivals.add(queue, queue_offset, offset + size, code, now_ms)
        self.put_count += 1
        self.put_bytes += size
        return offset, queue_offset, size

    def refused_later(self, record: PutRecord, topic: str, growth: int = 0) -> PutResult | None:
        """The refusal that `put` would always give a message when it is put to its real `topic` later, so that its
        sender gets it now. None if only the disk, or an option that may change, can refuse it then. `growth` is how
        much longer its properties may become until then.

        MessageIllegal for a topic, or a further queue's name, that cannot be stored.
        """
        check_storable(topic)
        properties = record.properties
        size = size_when_stored(topic, properties) + growth
        if size > PROPERTIES_SIZE_MAX:
            return PROPERTIES_TOO_LONG
        whole = unit_size(with_host_bits(record), record.body, LONGEST_TOPIC, properties) - len(properties) + size
        return self._too_large(record, whole)

    def _too_large(self, record: PutRecord, size: int) -> PutResult | None:
        """The refusal of a message whose unit, with this size, may not be stored; it names the limit."""
        limit = self.options.max_message_size
        if len(record.body) > limit and not record.is_known:
            return illegal(f"its body has {len(record.body)} bytes, maxMessageSize is {limit}")
        size_max = self._log.units_size_max if record.is_known else self._unit_size_max
        if size <= size_max:
            return None
        return illegal(
            f"it needs {size} bytes of the log, at most {size_max} are allowed by maxMessageSize and "
            "mappedFileSizeCommitLog"
        )

    def put_batch(self, record: PutRecord, *, at_once: bool = False) -> PutResult:
        """Store the messages of a batch, all in one file. `record` has the body of the request and what the messages
        share; its properties are added to those of each. Raises as `put` does, and BodyError if the body is no batch.
        """
        if self._refusal is not None:
            raise self._refusal
        if self._cleaner.is_full:
            return UNAVAILABLE
        if not record.body or record.sys_flag & TRANSACTION_MASK:
            return ILLEGAL_BATCH
        queue, now_ms = self._queues.find_or_create(record.topic, record.queue_id), self._clock.now_ms()
        try:
            offset, batch = self._log.end, self._packed(record, queue, now_ms)
        except MessageIllegal:
            return PROPERTIES_TOO_LONG
        except BodyTooLarge as error:
            return illegal(f"{error}, which maxMessageSize allows")
        if self._multi_dispatch.names_queues(batch):
            # Each would need its own offsets in them, and recovery after a crash would accept forged ones.
            return illegal("messages of a batch enter no further queues")
        total = len(batch.units)
        if batch.bodies_size > self.options.max_message_size:
            limit = self.options.max_message_size
            return illegal(f"the bodies of the batch have {batch.bodies_size} bytes, maxMessageSize is {limit}")
        if (refusal := self._find_room(total, [queue], batch.message_count, at_once=at_once)) is not None:
            return refusal
        if self._log.end != offset:  # it is written to the next file
            offset, batch = self._log.end, self._packed(record, queue, now_ms)
        first = queue.max_offset
        self._log.append(batch.units, now_ms)
        if self._wakes_flusher:
            self._wake_flusher()
        codes = self._dispatcher.enter_run(queue, batch, now_ms)
        self._arrivals.add_run(queue, first, batch, codes, now_ms)
        self.put_count += batch.message_count
        self.put_bytes += total
        return PutResult(PutStatus.PUT_OK, offset, first, total, now_ms, record.store_host, batch.places())

    def _packed(self, record: PutRecord, queue: ConsumeQueue, now_ms: int) -> PackedBatch:
        """The units of a batch for the places that are next."""
        sys_flag, topic = with_host_bits(record), queue.topic_bytes
        empty = pack_unit(
            unit_size(sys_flag, b"", topic, b""), 0, record.queue_id, 0, 0, 0, sys_flag, record.born_timestamp,
            record.born_host, now_ms, record.store_host, record.reconsume_times, 0, b"", topic, b"",
        )  # fmt: skip
        items, size_max = bytes(record.body), self._batch_size_max
        return pack_batch(items, empty, record.properties, queue.max_offset, self._log.end, size_max)

    def when_flushed(self, offset: PhysicalOffset, callback: FlushCallback) -> None:
        """Have the log flushed up to `offset` at once; then `callback(True)`, or `callback(False)` when the disk fails
        or takes longer than syncFlushTimeout. Offsets of one call after the other must not fall.

        Callbacks are run by `deliver` and `expire_waits`, those of one flush together and in the order of their calls.
        """
        self._waits.add(offset, callback)
        if self._refusal is not None:
            self._waits.give_up()
        else:
            self._log_committer.ask()
            self._commit_worker.wake()
            self._request_flush()

    def when_durable(self, offset: PhysicalOffset, callback: FlushCallback) -> None:
        """The same for a message that was put. With SYNC_FLUSH it may wait a little for others, see `CommitGroup`."""
        if self._group is None or self._refusal is not None or offset <= self._log.flushed:
            self.when_flushed(offset, callback)
        else:
            self._waits.add(offset, callback)  # the put requested the flush

    def confirm(self, end: PhysicalOffset) -> None:
        """Let messages that end at `end` or before be read. For a store that holds them back."""
        self._arrivals.confirm(end)

    def expire_waits(self) -> None:
        """Call back those that have waited too long for a flush; to be called periodically."""
        self._waits.expire()
        self._room.expire()

    def _request_flush(self) -> None:
        if self._log_flusher.ask():
            self._log_worker.wake()

    def _wake_flusher(self) -> None:
        if self._group is None:
            if self._log_flusher.has_enough:
                self._request_flush()
        elif self._group.come():
            self._log_worker.wake()

    def _on_commit(self, committed: PhysicalOffset) -> None:
        """On the committing thread; as `_on_flush`."""
        self._deliver(lambda: self._arrivals.show(committed))
        if self._waits:
            self._request_flush()

    def _settle(self) -> None:
        """Have log and queues flushed soon."""
        self._request_flush()
        self._queue_flusher.ask()
        self._queue_worker.wake()

    def _on_flush(self, flushed: PhysicalOffset) -> None:
        """On the flushing thread: what follows belongs to the thread that appends."""
        if self._flushes_each or self._waits:
            self._deliver(lambda: self._flushed(flushed))

    def _flushed(self, flushed: PhysicalOffset) -> None:
        if self._flushes_each:
            self._arrivals.show(flushed)
        self._waits.reached(flushed)

    def _are_too_many(self, queues: list[tuple[str, int]]) -> bool:
        """Whether one of these queues would be a light queue too many. RocketMQ means to refuse it and does not."""
        return any(is_lmq(topic) and (topic, queue_id) not in self._queues.table for topic, queue_id in queues) and (
            self._queues.has_light_queues(self.options.max_lmq_consume_queue_num)
        )

    def need_room(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue. RoomAwaited where a message put `at_once` into it would raise it."""
        queue = self._queues.find_or_create(topic, queue_id)
        self._room.need([queue], 1)
        return queue

    def when_room(self, awaited: RoomAwaited, done: Callable[[PutResult | None], object]) -> None:
        """Call back, as `deliver` does, when a put that was refused for lack of room may be made; with its refusal if
        it may not. Callers that wait for a queue are called in order; puts with `at_once` in between wait after them.
        """
        self._room.wait(awaited, lambda error: done(None if error is None else self._refused(error)))

    def _find_room(
        self, size: int, queues: list[ConsumeQueue], entries: int = 1, *, at_once: bool = False
    ) -> PutResult | None:
        """Reserve room for the units and their entries before anything is written; returns a refusal if there is
        none.
        """
        try:
            (self._room.need if at_once else self._room.make)(queues, entries)
            if self._log.end + size > self._log.limit:
                if self._arrivals.is_overfull:
                    return BUSY
                self._log.make_room(size)
                self._reserve_worker.wake()
                self._commit_worker.wake()
        except OSError as error:
            return self._refused(error)
        self._is_full = False
        return None

    def _refused(self, error: OSError) -> PutResult:
        if isinstance(error, TimeoutError):
            _log.warning("event=disk_slow directory=%s error=%s", self.options.root, error)
            return BUSY
        if isinstance(error, BlockingIOError):
            return NO_FILE
        self._full(error)
        return UNAVAILABLE

    def _enter(
        self, queue: ConsumeQueue, queue_offset: int, offset: int, size: int, properties: bytes, now_ms: int
    ) -> int:
        code = self._dispatcher.enter(queue, queue_offset, offset, size, properties, now_ms)
        self._arrivals.add(queue, queue_offset, offset + size, code, now_ms)
        return code

    # ------------------------------------------------------------------------------------------------------- reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        wanted: Selection = EVERYTHING,
        *,
        bulk: bool = False,
    ) -> GetResult:
        """The selected messages of a queue from `offset` on; in `bulk` up to a number of bytes. StoreError while not
        open.

        The buffers stay valid after the store appends, removes the file, or closes.
        """
        queue = self._open_queue(topic, queue_id)
        if queue is None:
            zero = QueueOffset(0)
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, zero, zero, zero, [])
        limits = self._bulk_limits if bulk else self._limits
        return pull_batch.get(self._log, queue, offset, max_count, wanted, limits, self._cold.hot_from)

    def absent_entries(self, topic: str, queue_id: int, offset: int, wanted: Selection = EVERYTHING) -> list[Pages]:
        """What `get` reads of the disk before it returns: `fetch` it first. Empty if all of it is in memory."""
        queue = self._open_queue(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.readable_offset:
            return []
        if absent := self._cold.entries(queue, offset, pull_batch.SCAN_BYTES_MIN):
            return absent
        if wanted.look is None:
            return []
        looked_at = islice(queue.entries(offset, queue.readable), wanted.look.reads_max)
        return self._cold.units((place, size) for place, size, _ in looked_at)

    def absent_units(self, result: GetResult) -> list[Pages]:
        """What of these messages is not in memory."""
        return self._cold.units((place, len(unit)) for place, unit in zip(result.places, result.buffers, strict=False))

    def absent_range(self, physical_offset: int, size: int) -> list[Pages]:
        """What of these bytes of the log, which lie in one file, is not in memory."""
        return self._cold.units(((physical_offset, size),))

    def absent_unit(self, physical_offset: int) -> list[Pages]:
        """The same of the message at a place of the log."""
        return self._cold.unit(physical_offset)

    @property
    def flushed_until_ms(self) -> int:
        """Store time up to which all messages are known to be on disk, in milliseconds; 0 if that is not known."""
        return self._checkpoint.log_timestamp

    def unit_at(self, physical_offset: int) -> memoryview | None:
        """The unit at a place of the log, None when nothing can be read there. Whether it is one is not checked."""
        return self._log.unit_at(physical_offset)

    def units(self, start: int, end: int) -> Iterator[Unit]:
        """The units of the log from the one at `start` to `end`, in order. Reads the disk; for any thread."""
        files = self._log.files
        position = start % files.file_size
        for file_start in range(files.start_of(start), end, files.file_size):
            file = files.find(file_start)
            if file is None:
                return
            for unit in Walk(file.filled, file_start, position, check_crc=False):
                if unit.physical_offset >= end:
                    return
                yield unit
            position = 0

    def max_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Behind the last message of the queue that can be read; 0 for a queue that does not exist."""
        queue = self._open_queue(topic, queue_id)
        return queue.readable_offset if queue is not None else QueueOffset(0)

    def min_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """The first message of the queue that still exists; 0 for a queue that does not."""
        queue = self._open_queue(topic, queue_id)
        return queue.min_offset if queue is not None else QueueOffset(0)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> QueueOffset:
        """The offset of the first message stored at or after `timestamp`, in milliseconds; the end of the queue if
        there is none, 0 for a queue that does not exist.
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

    def query(self, topic: str, key: str, count: int, begin: int, end: int, *, at_once: bool = False) -> QueryResult:
        """Up to `count` messages that have `key` among their keys or as unique id, the newest of those stored from
        `begin` to `end` (milliseconds, both included), and others whose key has the same hash. StoreError while not
        open. For any thread: it may wait for index and disk; `at_once` raises BlockingIOError instead.
        """
        if self._lock is None:
            raise StoreError("the store is not open")
        return self._keys.query(topic, key, count, begin, end, at_once=at_once)

    def is_on_disk(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a message is probably no longer in memory; false for one that does not exist."""
        queue = self._open_queue(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return entry is not None and self._log.end - entry[0] > self._limits.memory_bytes

    def entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[Entry]:
        """Up to `count` queue entries from `offset` on: physical offset, size, and tag hash or time due."""
        queue = self._open_queue(topic, queue_id)
        if queue is None:
            return []
        found = islice(queue.entries(offset, queue.readable), count)
        return [self._dispatcher.resolved(queue, entry, self._log.unit_at) for entry in found]

    def extension(self, topic: str, queue_id: int, offset: int) -> Extension | None:
        """The unit of a message in the queue's extension; None if there is none."""
        queue = self._open_queue(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return queue.extension(entry[2]) if queue is not None and entry is not None and is_address(entry[2]) else None

    def queue_ids(self, topic: str) -> list[int]:
        """Queues of a topic that ever got a message."""
        return [queue.queue_id for queue in self._queues.of(topic)]

    def remove_topic(self, topic: str) -> Iterator[tuple[str, int]]:
        """Remove the queues of a topic, one per iteration; a recreated topic begins at offset 0."""
        for queue in self._queues.of(topic):
            if self._remove_queue(queue):
                yield queue.topic, queue.queue_id

    # ----------------------------------------------------------------------------------------------------- cleaning up

    def disk_use(self) -> DiskUse:
        """The use of the disks at the last measurement, some seconds ago."""
        return self._cleaner.use

    @property
    def refuses_for_disk(self) -> bool:
        """Whether messages are refused because the disk is too full."""
        return self._cleaner.is_full or self._is_full

    @property
    def held_for(self) -> Unread | None:
        """Whose unread messages keep a nearly full disk from being cleaned, the first of them; None while it is not."""
        return self._cleaner.held_for

    def remove_expired_files(self) -> None:
        """Request that expired files are removed soon, regardless of the hour."""
        self._cleaner.ask()
        self._clean_worker.wake()

    def remove_expired_queues(self) -> Iterator[tuple[str, int]]:
        """Remove queues whose last message has expired, one per iteration. A later message for one of them begins at
        offset 0. Queues of a topic with an `EntryCode` stay.
        """
        for queue in self._queues:
            is_gone = NO_OFFSET < queue.max_physical_offset <= self._log.min_offset
            if is_gone and not self._dispatcher.has_entry_code(queue.topic) and self._remove_queue(queue):
                yield queue.topic, queue.queue_id

    def remove_unused_topics(self, used: Container[str]) -> Iterator[tuple[str, int]]:
        """Remove queues of topics not in `used`, one per iteration, except delay, transactions and light queues."""
        for queue in self._queues:
            kept = queue.topic in used or queue.topic in KEPT_TOPICS or is_lmq(queue.topic)
            if not kept and self._remove_queue(queue):
                yield queue.topic, queue.queue_id

    def _remove_queue(self, queue: ConsumeQueue) -> bool:
        """False if it has expired."""
        if self._queues.table.get((queue.topic, queue.queue_id)) is not queue:
            return False
        self._queues.remove(queue)
        _log.info("event=queue_removed topic=%s queue=%d", queue.topic, queue.queue_id)
        return True

    @property
    def commit_log(self) -> CommitLog:
        """For status reports; only the store changes it."""
        return self._log

    @property
    def consume_queues(self) -> ConsumeQueues:
        """For iteration; only the store changes them."""
        return self._queues

    @property
    def flush_waits(self) -> FlushWaits:
        """Those whose messages are not on disk yet."""
        return self._waits

    @property
    def commit_log_min_offset(self) -> PhysicalOffset:
        """First byte of the log that still exists, -1 for an empty log."""
        return self._log.min_offset

    @property
    def commit_log_max_offset(self) -> PhysicalOffset:
        """The offset of the next message."""
        return self._log.end

    @property
    def readable_offset(self) -> PhysicalOffset:
        """How far readers see the log. With SYNC_FLUSH it follows `flushed_offset` a turn of the event loop later."""
        return self._log.readable

    @property
    def flushed_offset(self) -> PhysicalOffset:
        """How far the log is on disk."""
        return self._log.flushed

    @property
    def lasting_offset(self) -> PhysicalOffset:
        """How far neither a crash takes the log away nor, where messages are held back, another master."""
        confirmed = self._arrivals.confirmed
        return self._log.flushed if confirmed is None else min(self._log.flushed, confirmed)

    @property
    def earliest_message_time(self) -> int:
        """Store time of the first message of the log in milliseconds, -1 for an empty log."""
        first = self._log.min_offset
        return time_search.store_time(self._log, first) if first != NO_OFFSET else -1

    @property
    def is_busy(self) -> bool:
        """Whether a message would be refused because the disk is slow to make room, or to take what waits in memory."""
        return self._log.is_busy or self._arrivals.is_overfull

    @property
    def is_poisoned(self) -> bool:
        """A flush failed; nothing is written any more until the store is opened anew."""
        return isinstance(self._refusal, StorePoisoned)

    def take_no_more(self, reason: str) -> None:
        """Refuse every message from now on with a StoreError; stored messages stay readable, `close` is clean."""
        if self._refusal is None:
            self._refusal = StoreError(reason)
            self._deliver(self._waits.give_up)

    def _open_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        if self._lock is None:
            raise StoreError("the store is not open")
        return self._queues.table.get((topic, queue_id))

    # ------------------------------------------------------------------------------------------------------- failures

    def _worker(self, name: str, step: Callable[[], float | None], interval_ms: int) -> Worker:
        return Worker(f"orbitmq-{name}", step, interval_ms, self._poison)

    def _reserve(self) -> int | None:
        """A full disk is no failure: the next put reports it to its sender."""
        try:
            return 0 if self._log.reserve_ahead() else None
        except BlockingIOError:
            return None  # no room for a further map, which was logged; it may become free
        except OSError as error:
            self._full(error)
            return None

    def _full(self, error: OSError) -> None:
        self._cleaner.look_now()
        self._clean_worker.wake()
        if not self._is_full:
            self._is_full = True
            _log.error("event=disk_full directory=%s error=%s", self.options.root, error)

    def _poison(self, error: Exception) -> None:
        """After a failed flush it is unknown what is on disk: a second one may succeed and prove nothing."""
        _log.error("event=store_poisoned directory=%s error=%s", self.options.root, error)
        self._refusal = StorePoisoned(
            f"the store {self.options.root} failed and accepts nothing until restart: {error}"
        )
        self._deliver(self._waits.give_up)
