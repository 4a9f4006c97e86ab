"""The one way into the store for every message of the broker: puts delayed ones aside, waits for the disk."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from orbitmq.broker.schedule import delay_level
from orbitmq.broker.statistics import Statistics
from orbitmq.broker.timers.accepting import TimerAcceptance
from orbitmq.errors import RequestRejected
from orbitmq.message.properties import DELAY, REAL_QID, REAL_TOPIC, decode_properties, encode_properties
from orbitmq.message.timers import TIMER_PAIR
from orbitmq.message.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.replication.master import Replicas
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import SYNC_FLUSH, SYNC_MASTER
from orbitmq.store.queue_room import RoomAwaited
from orbitmq.store.records import ILLEGAL_BATCH, PutRecord, PutResult, PutStatus
from orbitmq.wire.codes import ResponseCode

T = TypeVar("T")
_log = logging.getLogger(__name__)

_DELAY_PAIR: Final = DELAY.encode() + b"\x01"


class MessageWriter:
    """`levels`: number of delay levels. `timers` decides about timer messages. `timer` returns seconds. `replicas` are
    used with role SYNC_MASTER, and where `elects`: then every replica in sync must have a message.
    """

    def __init__(
        self,
        store: MessageStore,
        levels: int,
        timers: TimerAcceptance,
        statistics: Statistics,
        replicas: Replicas,
        refusals: Refusals | None = None,
        timer: Callable[[], float] = time.perf_counter,
        *,
        elects: bool = False,
    ) -> None:
        self._store = store
        self._levels = levels
        self._timers = timers
        self._statistics = statistics
        self._timer = timer
        self._replicas = replicas
        self._refusals = refusals or Refusals()
        self._flushes = store.options.flush_disk_type == SYNC_FLUSH
        self._elects = elects
        self._replicates = store.options.broker_role == SYNC_MASTER or elects
        self.can_wait = self._flushes or self._replicates

    def refuse_if_busy(self) -> None:
        """RequestRejected while a message could only wait for the disk: its sender should try another broker."""
        if self._store.is_busy:
            raise RequestRejected(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST] the disk is too slow, wait for a while")

    def put(self, record: PutRecord, at_once: bool = False) -> PutResult:
        """Store a message, in the schedule topic first if it is delayed. MessageIllegal as the store raises it; with
        `at_once` RoomAwaited where its queue has no room yet.
        """
        if record.topic in (SCHEDULE_TOPIC, TIMER_TOPIC):  # it was put aside and found no room
            return self._put_waiting(record, at_once)
        refusal = None
        if TIMER_PAIR in record.properties:
            refusal = self._timers.put_aside(record)
        if refusal is None and _DELAY_PAIR in record.properties and record.topic != TIMER_TOPIC:
            refusal = self._put_aside(record)
        return self._put_waiting(record, at_once) if refusal is None else refusal

    def _put_waiting(self, record: PutRecord, at_once: bool) -> PutResult:
        result = self.put_here(record, at_once)
        if record.topic == TIMER_TOPIC and result.status is PutStatus.PUT_OK:
            result.recall_handle = self._timers.handle(record)
        return result

    def put_here(self, record: PutRecord, at_once: bool = False) -> PutResult:
        """Store a message in the queue it names, even if it has a delay level."""
        begun = self._timer()
        result = self._store.put(record, at_once)
        self._statistics.put(record.topic, 1, result.size, self._timer() - begun)
        if result.status is PutStatus.SERVICE_NOT_AVAILABLE:
            self._note_full(record.topic)
        return result

    @property
    def is_busy(self) -> bool:
        """Whether `refuse_if_busy` refuses."""
        return self._store.is_busy

    def put_common(
        self, topic: str, queue_id: int, data: bytes, body_start: int, body_end: int, properties: bytes, code: int,
        flag: int, sys_flag: int, born: int, born_host: bytes, store_host: bytes, times: int,
    ) -> tuple[int, int] | None:  # fmt: skip
        """`MessageStore.put_common`, counted. The message is not delayed."""
        begun = self._timer()
        place = self._store.put_common(
            topic, queue_id, data, body_start, body_end, properties, code, flag, sys_flag, born, born_host, store_host,
            times,
        )  # fmt: skip
        if place is not None:
            self._statistics.put(topic, 1, place[2], self._timer() - begun)
            return place[0], place[1]
        return None

    def put_batch(self, record: PutRecord, *, at_once: bool = False) -> PutResult:
        """Store the messages of a batch one after another. BodyError if its body is not a batch."""
        begun = self._timer()
        is_delayed = delay_level(record.properties) > 0 or TIMER_PAIR in record.properties
        result = ILLEGAL_BATCH if is_delayed else self._store.put_batch(record, at_once=at_once)
        self._statistics.put(record.topic, result.count, result.size, self._timer() - begun)
        if result.status is PutStatus.SERVICE_NOT_AVAILABLE:
            self._note_full(record.topic)
        return result

    def _note_full(self, topic: str) -> None:
        held = self._store.held_for
        text = "event=message_refused reason=disk_full topic=%.300s disk=%s held_for=%r"
        self._refusals.note(Limit.DISK, _log, text, topic, self.disk_use(), "" if held is None else held.text)

    async def put_durably(self, record: PutRecord) -> PutStatus:
        """Store a message and wait until it is as safe as the store is configured to make it."""
        result = await self.put_with_room(record)
        if result.status is PutStatus.PUT_OK and self.can_wait:
            return await self.durable(result)
        return result.status

    async def put_with_room(self, record: PutRecord) -> PutResult:
        """Store a message as soon as its queue has room."""
        return await self.with_room(partial(self.put, record, at_once=True), _itself)

    async def with_room(self, act: Callable[[], T], refused: Callable[[PutResult], T]) -> T:
        """`act_with_room`, counted."""
        return await act_with_room(self.when_room, act, refused)

    def when_room(self, awaited: RoomAwaited, done: Callable[[PutResult | None], object]) -> None:
        """Call back when a message may be stored that found no room in its queue; with its refusal when it may not."""
        self._store.when_room(awaited, partial(self._may_store, awaited.queues[0].topic, done))

    def _may_store(self, topic: str, done: Callable[[PutResult | None], object], refused: PutResult | None) -> None:
        if refused is not None:
            self._statistics.put(topic, 0, 0, 0)
            if refused.status is PutStatus.SERVICE_NOT_AVAILABLE:
                self._note_full(topic)
        done(refused)

    async def durable(self, result: PutResult) -> PutStatus:
        """Await the status of `when_durable`."""
        future: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
        self.when_durable(result, partial(_settle, future))
        return await future

    async def flushed(self) -> None:
        """Return when everything stored so far lasts, or cannot: it is on disk, and, where the master is elected, on
        every replica in sync.
        """
        loop = asyncio.get_running_loop()
        flushed: asyncio.Future[bool] = loop.create_future()
        self._store.when_flushed(self._store.commit_log_max_offset, partial(_settle, flushed))
        await flushed
        if self._elects:
            copied: asyncio.Future[PutStatus] = loop.create_future()
            self._replicas.when_copied(self._store.commit_log_max_offset, partial(_settle, copied))
            await copied

    def when_durable(self, result: PutResult, done: Callable[[PutStatus], object]) -> None:
        """Call back when a stored message is durable: on disk with SYNC_FLUSH, at a slave with SYNC_MASTER. The status
        is PUT_OK or what is missing; a missing replica takes precedence. All messages of one flush, or of one report of
        a slave, call back in one turn of the event loop.
        """
        if not self._replicates:
            self._when_flushed(result, done)
        elif not self._flushes:
            self._replicas.when_copied(result.end_offset, done)
        else:
            both = _Both(done, self._replicas.ask)
            self._when_flushed(result, both.flushed)
            self._replicas.when_copied(result.end_offset, both.copied)

    def _when_flushed(self, result: PutResult, done: Callable[[PutStatus], object]) -> None:
        self._store.when_durable(
            result.end_offset, lambda flushed: done(PutStatus.PUT_OK if flushed else PutStatus.FLUSH_DISK_TIMEOUT)
        )

    def expire(self) -> None:
        """Call back those that have waited too long; to be called periodically."""
        self._store.expire_waits()
        self._replicas.expire()

    def disk_use(self) -> str:
        """How full the disks are, in the words of RocketMQ."""
        return str(self._store.disk_use())

    def _put_aside(self, record: PutRecord) -> PutResult | None:
        """Redirect a delayed message to its level's queue; its properties keep topic and queue. Returns the refusal of
        a message that could not be delivered when it is due.
        """
        properties = decode_properties(record.properties.decode("utf-8", "replace"))
        text = properties.get(DELAY, "0")
        level = int(text) if text.isdecimal() else 0
        if level <= 0:
            return None
        if level > self._levels:
            level = self._levels
            properties[DELAY] = str(level)
        properties[REAL_TOPIC] = record.topic
        properties[REAL_QID] = str(record.queue_id)
        record.properties = encode_properties(properties).encode()
        refusal = self._store.refused_later(record, record.topic)
        record.topic = SCHEDULE_TOPIC
        record.queue_id = level - 1
        return refusal


class _Both:
    """Waits for the disk and for a slave, in any order."""

    def __init__(self, done: Callable[[PutStatus], object], ask: Callable[[], object]) -> None:
        self._done = done
        self._ask = ask  # a master's own part of being in sync is on its disk
        self._flush: PutStatus | None = None
        self._copy: PutStatus | None = None

    def flushed(self, status: PutStatus) -> None:
        self._flush = status
        self._ask()
        self._call_back()

    def copied(self, status: PutStatus) -> None:
        self._copy = status
        self._call_back()

    def _call_back(self) -> None:
        if self._flush is not None and self._copy is not None:
            self._done(self._copy if self._copy is not PutStatus.PUT_OK else self._flush)


async def act_with_room(
    when_room: Callable[[RoomAwaited, Callable[[PutResult | None], object]], object],
    act: Callable[[], T],
    refused: Callable[[PutResult], T],
) -> T:
    """Return the result of `act`, which is called again when there is room for what it puts `at_once`; that of
    `refused` if there will be none. `when_room` is that of the store or of `MessageWriter`.

    It is the turn of `act` only while `when_room` calls back. Called later, it would find others that wait, and go to
    the end of their line again and again.
    """
    try:
        return act()
    except RoomAwaited as awaited:
        first = awaited
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def try_again(refusal: PutResult | None) -> None:
        if future.done():
            return  # the waiting request was cancelled
        try:
            future.set_result(act() if refusal is None else refused(refusal))
        except RoomAwaited as awaited:
            when_room(awaited, try_again)
        except Exception as error:  # the caller awaits it; other callbacks follow this one
            future.set_exception(error)

    when_room(first, try_again)
    return await future


def _itself(result: PutResult) -> PutResult:
    return result


def _settle(future: asyncio.Future[T], result: T) -> None:
    if not future.done():  # the waiting request may be cancelled
        future.set_result(result)
