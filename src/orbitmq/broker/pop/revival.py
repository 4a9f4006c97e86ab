"""Delivers again what was not acknowledged in time: each message is put to the retry topic of its topic and group.

The copy is put first and the acknowledgement of the original after it: a crash in between delivers the message twice,
and never loses it.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from orbitmq.broker.groups import Groups
from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.pop.in_flight import Checkpoint
from orbitmq.broker.pop.journal import Journal, when_room
from orbitmq.broker.topics import Topics
from orbitmq.errors import MessageIllegal, OrbitMQError, StoreError, UnitError
from orbitmq.message.pop import FIRST_POP_TIME, pop_retry_topic
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.topics import RETRY_PREFIX
from orbitmq.message.unit import Unit, decode_unit
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.events import wait_at_most
from orbitmq.runtime.refusals import Refusals
from orbitmq.store.cold import Fetch
from orbitmq.store.engine import MessageStore
from orbitmq.store.queue_room import RoomAwaited
from orbitmq.store.records import MAY_PASS, PutRecord, PutStatus, copy_of

_log = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.02  # how late a message is redelivered, at most, while the event loop is free
LOOK_SECONDS: Final = 0.2  # the clock may be set, and a checkpoint may come that is due earlier
TURN_MAX: Final = 200  # messages before other work gets its turn of the event loop: some 6 ms
FAILURE_PAUSE_SECONDS: Final = 1.0
SET_ASIDE_MS: Final = 10_000  # for how long a checkpoint that cannot be redelivered lets others go first
FETCHES_MAX: Final = 2  # queue entries, then messages
LOST_LINES: Final = 200  # in ten seconds


class Revival:
    """`fetch` brings pages of the log into memory. `restore` builds what is in flight."""

    def __init__(
        self,
        journal: Journal,
        store: MessageStore,
        writing: MessageWriter,
        topics: Topics,
        groups: Groups,
        clock: Clock,
        fetch: Fetch,
    ) -> None:
        self.revived = 0
        """Messages that were put to a retry topic since the start."""
        self._journal = journal
        self._store = store
        self._writing = writing
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._fetch = fetch
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._is_awaiting = False
        self._fetched: tuple[Checkpoint | None, int] = (None, 0)  # how often pages of it were asked for
        self._lines = Refusals()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        is_paused = False  # after a failure that was logged: one line is enough until it is over
        while not self._journal.is_restored:
            try:
                await self._journal.restore()
                is_paused = False
            except Exception:  # nothing is delivered by POP before it succeeds
                if not is_paused:
                    _log.exception("event=pop_not_restored")
                is_paused = True
                await asyncio.sleep(FAILURE_PAUSE_SECONDS)
        while True:
            self._wake.clear()
            try:
                pause_s = 0.0 if self.turn() else self._pause_s()
                is_paused = False
            except Exception as error:  # the task must live
                if not is_paused:
                    _log.error("event=pop_revival_failed error=%s", error, exc_info=not isinstance(error, StoreError))
                is_paused, pause_s = True, FAILURE_PAUSE_SECONDS
            await wait_at_most(self._wake, pause_s)

    def _pause_s(self) -> float:
        due_ms = self._journal.in_flight.next_due_ms()
        if due_ms is None:
            return LOOK_SECONDS
        return min(max((due_ms - self._clock.now_ms()) / 1000, TICK_SECONDS), LOOK_SECONDS)

    def turn(self) -> bool:
        """Put what is due to retry topics, for one turn of the event loop; whether there is more. StoreError."""
        now_ms, begun, aside = self._clock.now_ms(), self.revived, 0
        while self.revived - begun + aside < TURN_MAX:
            checkpoint = self._journal.in_flight.due(now_ms)
            if checkpoint is None or self._is_awaiting:
                return False
            try:
                if self._must_fetch(checkpoint):
                    return False
                self._revive(checkpoint)
            except RoomAwaited as awaited:
                self._is_awaiting = True
                when_room(self._writing, awaited, self._go_on)
                return False
            except (StoreError, OSError):  # all others would fail, too
                raise
            except Exception as error:
                self._set_aside(checkpoint, error)
                aside += 1
        return True

    def _set_aside(self, checkpoint: Checkpoint, error: BaseException) -> None:
        """Others must not wait for one that cannot be redelivered; it is tried again."""
        text = "event=pop_revival_failed topic=%.300s group=%.300s queue=%d error=%s"
        fault = None if isinstance(error, OrbitMQError | OSError) else error
        self._lines.log(_log, text, *checkpoint.key[:3], error, level=logging.ERROR, lines=LOST_LINES, fault=fault)
        self._journal.in_flight.postpone(checkpoint, self._clock.now_ms() + SET_ASIDE_MS)

    def _go_on(self) -> None:
        self._is_awaiting = False
        self._wake.set()

    def _must_fetch(self, checkpoint: Checkpoint) -> bool:
        """Whether entries of the queue or messages have left memory. Pages are asked for a few times only, for some
        file systems never tell that they are there.
        """
        known, fetches = self._fetched
        fetches = fetches if known is checkpoint else 0
        if fetches >= FETCHES_MAX:
            return False
        topic, _, queue_id = checkpoint.key[:3]
        left = checkpoint.left()
        absent = [
            pages for offset in (left[0], left[-1]) for pages in self._store.absent_entries(topic, queue_id, offset)
        ]
        if not absent:
            places = [place for offset in left if (place := self._place(checkpoint, offset)) is not None]
            absent = [pages for place in places for pages in self._store.absent_unit(place)]
        if absent:
            self._is_awaiting, self._fetched = True, (checkpoint, fetches + 1)
            self._fetch(absent, partial(self._came, checkpoint))
        return bool(absent)

    def _came(self, checkpoint: Checkpoint, error: BaseException | None) -> None:
        if error is not None:
            self._fetched = (None, 0)
            self._set_aside(checkpoint, error)
        self._go_on()

    def _place(self, checkpoint: Checkpoint, offset: int) -> int | None:
        """Where a message of a checkpoint lies in the log."""
        found = self._store.entries(checkpoint.key.topic, checkpoint.key.queue_id, offset, 1)
        return found[0][0] if found else None

    def _revive(self, checkpoint: Checkpoint) -> None:
        """StoreError when a message cannot be stored now, RoomAwaited when there is no room."""
        key, done = checkpoint.key, []
        is_there = key.topic.startswith(RETRY_PREFIX) or self._topics.get(key.topic) is not None
        is_wanted = is_there and self._groups.is_known(key.group)
        self._journal.need_room()  # for what is written last
        try:
            for offset in checkpoint.left():
                if is_wanted:
                    self._put(checkpoint, offset)
                done.append(offset)
        finally:
            if done:
                result = self._journal.acknowledge(key, done)
                if result is None or result.status is not PutStatus.PUT_OK:  # they are copied all the same
                    self._journal.in_flight.acknowledge(key, done)

    def _put(self, checkpoint: Checkpoint, offset: int) -> None:
        key, unit = checkpoint.key, self._unit(checkpoint, offset)
        if unit is None:
            text = "event=pop_message_gone topic=%.300s group=%.300s queue=%d offset=%d"
            self._lines.log(_log, text, *key[:3], offset, level=logging.ERROR, lines=LOST_LINES)
            return
        is_retry = key.topic.startswith(RETRY_PREFIX)
        topic = key.topic if is_retry else pop_retry_topic(key.topic, key.group)
        properties = decode_properties(unit.properties)
        properties.setdefault(FIRST_POP_TIME, str(key.pop_ms))
        self._topics.create_for_system(topic, 1)
        record = _copy(unit, topic, encode_properties(properties).encode())
        result = self._writing.put_here(record, True)
        if result.status is PutStatus.PROPERTIES_SIZE_EXCEEDED:
            result = self._writing.put_here(_copy(unit, topic, unit.properties.encode()), True)
        if result.status is not PutStatus.PUT_OK:
            kind = StoreError if result.status in MAY_PASS else MessageIllegal
            raise kind(f"a message of {key.topic} cannot be put to {topic}: {result.status.name}")
        self.revived += 1

    def _unit(self, checkpoint: Checkpoint, offset: int) -> Unit | None:
        """None if the message has expired; what lies at its place then is another one."""
        place = self._place(checkpoint, offset)
        stored = None if place is None else self._store.unit_at(place)
        if stored is None:
            return None
        try:
            unit = decode_unit(stored)
        except UnitError:
            return None
        return unit if unit.queue_offset == offset else None


def _copy(unit: Unit, topic: str, properties: bytes) -> PutRecord:
    record = copy_of(unit, topic, 0, properties)
    record.reconsume_times += 1
    return record
