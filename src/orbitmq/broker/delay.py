"""Delayed messages: stored in one queue per level, delivered to their real topic when due.

The queue entry of the schedule topic holds the due time instead of a tag hash, so the head of each queue shows when its
level is due. Deliveries run in turns of the event loop that are bounded over all levels; each turn begins with another
level, so that no level delays the others. The progress of durable deliveries is saved in config/delayOffset.json: after
a crash some messages may be delivered twice, and none is lost.

A queue is delivered in its order, so a message that cannot be stored blocks those after it, retries among them. If it
may be stored later (the disk is full or slow, an option was changed) the level waits. If the store can never accept it,
it is skipped and logged; RocketMQ retries it for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from orbitmq.errors import MessageIllegal, StoreError, UnitError
from orbitmq.message.delay import delivery_timestamp, real_place
from orbitmq.message.ids import offset_message_id
from orbitmq.message.javajson import dumps_pretty
from orbitmq.message.properties import REAL_TOPIC, UNIQ_KEY, EncodedProperties
from orbitmq.message.topics import SCHEDULE_TOPIC
from orbitmq.message.unit import Unit, decode_unit
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.events import wait_at_most
from orbitmq.runtime.refusals import Refusals
from orbitmq.runtime.saved import SavedFile
from orbitmq.store.cold import Fetch
from orbitmq.store.engine import MessageStore
from orbitmq.store.queue_room import RoomAwaited
from orbitmq.store.records import PutResult, PutStatus, copy_of
from orbitmq.wire.bodies import DelayOffsetTable
from orbitmq.wire.objects import decode, plain

_log = logging.getLogger(__name__)

TICK_SECONDS = 0.05  # half of RocketMQ's interval: a busy event loop adds its own delay
TURN_MAX = 200  # deliveries before other work gets its turn of the event loop: some 6 ms
NEVER_MS = (1 << 63) - 1
FAILURE_PAUSE_SECONDS = 10.0  # of one level, as in RocketMQ, after a failure that is our own
DROPPED_LINES: Final = 200  # in ten seconds, as many as one turn may drop: a line each, but not a disk full of them

# Results of a put that will not change for this message. Any other depends on the disk, and passes, or on an option
# (maxLmqConsumeQueueNum) that may be changed back: the level waits and logs it.
NEVER_STORED: Final = PutStatus.PROPERTIES_SIZE_EXCEEDED


class DelayedDelivery:
    """Delivers due messages. `levels` are milliseconds, level 1 first; `delivered` is called with topic and size."""

    def __init__(
        self,
        store: MessageStore,
        levels: tuple[int, ...],
        directory: Path,
        clock: Clock,
        delivered: Callable[[str, int], object] = lambda _topic, _size: None,
        fetch: Fetch | None = None,
    ) -> None:
        self._store = store
        self._levels = levels
        self._clock = clock
        self._delivered = delivered
        self._fetch = fetch
        self.offsets: dict[int, int] = {}
        self.file = SavedFile(directory / "delayOffset.json", self._text)
        self._task: asyncio.Task[None] | None = None
        self._further: list[int] = []  # levels that had messages at the start
        self._begin = 0  # the level the next turn begins with, counted from 0
        self._waits_for: dict[int, int] = {}  # level -> offset of a blocking message that was logged
        self._resting: dict[int, int] = {}  # level that failed -> time of the next attempt
        self._awaiting: set[int] = set()  # levels whose next message has no room in its queue, or is not in memory
        self._fetched_places: dict[int, int] = {}  # level -> message that was brought into memory
        self._room_made = asyncio.Event()  # for one of them
        self._lines = Refusals()
        self._changed = False
        self._safe: dict[int, int] = {}  # the progress that may be saved
        self._noted: deque[tuple[int, dict[int, int]]] = deque()  # log end -> progress that is safe when it is flushed

    def load(self) -> None:
        """Read the progress and limit it to the range of the queues."""
        saved = self.file.load(lambda text: decode(DelayOffsetTable, text))
        for level, offset in (saved.offset_table if saved else {}).items():
            low = self._store.min_offset(SCHEDULE_TOPIC, level - 1)
            high = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
            if offset > high:  # a crash has cost the log messages that were delivered already
                _log.warning("event=delay_offset_corrected level=%d from=%d to=%d", level, offset, high)
            self.offsets[level] = min(max(offset, low), high)
        self._safe = dict(self.offsets)
        self._further = [queue_id + 1 for queue_id in self._store.queue_ids(SCHEDULE_TOPIC)]

    def take(self, offsets: dict[int, int]) -> None:
        """Of a slave, which delivers nothing: the progress of its master, for the day it becomes one."""
        if offsets != self._safe:
            self.offsets, self._safe = dict(offsets), dict(offsets)
            self.file.mark()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def save_soon(self) -> None:
        if self._changed or self._noted:
            self.file.mark()

    async def _run(self) -> None:
        is_paused = False
        while True:
            self._room_made.clear()
            try:
                pause_s = 0.0 if self.deliver_turn() else TICK_SECONDS
                is_paused = False
            except StoreError as error:
                if not is_paused:  # a store that has failed stays so until the restart: one line is enough
                    _log.error("event=delivery_paused error=%s", error)
                is_paused, pause_s = True, TICK_SECONDS
            await wait_at_most(self._room_made, pause_s)

    def deliver_turn(self) -> bool:
        """Deliver due messages for one turn of the event loop; True if more are due. StoreError if the store failed for
        a level, after the other levels had their turn.
        """
        levels = self._known_levels()
        left = TURN_MAX
        failure: StoreError | None = None
        for number in range(len(levels)):
            at = (self._begin + number) % len(levels)
            try:
                left -= self._deliver_level(levels[at], left)
            except StoreError as error:
                failure = error
            if not left:
                self._begin = (at + 1) % len(levels)
                break
        if failure is not None:
            raise failure
        return not left

    def _deliver_level(self, level: int, limit: int) -> int:
        """`deliver_due`, unless the level waits for room or for its next attempt after a failure of its own."""
        if level in self._awaiting:
            return 0
        now_ms = self._clock.now_ms()
        looked_at_ms = self._resting.get(level, 0)
        if now_ms < looked_at_ms <= now_ms + round(FAILURE_PAUSE_SECONDS * 1000):  # further away: the clock was set
            return 0
        try:
            return self.deliver_due(level, limit)
        except StoreError:
            raise
        except Exception:  # messages of other levels must still be delivered
            _log.exception("event=delivery_failed level=%d offset=%d", level, self.offsets.get(level, 0))
            self._resting[level] = now_ms + round(FAILURE_PAUSE_SECONDS * 1000)
            return 0

    def _known_levels(self) -> list[int]:
        """Those of the table, and those an earlier, longer table left messages of: they must not wait for ever."""
        levels = len(self._levels)
        return [*range(1, levels + 1), *(level for level in self._further if level > levels)]

    def deliver_due(self, level: int, limit: int = TURN_MAX) -> int:
        """Deliver due messages of one level, at most `limit`; returns how many are done. Stops before a message whose
        queue has no room yet; `_run` is woken when the store has made room.
        """
        offset = self._position(level)
        now_ms = self._clock.now_ms()
        # A due time further away than the level's whole delay comes from a longer table: deliver now.
        latest_ms = delivery_timestamp(self._levels, level, now_ms) if level <= len(self._levels) else NEVER_MS
        done = 0
        while done < limit:
            # Most looks find one message that is not due: what lies behind it is read only when it is.
            entries = self._store.entries(SCHEDULE_TOPIC, level - 1, offset + done, min(limit - done, 1 + done * 8))
            for physical_offset, _size, due_ms in entries:
                if now_ms < due_ms <= latest_ms:
                    return done
                if self._must_fetch(level, physical_offset) or not self._deliver(physical_offset):
                    return done
                done += 1
                self.offsets[level] = offset + done
                self._changed = True
            if not entries:
                break
        return done

    def _must_fetch(self, level: int, physical_offset: int) -> bool:
        """Whether the next message has left memory; then the level waits for it."""
        if self._fetch is None or self._fetched_places.get(level) == physical_offset:
            return False
        if not (absent := self._store.absent_unit(physical_offset)):
            return False
        self._awaiting.add(level)
        self._fetched_places[level] = physical_offset  # once: some file systems never tell that it is there
        self._fetch(absent, partial(self._fetched, level))
        return True

    def _fetched(self, level: int, error: BaseException | None) -> None:
        self._awaiting.discard(level)
        if error is None:
            self._room_made.set()
        else:
            _log.error("event=delivery_failed level=%d error=%s", level, error)
            self._resting[level] = self._clock.now_ms() + round(FAILURE_PAUSE_SECONDS * 1000)

    def _position(self, level: int) -> int:
        offset = self.offsets.get(level, 0)
        low = self._store.min_offset(SCHEDULE_TOPIC, level - 1)
        high = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
        return min(max(offset, low), high)

    def _deliver(self, physical_offset: int) -> bool:
        """Store the message under its real topic. True when done with it, also when it cannot be read or stored."""
        stored = self._store.unit_at(physical_offset)
        if stored is None:
            return True
        try:
            unit = decode_unit(stored)
        except UnitError as error:
            _log.error("event=delayed_message_skipped offset=%d error=%s", physical_offset, error)
            return True
        text = unit.properties.encode()
        properties = EncodedProperties(text)
        place = real_place(properties.get)
        if place is None:
            self._drop(unit, properties, "it names no topic and queue to go to")
            return True
        topic, queue_id = place
        try:
            result = self._store.put(copy_of(unit, topic, queue_id, text), True)
        except RoomAwaited as awaited:
            self._awaiting.add(unit.queue_id + 1)
            self._store.when_room(awaited, partial(self._go_on, unit))
            return False
        except MessageIllegal as error:
            self._drop(unit, properties, str(error))
            return True
        if result.status is not PutStatus.PUT_OK:
            if result.status is not NEVER_STORED:
                self._wait(unit, result.status)
                return False
            self._drop(unit, properties, result.status.name)
            return True
        self._delivered(topic, result.size)
        return True

    def _go_on(self, unit: Unit, refused: PutResult | None) -> None:
        """The blocking message of a level can be stored again, or there is no room for it now."""
        self._awaiting.discard(unit.queue_id + 1)
        if refused is None:
            self._room_made.set()
        else:
            self._wait(unit, refused.status)

    def _wait(self, unit: Unit, status: PutStatus) -> None:
        """Log once per message that its level waits for it."""
        level = unit.queue_id + 1
        if self._waits_for.get(level) != unit.queue_offset:
            self._waits_for[level] = unit.queue_offset
            text = "event=delivery_waits level=%d offset=%d reason=%s"
            _log.warning(text, level, unit.queue_offset, status.name)

    def _drop(self, unit: Unit, properties: EncodedProperties, reason: str) -> None:
        """Log what is not delivered, and its id: with it the message can be read until the log expires."""
        stored_id = offset_message_id(unit.store_host, unit.physical_offset)
        text = "event=delayed_message_dropped topic=%.300s level=%d offset=%d id=%.300s stored_id=%s reason=%.300s"
        topic, unique_id = properties.get(REAL_TOPIC) or "", properties.get(UNIQ_KEY) or ""
        what = topic, unit.queue_id + 1, unit.queue_offset, unique_id, stored_id, reason
        self._lines.log(_log, text, *what, level=logging.ERROR, lines=DROPPED_LINES)

    def _text(self) -> str:
        if self._changed:
            self._changed = False
            self._noted.append((self._store.commit_log_max_offset, dict(self.offsets)))
        while self._noted and self._noted[0][0] <= self._store.lasting_offset:
            self._safe = self._noted.popleft()[1]
        return dumps_pretty(plain(DelayOffsetTable(offset_table=self._safe)))
