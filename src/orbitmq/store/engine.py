"""The store as a broker sees it: open, put, remove, close; `readable_store` has what is read.

One thread, the broker's event loop, calls everything here. Worker threads flush, claim disk blocks, index keys and
look for files to remove; they never append, and what they want changed in the log or a queue they hand to `deliver`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Mapping
from itertools import accumulate, starmap
from typing import Final, cast

from orbitmq.errors import BodyTooLarge, MessageIllegal, StoreError, StorePoisoned
from orbitmq.message.batch import PackedBatch, pack_batch
from orbitmq.message.flags import TRANSACTION_MASK
from orbitmq.message.properties import PROPERTIES_SIZE_MAX
from orbitmq.message.topics import KEPT_TOPICS, TOPIC_LENGTH_MAX, is_lmq
from orbitmq.message.unit import body_crc, pack_unit, unit_size
from orbitmq.runtime.clock import Clock
from orbitmq.store.arrivals import Arrivals, OnArrival
from orbitmq.store.cleaner import Cleaner, KeepsFrom, keeps_nothing
from orbitmq.store.dispatch import TAGS_ONLY, EntryCode, FilterBitmap, is_queued, no_bitmap
from orbitmq.store.files import Files
from orbitmq.store.flush_scheduler import FlushScheduler
from orbitmq.store.multi_dispatch import size_when_stored, with_offsets
from orbitmq.store.options import StoreOptions
from orbitmq.store.positions import NO_OFFSET, PhysicalOffset, QueueOffset
from orbitmq.store.queue import ConsumeQueue
from orbitmq.store.queue_room import QueueRoom, RoomAwaited
from orbitmq.store.queues import check_storable
from orbitmq.store.readable_store import ReadableStore
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
from orbitmq.store.warmer import Warmer
from orbitmq.store.worker import Deliver, Step, Worker

_log = logging.getLogger(__name__)

BATCH_GROWTH_MAX: Final = 8  # times maxMessageSize that a batch may take in the log: RocketMQ allocates that size once
LONGEST_TOPIC: Final = bytes(TOPIC_LENGTH_MAX)
UNIT_SIZE_SLACK: Final = 64 << 10  # by which a unit may be larger than the largest body: head, topic and properties
RESERVE_INTERVAL_MS: Final = 1000  # the worker is woken when it is needed; this only bounds how late it may be
INDEX_INTERVAL_MS = 100  # a query brings the index up to date itself; this bounds how much it finds left to do


def call(job: Callable[[], object]) -> object:
    """A `deliver` that runs the callback on the calling thread."""
    return job()


class MessageStore(ReadableStore):
    """A store directory, opened with `open` and closed with `close`.

    `on_arrival` is called when messages become readable: once for a batch, unless its messages become readable one by
    one. `deliver` runs callbacks that come from worker threads; a broker passes its event loop's
    `call_soon_threadsafe`. `entry_codes` are for topics whose queue entries do not hold the tags' hash. `filter_bitmap`
    returns the bitmap of the filters that match a message, for the queues' extensions. The log is kept from the offset
    `keeps_from` returns as long as the disk has room; what `find_unread` finds is kept even then, until it has expired.
    """

    def __init__(
        self,
        options: StoreOptions,
        *,
        clock: Clock,
        on_arrival: OnArrival | None = None,
        deliver: Deliver = call,
        entry_codes: Mapping[str, EntryCode] = TAGS_ONLY,
        filter_bitmap: FilterBitmap = no_bitmap,
        keeps_from: KeepsFrom = keeps_nothing,
        find_unread: FindUnread = nothing_unread,
        files: Files | None = None,
    ) -> None:
        super().__init__(options, clock, entry_codes, filter_bitmap, files)
        self.was_killed = False  # whether `open` found that the last process had not closed the directory
        self.put_count = self.put_bytes = 0  # messages stored since the start, and their size in the log
        self._abort = options.root / "abort"
        self._batch_size_max = min(options.max_message_size * BATCH_GROWTH_MAX, self._log.units_size_max)
        self._unit_size_max = min(options.max_message_size + UNIT_SIZE_SLACK, self._log.units_size_max)
        self._refusal: StoreError | None = StoreError("the store is not open")
        self._is_full = False
        if options.warm_mapped_file_enable:
            self._log.warmer = Warmer(options.flush_least_pages_when_warm_mapped_file if options.flushes_each else 0)
        at_once = not (options.flushes_each or options.uses_transient_pool)
        self._arrivals = Arrivals(self._log, on_arrival, at_once=at_once)
        self.flushes = FlushScheduler(
            self._log, self._queues, self._dispatcher, self._checkpoint, self._arrivals, options, clock, deliver,
            self._worker,
        )  # fmt: skip
        self._cleaner = Cleaner(
            self._door, self._log, self._queues, self._disposal, self.flushes, options, clock, deliver,
            keeps_from=keeps_from, find_unread=find_unread,
        )  # fmt: skip
        self._room = QueueRoom(deliver, clock, options.os_page_cache_busy_timeout_ms, lambda: self._room_worker.wake())
        self._clean_worker = self._worker("clean", self._cleaner.step, options.clean_resource_interval_ms)
        self._reserve_worker = self._worker("reserve", self._reserve, RESERVE_INTERVAL_MS)
        self._room_worker = self._worker("room", self._room.step, RESERVE_INTERVAL_MS)
        self._workers = [self._reserve_worker, self._room_worker, *self.flushes.workers, self._clean_worker]
        if self._keys.is_enabled:
            self._workers.append(self._worker("index", self._keys.indexer.step, INDEX_INTERVAL_MS))

    # ------------------------------------------------------------------------------------------------ open and close

    def open(self) -> None:
        """Lock, load and recover the directory, which is made if it does not exist; takes time after a crash.

        StoreLocked when another store owns it, StoreDamaged for files that do not belong there, StoreError when the
        disk refuses.
        """
        try:
            self._door.make_directory(self.options.root)
            self._lock = self._door.lock(self.options.root / "lock")
            self._load()
        except OSError as error:
            self._release()
            raise StoreError(f"the store directory {self.options.root} cannot be used: {error}") from error
        except StoreError:
            self._release()
            raise
        self._refusal = None
        self._cleaner.look()
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """Flush everything and unlock the directory; the next start has nothing to recover.

        The abort file stays when the disk has failed, so that the next start recovers.
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
                self._flush()
                self._keys.finish()
                self._door.remove(self._abort)
            except OSError as error:
                self._poison(error)
        self._refusal = StoreError("the store is closed")
        self.flushes.is_stopped = True
        self._release()

    def _load(self) -> None:
        clean = self._door.size(self._abort) < 0
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
            # What a killed process left may be in memory only, names included; from here on it counts as flushed.
            all_synced = self._queues.flush(self._queues)
            below_root = (self.options.root / "index",) if all_synced else (self.options.root,)
            for directory in {*below_root, *self._log.files.directories}:
                self._door.sync_names(directory)
            self._flush()
        self.flushes.queue_flusher.settled = self._log.end
        self._keys.load(clean=clean)
        self._door.write(self._abort, b"")

    def _flush(self) -> None:
        self.flushes.log_flusher.flush()
        self.flushes.queue_flusher.flush()

    # ------------------------------------------------------------------------------------------------------- writing

    def put(self, record: PutRecord, at_once: bool = False) -> PutResult:
        """Store one message. StorePoisoned after a failed flush, StoreError while not open.

        MessageIllegal for a topic that cannot be a directory; other refusals are a status. `at_once` raises RoomAwaited
        where a queue has no room yet, and the caller should not wait for a disk: nothing is stored then.
        """
        if self._refusal is not None:
            raise self._refusal
        if self._cleaner.is_full:
            return UNAVAILABLE
        topic, queue_id, body, properties = record.topic, record.queue_id, record.body, record.properties
        sys_flag = with_host_bits(record)
        queue = self._queues.table.get((topic, queue_id)) or self._queues.create(topic, queue_id)
        queued = is_queued(sys_flag)
        further: list[tuple[ConsumeQueue, QueueOffset]] = []
        if queued and self._multi_dispatch.is_enabled:
            names = self._multi_dispatch.queues(topic, queue_id, properties)
            if self._exceeds_light_queues(names):
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
        self.flushes.appended()
        if queued:
            code = self._enter(queue, queue_offset, offset, size, properties, now_ms)
            for other, other_offset in further:
                other.put(other_offset, offset, size, code)
                self._arrivals.add(other, other_offset, offset + size, code, now_ms)
        self.put_count += 1
        self.put_bytes += size
        return PutResult(PutStatus.PUT_OK, offset, queue_offset, size, now_ms, record.store_host)

    def refused_later(self, record: PutRecord, topic: str, growth: int = 0) -> PutResult | None:
        """What `put` would always say of a message that waits when it comes to its real `topic`: its sender must hear
        of it now. None when only the disk, or an option that is changed, can refuse it then. `growth` is how much
        longer its properties may get until then.

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
            f"it takes {size} bytes of the log, at most {size_max} are allowed by maxMessageSize and "
            "mappedFileSizeCommitLog"
        )

    def put_batch(self, record: PutRecord, *, at_once: bool = False) -> PutResult:
        """Store the messages of a batch, all in one file. `record` has the body of the request and what the messages
        share; its properties are added to those of each. Raises as `put` does, and BodyError for a body that is none.
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
        if self._multi_dispatch.is_wanted(batch):
            # Each would need offsets of its own in them, and a start after a crash would believe forged ones.
            return illegal("messages of a batch enter no further queues")
        total = len(batch.units)
        if batch.bodies_size > self.options.max_message_size:
            limit = self.options.max_message_size
            return illegal(f"the bodies of the batch have {batch.bodies_size} bytes, maxMessageSize is {limit}")
        if (refusal := self._find_room(total, [queue], len(batch.sizes), at_once=at_once)) is not None:
            return refusal
        if self._log.end != offset:  # it goes into the next file
            offset, batch = self._log.end, self._packed(record, queue, now_ms)
        first = queue.max_offset
        self._log.append(batch.units, now_ms)
        self.flushes.appended()
        *places, _ = ends = cast("list[PhysicalOffset]", list(accumulate(batch.sizes, initial=offset)))
        codes = self._dispatcher.enter_run(queue, places, batch, now_ms)
        self._arrivals.add_run(queue, first, ends[1:], codes, now_ms)
        self.put_count += len(places)
        self.put_bytes += total
        return PutResult(PutStatus.PUT_OK, offset, first, total, now_ms, record.store_host, tuple(places))

    def _packed(self, record: PutRecord, queue: ConsumeQueue, now_ms: int) -> PackedBatch:
        """The units of a batch for the places that are next."""
        sys_flag, topic = with_host_bits(record), queue.topic_bytes
        empty = pack_unit(
            unit_size(sys_flag, b"", topic, b""), 0, record.queue_id, 0, 0, 0, sys_flag, record.born_timestamp,
            record.born_host, now_ms, record.store_host, record.reconsume_times, 0, b"", topic, b"",
        )  # fmt: skip
        items, size_max = bytes(record.body), self._batch_size_max
        return pack_batch(items, empty, record.properties, queue.max_offset, self._log.end, size_max)

    def expire_waits(self) -> None:
        """Call back the waits that have timed out, for a flush or for room. Call it regularly."""
        self.flushes.waits.expire()
        self._room.expire()

    def _exceeds_light_queues(self, queues: list[tuple[str, int]]) -> bool:
        """Whether a new light queue is above the limit. RocketMQ's refusal of it is dead code."""
        return any(is_lmq(topic) and (topic, queue_id) not in self._queues.table for topic, queue_id in queues) and (
            self._queues.has_light_queues(self.options.max_lmq_consume_queue_num)
        )

    def need_room(self, topic: str, queue_id: int) -> None:
        """RoomAwaited where a put with `at_once` into this queue would raise it."""
        self._room.need([self._queues.find_or_create(topic, queue_id)], 1)

    def when_room(self, awaited: RoomAwaited, done: Callable[[PutResult | None], object]) -> None:
        """Call back, as `deliver` does, when a put that raised RoomAwaited can be repeated, or with its refusal. Those
        that wait for a queue are called in their order; later puts with `at_once` wait behind them.
        """
        self._room.wait(awaited, lambda error: done(None if error is None else self._refused(error)))

    def _find_room(
        self, size: int, queues: list[ConsumeQueue], entries: int = 1, *, at_once: bool = False
    ) -> PutResult | None:
        """Make room for the units and their entries before anything is written; the refusal when there is none."""
        try:
            (self._room.need if at_once else self._room.make)(queues, entries)
            if self._log.end + size > self._log.limit:
                if self._arrivals.is_overfull:
                    return BUSY
                self._log.make_room(size)
                self._reserve_worker.wake()
                self.flushes.commit_worker.wake()
        except OSError as error:
            return self._refused(error)
        self._is_full = False
        return None

    def _enter(
        self, queue: ConsumeQueue, queue_offset: int, offset: int, size: int, properties: bytes, now_ms: int
    ) -> int:
        code = self._dispatcher.enter(queue, queue_offset, offset, size, properties, now_ms)
        self._arrivals.add(queue, queue_offset, offset + size, code, now_ms)
        return code

    # ------------------------------------------------------------------------------------------------------ removing

    def remove_topic(self, topic: str) -> Iterator[tuple[str, int]]:
        """Remove the queues of a topic, one per iteration; a topic created again begins at offset 0. Its messages stay
        in the log.
        """
        for queue in self._queues.of(topic):
            if self._remove_queue(queue):
                yield queue.topic, queue.queue_id

    def remove_expired_queues(self) -> Iterator[tuple[str, int]]:
        """Remove queues whose last message is gone from the log, one per iteration. A later message for one of them
        begins at offset 0. Queues of a topic with an `EntryCode` stay.
        """
        for queue in self._queues:
            is_gone = NO_OFFSET < queue.max_physical_offset <= self._log.min_offset
            if is_gone and not self._dispatcher.has_entry_code(queue.topic) and self._remove_queue(queue):
                yield queue.topic, queue.queue_id

    def remove_unused_topics(self, used: Container[str]) -> Iterator[tuple[str, int]]:
        """Remove queues of topics that are not in `used`, one per iteration. Those of delayed messages, transactions
        and light queues stay.
        """
        for queue in self._queues:
            kept = queue.topic in used or queue.topic in KEPT_TOPICS or is_lmq(queue.topic)
            if not kept and self._remove_queue(queue):
                yield queue.topic, queue.queue_id

    def _remove_queue(self, queue: ConsumeQueue) -> bool:
        """False when it was removed before."""
        if self._queues.table.get((queue.topic, queue.queue_id)) is not queue:
            return False
        self._queues.remove(queue)
        _log.info("event=queue_removed topic=%s queue=%d", queue.topic, queue.queue_id)
        return True

    def remove_expired_files(self) -> None:
        """Remove expired files soon, whatever the hour."""
        self._cleaner.request()
        self._clean_worker.wake()

    # ------------------------------------------------------------------------------------------------ health, failures

    def disk_use(self) -> DiskUse:
        """How full the disks were when last measured, some seconds ago."""
        return self._cleaner.use

    @property
    def refuses_for_disk(self) -> bool:
        """Whether messages are refused because the disk is too full."""
        return self._cleaner.is_full or self._is_full

    @property
    def held_for(self) -> Unread | None:
        """The first unread message whose file is kept although the disk is nearly full; None when there is none."""
        return self._cleaner.holds.held_for

    @property
    def is_busy(self) -> bool:
        """Whether a message would be refused because the disk is slow to make room, or to flush what is in memory."""
        return self._log.is_busy or self._arrivals.is_overfull

    @property
    def is_poisoned(self) -> bool:
        """A flush failed; nothing is written until the store is opened again."""
        return isinstance(self._refusal, StorePoisoned)

    def stop_puts(self, reason: str) -> None:
        """Refuse every message from now on with a StoreError that gives the reason; stored messages stay readable, and
        `close` is still clean.
        """
        if self._refusal is None:
            self._refusal = StoreError(reason)
            self.flushes.fail()

    def _worker(self, name: str, step: Step, interval_ms: int) -> Worker:
        return Worker(f"orbitmq-{name}", step, interval_ms, self._poison)

    def _reserve(self) -> int | None:
        """A full disk is no failure here: the next put finds it, and is refused."""
        try:
            return 0 if self._log.reserve_ahead() else None
        except BlockingIOError:
            return None  # no map for a further file, which was logged; there may be one later
        except OSError as error:
            self._full(error)
            return None

    def _refused(self, error: OSError) -> PutResult:
        if isinstance(error, TimeoutError):
            _log.warning("event=disk_slow directory=%s error=%s", self.options.root, error)
            return BUSY
        if isinstance(error, BlockingIOError):
            return NO_FILE
        self._full(error)
        return UNAVAILABLE

    def _full(self, error: OSError) -> None:
        self._cleaner.look_now()
        self._clean_worker.wake()
        if not self._is_full:
            self._is_full = True
            _log.error("event=disk_full directory=%s error=%s", self.options.root, error)

    def _poison(self, error: Exception) -> None:
        """What is on disk is unknown once a flush failed: a second one may succeed and prove nothing."""
        _log.error("event=store_poisoned directory=%s error=%s", self.options.root, error)
        self._refusal = StorePoisoned(
            f"the store {self.options.root} failed and accepts nothing until restart: {error}"
        )
        self.flushes.fail()
