"""Keeps what is in flight in the log, so that it survives crashes and is copied to slaves like any message.

Each checkpoint and each acknowledgement is a message of the revive topic. A start reads those that are still needed:
from time to time a mark says where they begin. A checkpoint that lies far back is written again, so that a start reads
little, and that files of the log can be removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import msgspec

from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.pop.in_flight import Checkpoint, InFlight, Key
from orbitmq.broker.pop.records import (
    ACK,
    BATCH_ACK,
    CHECKPOINT,
    FORGET,
    MARK,
    AckBody,
    Body,
    CheckpointBody,
    ForgetBody,
    MarkBody,
    ack_body,
    checkpoint_body,
    read_record,
)
from orbitmq.broker.topics import Topics
from orbitmq.errors import BodyError, OrbitMQError, StoreError, UnitError
from orbitmq.message.java_hash import tags_code
from orbitmq.message.pop import revive_topic
from orbitmq.message.properties import TAGS, EncodedProperties, encode_properties
from orbitmq.message.topics import RETRY_PREFIX
from orbitmq.message.unit import decode_unit
from orbitmq.runtime.clock import Clock
from orbitmq.store.engine import MessageStore
from orbitmq.store.queue_room import RoomAwaited
from orbitmq.store.records import PutRecord, PutResult, PutStatus

_log = logging.getLogger(__name__)

QUEUE_ID: Final = 0  # all records are in one queue: their order is that of events
QUEUES: Final = 8  # of the topic, as RocketMQ makes it
READ_AT_ONCE: Final = 2000  # records that a start reads before other work gets its turn
MARK_SECONDS: Final = 10.0
KEPT_MS: Final = 30_000  # records as young are read by a start: the offsets that a slave has may be as old
FAR_BACK: Final = 100_000  # records: an older checkpoint is written again
MOVED_A_TURN: Final = 2000  # some 20 ms
ASKED_AGAIN_MS: Final = 10_000  # a slave, where its records begin
_MARK_CODE: Final = tags_code(MARK)


class Restored(NamedTuple):
    """A record that was read, with its queue offset and its place in the log."""

    entry: int
    place: int
    body: Body


class Journal:
    """`in_flight` is the sum of the records."""

    def __init__(
        self,
        store: MessageStore,
        writing: MessageWriter,
        topics: Topics,
        offsets: ConsumerOffsets,
        clock: Clock,
        broker_name: str,
        cluster: str,
    ) -> None:
        self.in_flight = InFlight()
        self.host = b""  # known when the port is
        self.topic = revive_topic(cluster)
        self._store = store
        self._writing = writing
        self._topics = topics
        self._offsets = offsets
        self._clock = clock
        self._broker_name = broker_name
        self._ends: deque[tuple[int, int]] = deque()  # when -> the end of the queue then
        self._marked = 0  # the end of the queue at the last mark, which is counted
        self._written_to = 0  # of the log, by the last record
        self._rendered_to = 0  # the end of the queue when offsets were last rendered
        self._saved_to = 0  # the same when those were that are saved
        self._moved_to = 0  # of the log, by the last checkpoint that was written again
        self._lowest: int | None = None  # place of the oldest checkpoint, as far as the log is flushed
        self._must_move_below = 0
        self._at_slave = (0, False)  # until when the answer of `clear_below` holds at a slave, and the answer
        self._restored = asyncio.Event()

    # ---------------------------------------------------------------------------------------------------- writing

    def add(self, checkpoint: Checkpoint, following: int = -1, leaves: Key | None = None, times: int = 0) -> PutResult:
        """Write a checkpoint; from now on it is in flight. `following` is the offset at which the group goes on in the
        queue, `leaves` the checkpoint that its message leaves for this one, `times` how often it was written before.
        RoomAwaited.
        """
        result = self._put(CHECKPOINT, checkpoint_body(checkpoint, self._broker_name, following, leaves, times))
        if result.status is PutStatus.PUT_OK:
            checkpoint.entry, checkpoint.place = result.queue_offset, result.physical_offset
            if leaves is not None:
                self.in_flight.acknowledge(leaves, checkpoint.offsets)
            self.in_flight.add(checkpoint)
        return result

    def acknowledge(self, key: Key, offsets: Sequence[int]) -> PutResult | None:
        """Write that messages need no redelivery; None if none of them is in flight. RoomAwaited."""
        known = self.in_flight.find(key)
        left = [] if known is None else [offset for offset in known.left() if offset in offsets]
        if not left:
            return None
        result = self._put(ACK if len(left) == 1 else BATCH_ACK, ack_body(key, left, self._broker_name))
        if result.status is PutStatus.PUT_OK:
            self.in_flight.acknowledge(key, left)
        return result

    def need_room(self) -> None:
        """RoomAwaited unless there is room for one record."""
        self._store.need_room(self.topic, QUEUE_ID)

    def _put(self, tag: str, body: bytes) -> PutResult:
        topic = self._topics.create_for_system(self.topic, QUEUES).name
        record = PutRecord(
            topic=topic,
            queue_id=QUEUE_ID,
            body=body,
            properties=encode_properties({TAGS: tag}).encode(),
            born_timestamp=self._clock.now_ms(),
            born_host=self.host,
            store_host=self.host,
            makes_room=True,  # of a full disk nothing could be consumed, and no file be removed
        )
        result = self._writing.put_here(record, True)
        if result.status is PutStatus.PUT_OK:
            self._written_to = result.end_offset
        return result

    async def flushed(self) -> None:
        """Return when all records so far are on disk. Saved offsets need them: a group that goes on behind messages of
        which no record is left would never see them again. OSError if they cannot get there.
        """
        try:
            self._rendered_to = self._store.max_offset(self.topic, QUEUE_ID)
        except StoreError:
            return  # it is closed, with everything on disk
        if (end := self._written_to) > self._store.lasting_offset:
            await self._writing.flushed()
            if end > self._store.lasting_offset:
                raise OSError("the records of messages in flight are not on disk")

    def offsets_saved(self) -> None:
        """What was rendered last is saved."""
        self._saved_to = self._rendered_to

    # ------------------------------------------------------------------------------------------------ what is needed

    def mark(self, *, is_last: bool = False) -> None:
        """Write where the records begin that are needed; to be called every `MARK_SECONDS`. `is_last` at a stop, when
        offsets are saved: a start need not correct them.
        """
        with suppress(RoomAwaited, OrbitMQError):  # the next one will do
            self._mark(is_last=is_last)

    def _mark(self, *, is_last: bool) -> None:
        end = self._store.max_offset(self.topic, QUEUE_ID)
        if not self._restored.is_set() or (end == self._marked and not (end and is_last)):
            return
        now_ms = self._clock.now_ms()
        self._ends.append((now_ms, end))
        while len(self._ends) > 1 and self._ends[1][0] <= now_ms - KEPT_MS:
            self._ends.popleft()
        oldest = self.in_flight.oldest()
        saved = min(self._ends[0][1], self._saved_to)
        body = MarkBody(saved if oldest is None else min(saved, oldest.entry), saved, is_last)
        result = self._put(MARK, msgspec.json.encode(body))
        if result.status is PutStatus.PUT_OK:
            self._marked = result.queue_offset + 1

    def tidy(self) -> None:
        """Write checkpoints again that lie far back; to be called every second."""
        if not self._restored.is_set():
            return
        with suppress(RoomAwaited, OrbitMQError):  # the next time
            self._tidy()
        if self._moved_to <= self._store.lasting_offset:
            oldest = self.in_flight.oldest()
            self._lowest = None if oldest is None else oldest.place

    def _tidy(self) -> None:
        in_flight = self.in_flight
        end = self._store.max_offset(self.topic, QUEUE_ID)
        for _ in range(MOVED_A_TURN):
            oldest = in_flight.oldest()
            if oldest is None:
                return
            is_far = end - oldest.entry > FAR_BACK + 4 * len(in_flight)
            if not (is_far or oldest.place < self._must_move_below):
                return
            result = self.add(oldest, times=1)
            if result.status is not PutStatus.PUT_OK:
                return
            self._moved_to = result.end_offset

    def forget_topic(self, topic: str) -> None:
        """A topic is deleted: nothing of it is in flight, also for later starts."""
        if self.in_flight.forget_topic(topic):
            with suppress(RoomAwaited, OrbitMQError):  # then a start finds out when they are due
                self._put(FORGET, msgspec.json.encode(ForgetBody(topic)))

    def clear_below(self, end: int) -> bool:
        """Whether no checkpoint in flight lies in the log below `end`; those that do are written again soon. For the
        cleaner's thread. A slave keeps the records from the last mark on: its master writes old ones again.
        """
        if not self._restored.is_set():
            return self._is_clear_at_slave(end)
        if self._lowest is None or self._lowest >= end:
            return True
        self._must_move_below = max(self._must_move_below, end)
        return False

    def _is_clear_at_slave(self, end: int) -> bool:
        now_ms = self._clock.now_ms()
        until_ms, is_clear = self._at_slave
        if not now_ms < until_ms <= now_ms + ASKED_AGAIN_MS:
            mark, _ = self._last_mark(self._store.max_offset(self.topic, QUEUE_ID))
            entries = self._store.entries(self.topic, QUEUE_ID, mark.first, 1)
            is_clear = not entries or entries[0][0] >= end
            self._at_slave = (now_ms + ASKED_AGAIN_MS, is_clear)
        return is_clear

    # --------------------------------------------------------------------------------------------------- at a start

    @property
    def is_restored(self) -> bool:
        return self._restored.is_set()

    async def restored(self) -> None:
        """Return when `in_flight` is what it was."""
        await self._restored.wait()

    async def correct_offsets(self) -> None:
        """Before anything is served. Unless the broker was stopped, groups go on where the youngest records say:
        offsets are saved now and then only, and those that a slave has may be ahead of its records.
        """
        high = self._store.max_offset(self.topic, QUEUE_ID)
        mark, marked = await asyncio.to_thread(self._last_mark, high)
        if mark.is_last and marked == high:
            return
        ends: dict[tuple[str, str, int], int] = {}
        begin = max(mark.saved, self._store.min_offset(self.topic, QUEUE_ID))
        for at in range(begin, high, READ_AT_ONCE):
            for one in await asyncio.to_thread(self._read, at, min(READ_AT_ONCE, high - at)):
                body = one.body
                if isinstance(body, CheckpointBody) and body.following >= 0:
                    ends[body.t, body.c, body.q] = body.following
                elif isinstance(body, ForgetBody):
                    ends = {key: end for key, end in ends.items() if key[0] != body.t}
        for (topic, group, queue_id), end in ends.items():
            if self._topics.get(topic) is None and not topic.startswith(RETRY_PREFIX):
                continue  # it was deleted
            end = min(end, self._store.max_offset(topic, queue_id))
            if self._offsets.query(group, topic, queue_id) != end:
                self._offsets.commit(group, topic, queue_id, end)

    async def restore(self) -> None:
        """Build `in_flight`, beside what is served: POP consumption waits for it."""
        self.in_flight = InFlight()
        high = self._store.max_offset(self.topic, QUEUE_ID)
        mark, _ = await asyncio.to_thread(self._last_mark, high)
        for at in range(mark.first, high, READ_AT_ONCE):
            for one in await asyncio.to_thread(self._read, at, min(READ_AT_ONCE, high - at)):
                self._take(one)
        self._ends.append((self._clock.now_ms(), mark.saved))
        self._saved_to, self._marked = mark.saved, high
        oldest = self.in_flight.oldest()
        self._lowest = None if oldest is None else oldest.place
        self._restored.set()
        if len(self.in_flight):
            _log.info("event=pop_restored checkpoints=%d", len(self.in_flight))

    def _last_mark(self, high: int) -> tuple[MarkBody, int]:
        """The last mark, of which `first` is limited to records that are there, and the end of the queue behind it."""
        low: int = self._store.min_offset(self.topic, QUEUE_ID)
        at = high
        while at > low:
            begin = max(low, at - READ_AT_ONCE)
            entries = self._store.entries(self.topic, QUEUE_ID, begin, at - begin)
            for number in reversed(range(len(entries))):
                if entries[number][2] != _MARK_CODE:
                    continue
                for found in self._read(begin + number, 1):
                    if isinstance(found.body, MarkBody):
                        body = found.body
                        return MarkBody(max(low, body.first), body.saved, body.is_last), found.entry + 1
            at = begin
        return MarkBody(low), low

    def _read(self, at: int, count: int) -> list[Restored]:
        found = []
        for number, (place, _size, _code) in enumerate(self._store.entries(self.topic, QUEUE_ID, at, count)):
            stored = self._store.unit_at(place)
            if stored is None:
                continue
            try:
                unit = decode_unit(stored)
                if unit.topic != self.topic:
                    continue  # it named this queue beside its own
                tag = EncodedProperties(unit.properties.encode()).get(TAGS) or ""
                body = read_record(tag, unit.body)
            except (UnitError, BodyError) as error:
                _log.error("event=pop_record_unreadable place=%d error=%s", place, error)
                continue
            if body is not None:
                found.append(Restored(at + number, place, body))
        return found

    def _take(self, one: Restored) -> None:
        body = one.body
        if isinstance(body, AckBody):
            self.in_flight.acknowledge(body.key, body.aol or [body.ao])
        elif isinstance(body, ForgetBody):
            self.in_flight.forget_topic(body.t)
        elif isinstance(body, CheckpointBody):
            try:
                checkpoint = body.checkpoint()
            except BodyError as error:
                _log.error("event=pop_record_unreadable place=%d error=%s", one.place, error)
                return
            checkpoint.entry, checkpoint.place = one.entry, one.place
            if body.leaves is not None:
                self.in_flight.acknowledge(body.leaves, checkpoint.offsets)
            self.in_flight.add(checkpoint)


def when_room(writing: MessageWriter, awaited: RoomAwaited, then: Callable[[], object]) -> None:
    """Call `then` once there is room, or none is to be had."""
    writing.when_room(awaited, partial(_ignore, then))


def _ignore(then: Callable[[], object], _refused: PutResult | None) -> None:
    then()
