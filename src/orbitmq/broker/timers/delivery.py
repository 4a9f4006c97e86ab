"""Delivers timer messages: those of the timer topic, each to its real topic when it is due.

A timer message is an ordinary message of the log, so it is flushed, replicated and recovered like any other. In memory
are the times and places of those that wait (`pending`), built from the queue of the timer topic at a start: its entries
hold the time due instead of a tag hash. Nothing is written about a message that was delivered: its copy in the log
names it, and the progress that is saved each second says what lies further back (`progress`).

The log keeps a file as long as a message waits in it. When the file has expired, or the disk is nearly full, what waits
there is put to the end of the log again, and the file goes: a message that waits a year is copied every three days.
RocketMQ copies each message every two days instead, and loses it if the disk is full before.

Messages are delivered in the order in which they are due. One that may be stored later, because the disk is full or an
option can be changed (maxLmqConsumeQueueNum), makes those after it wait; one that never can be stored is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from orbitmq.broker.message_writer import act_with_room
from orbitmq.broker.timers.copies import delivered_copy, moved_copy
from orbitmq.broker.timers.counts import TimerCounts
from orbitmq.broker.timers.pending import SLOT_MS, Pending, due_of, is_recall, key_of, place_of
from orbitmq.broker.timers.progress import DoneSince, read_timer_check
from orbitmq.errors import MessageIllegal, StoreError, UnitError
from orbitmq.message.ids import offset_message_id
from orbitmq.message.javajson import dumps_pretty
from orbitmq.message.properties import (
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
    EncodedProperties,
    decode_properties,
)
from orbitmq.message.timers import due_ms, recall_key
from orbitmq.message.topics import TIMER_TOPIC
from orbitmq.message.unit import Unit, decode_unit
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.events import wait_at_most
from orbitmq.runtime.refusals import Refusals
from orbitmq.runtime.saved import SavedFile
from orbitmq.store.cold import Fetch
from orbitmq.store.engine import MessageStore
from orbitmq.store.queue_room import RoomAwaited
from orbitmq.store.records import MAY_PASS, PutResult, PutStatus
from orbitmq.wire.bodies import TimerProgress
from orbitmq.wire.objects import decode, plain

_log = logging.getLogger(__name__)

QUEUE_ID: Final = 0  # the timer topic has one queue
TICK_SECONDS: Final = 0.02  # how late a message is delivered, at most, while the event loop is free
LOOK_SECONDS: Final = 0.2  # the clock may be set
IDLE_SECONDS: Final = 60.0  # while nothing waits
TURN_MAX: Final = 200  # deliveries before other work gets its turn of the event loop: some 6 ms
ENTRIES_A_TURN: Final = 2000  # of the queue, about 2 ms
SAVE_SECONDS: Final = 1.0
SAVE_BYTES: Final = 64 << 20  # of the log: a start after a crash reads no more than this, in half a second
FAILURE_PAUSE_SECONDS: Final = 1.0
TRIES_MAX: Final = 10  # of a message that fails for a reason of our own: after ten seconds those behind it go on
DROPPED_LINES: Final = 200  # in ten seconds
# After a crash of RocketMQ 5, what was due in this time before the end of the log counts as not delivered: so late may
# its deliveries have been.
DOUBT_MS: Final = 10_000
EARLIEST_MS: Final = 1 << 40  # September 2004: a smaller code in a queue entry is no time


class TimerDelivery:
    """`delivered` is called with topic and size of each message that was put to its topic, `fetch` brings pages of the
    log into memory.
    """

    def __init__(
        self,
        store: MessageStore,
        directory: Path,
        clock: Clock,
        delivered: Callable[[str, int], object] = lambda _topic, _size: None,
        fetch: Fetch | None = None,
    ) -> None:
        self.pending = Pending(store.options.mapped_file_size_commit_log)
        self.counts = TimerCounts(clock)
        self.file = SavedFile(directory / "timerProgress.json", self._text)
        self._store = store
        self._clock = clock
        self.on_delivery: Callable[[str], object] = lambda _topic: None  # with the topic; for the metrics
        self._delivered = delivered
        self._fetch = fetch
        self._tasks: list[asyncio.Task[None]] = []
        self._lines = Refusals()
        self._before = TimerProgress()  # as of the start
        self._done_before: set[int] = set()  # places of messages that were delivered after that
        self._firsts: set[str] = set()  # names of messages that RocketMQ stored, until `_restored`
        self._is_taken_over = False  # from RocketMQ, by this start
        self._restored = asyncio.Event()
        self._next = 0  # of the queue: the first entry that is not in `pending`
        self._known = 0  # the place behind the last one that is
        self._moved_to = -1  # place of the last moved message: until it is known, others could overtake it, recalls too
        self._due_ms = 0  # of the message delivered last
        self._recalled: set[str] = set()  # of those due then
        self._is_asleep = False
        self._all_done_ms: int | None = None  # all due then was done in the last turn; None if it was not
        self._has_caught_up = False  # all that was due at the start, or has become so since, is done
        self._is_new = False  # something was done since `_boundary`
        self._boundary = TimerProgress()  # when all was done that was due before something else
        self._noted: deque[TimerProgress] = deque()  # each is true after a crash once the log is flushed that far
        self._safe = TimerProgress()
        self._check_point = (0, 0)  # the last one
        self._fetched: set[int] = set()
        self._is_awaiting = False  # room in a queue, or pages of the log
        self._waits_for: int | None = None  # place of a message that was logged
        self._failing: int | None = None  # a key whose delivery failed, and how often
        self._tries = 0
        self._wake = asyncio.Event()
        self._move_end = 0  # messages that wait below are to be moved
        self._must_move = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def progress(self) -> TimerProgress | None:
        """What would be true after a crash now, as of the last time it was saved; None if there was no such message."""
        return self._safe if self._store.max_offset(TIMER_TOPIC, QUEUE_ID) else None

    @property
    def is_ready(self) -> bool:
        """Whether every message that waits is in `pending`; soon after a start."""
        return self._restored.is_set()

    @property
    def late_ms(self) -> int:
        """By how much the next message is overdue; 0 if it is not, or nothing waits."""
        due_ms = self.pending.next_due_ms()
        return 0 if due_ms is None else max(0, self._clock.now_ms() - due_ms)

    def load(self) -> None:
        """Read the progress."""
        saved = self.file.load(lambda text: decode(TimerProgress, text))
        if saved is None and not self.file.damage:
            saved = self._progress_of_rocketmq()
        self._safe = self._boundary = self._before = saved or TimerProgress()
        if self._before.log_end > self._store.commit_log_max_offset:
            text = "event=timer_progress_beyond_log progress=%d log_end=%d"
            _log.warning(text, self._before.log_end, self._store.commit_log_max_offset)

    def _progress_of_rocketmq(self) -> TimerProgress | None:
        """That of a store which RocketMQ 5 has served before; None if it has not."""
        store = self._store
        found = read_timer_check(self.file.path.with_name("timercheck"))
        if found is None:
            return None
        done_due_ms, offset = found
        if store.was_killed:  # the disk may have lost what was delivered last
            done_due_ms = min(done_due_ms, store.flushed_until_ms - DOUBT_MS)
        _log.info("event=timers_taken_over done_due_ms=%d queue_offset=%d", done_due_ms, offset)
        self._is_taken_over = True
        return self._progress_at(done_due_ms, offset)

    def _progress_at(self, done_due_ms: int, offset: int) -> TimerProgress:
        """Of a RocketMQ broker that has delivered what is due then, of the messages before an offset of the queue."""
        known, end = self._place(offset), self._store.commit_log_max_offset
        return TimerProgress(known=end if known is None else known, done_due_ms=done_due_ms, log_end=end, lowest=0)

    def take(self, progress: TimerProgress) -> None:
        """Of a slave, which delivers nothing: the progress of its master, for the day it becomes one."""
        if progress != self._safe:
            self._safe = self._boundary = progress
            self.file.mark()

    def take_check_point(self, done_due_ms: int, offset: int) -> None:
        """The same of a slave of RocketMQ 5, when its log has all that was delivered."""
        found = self._progress_at(done_due_ms, offset)
        if (found.done_due_ms, found.known) != (self._safe.done_due_ms, self._safe.known):
            self.take(found)

    def check_point(self) -> tuple[int, int]:
        """The progress as RocketMQ 5 has it: a time, and the offset in the queue before which all due then is done."""
        if self.is_ready and self._boundary is self._safe and not self._is_new:  # nothing was done since it was saved
            now_ms, due_ms = self._clock.now_ms(), self.pending.next_due_ms()
            found = now_ms if due_ms is None else min(now_ms, due_ms - 1), self._next
        else:
            found = self._safe.done_due_ms, self._first_from(min((self._safe.known, *self._safe.late)))
        self._check_point = max(self._check_point, found)  # what was true once stays so
        done_due_ms, offset = self._check_point
        return done_due_ms // SLOT_MS * SLOT_MS, offset

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = [self._loop.create_task(self._run()), self._loop.create_task(self._move())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def save_soon(self) -> None:
        """To be called every `SAVE_SECONDS`."""
        if self._all_done_ms is not None and self._store.commit_log_max_offset > self._boundary.log_end + SAVE_BYTES:
            self._note(self._all_done_ms)
        if self._noted or self._boundary is not self._safe:
            self.file.mark()

    def arrived(self) -> None:
        """A timer message can be read."""
        if self._is_asleep:
            self._wake.set()

    def waiting_with(self, due_ms: int) -> int:
        """How many messages that can be read wait for the same second as one due then."""
        if self.is_ready:
            self._admit()
        return self.pending.waiting_with(due_ms)

    def clear_below(self, end: int) -> bool:
        """Whether no message waits in the log below `end`; those that do are moved soon. For the cleaner's thread."""
        if not self._store.max_offset(TIMER_TOPIC, QUEUE_ID):
            return True
        if self._loop is None:  # a slave: its master moves them
            return self._safe.needed_from >= end
        if self.is_ready and not self.waits_below(end):
            return True
        if end > self._move_end:
            self._move_end = end
            self._loop.call_soon_threadsafe(self._must_move.set)
        return False

    async def count(self) -> None:
        """Bring `counts` up to date; a slave, and a broker that has just started, knows of none. StoreError."""
        async for batch in self._waiting(self.counts.end, self._store.commit_log_max_offset):
            for key in batch:
                if place_of(key) >= self.counts.end and self.pending.waits(key):  # it may be counted twice at a time
                    self.counts.enter(key, self._unit(place_of(key)))

    # --------------------------------------------------------------------------------------------------- what waits

    def waits_below(self, end: int) -> bool:
        """Whether a message waits in a file of the log that begins below `end`, or one there is not known yet."""
        lowest, unknown = self.pending.lowest, self._place(self._next)
        return (lowest is not None and lowest < end) or (unknown is not None and unknown < end)

    async def restore(self) -> None:
        """Build `pending`."""
        store, before = self._store, self._before
        if self._is_taken_over:  # where the log ends now must be known after a crash
            self.file.mark()
            with suppress(StoreError):  # it is logged, and tried again
                await self.file.flush()
        if store.max_offset(TIMER_TOPIC, QUEUE_ID):
            end = store.readable_offset
            begun = max(before.log_end, self._place(store.min_offset(TIMER_TOPIC, QUEUE_ID)) or 0)
            since = await asyncio.to_thread(lambda: DoneSince(store.units(begun, end), before.moved))
            self._done_before, self.pending.moved = since.places, since.moved
            self._known = before.known
            self._next = self._first_from(max(since.moved, before.needed_from))
            more = True
            while more:
                more = self._admit()
                await asyncio.sleep(0)
            self._done_before, self._firsts = set(), set()
        self._restored.set()
        if len(self.pending):
            _log.info("event=timers_restored waiting=%d", len(self.pending))

    def _admit(self) -> bool:
        """Take further entries of the queue into `pending`; whether there may be more."""
        begin = max(self._next, self._store.min_offset(TIMER_TOPIC, QUEUE_ID))
        entries = self._store.entries(TIMER_TOPIC, QUEUE_ID, begin, ENTRIES_A_TURN)
        for place, _size, code in entries:
            key = self._key(place, code)
            if key is not None and not (self._before.is_done(place, due_of(key)) or place in self._done_before):
                self.pending.add(key)
            self._known = place + 1
        self._next = begin + len(entries)
        return len(entries) == ENTRIES_A_TURN

    def _key(self, place: int, code: int) -> int | None:
        """That of a message; the entry of a recall, and of a message that RocketMQ stored, holds the hash of its tags,
        so these are read. None if the message cannot be read, does not say when it is due, or is known.
        """
        if code >= EARLIEST_MS:
            return key_of(code, place)
        unit = self._unit(place)
        if unit is None:
            return None
        properties = EncodedProperties(unit.properties.encode())
        due = due_ms(properties.get)
        if due is None:
            self._drop(unit, "it does not say when it is due")
            return None
        is_recall = properties.get(TIMER_DEL_UNIQKEY) is not None
        if not is_recall and self._is_second(unit, properties, due):
            return None
        return key_of(due, place, is_recall=is_recall)

    def _is_second(self, unit: Unit, properties: EncodedProperties, due_ms: int) -> bool:
        """Whether it is a copy that RocketMQ made of a message which is known: it copies those that wait for two days
        or more, and here the first one waits. Our own copies name their originals, which do not wait any more.
        """
        unique_id = properties.get(UNIQ_KEY)
        if unique_id is None or unit.prepared_transaction_offset:
            return False
        name = f"{due_ms} {properties.get(REAL_TOPIC)} {unique_id}"
        if properties.get(TIMER_ROLL_TIMES) is not None and name in self._firsts:
            return True
        self._firsts.add(name)
        return False

    def _place(self, offset: int) -> int | None:
        """Where the message of the queue lies in the log."""
        found = self._store.entries(TIMER_TOPIC, QUEUE_ID, offset, 1)
        return found[0][0] if found else None

    def _first_from(self, place: int) -> int:
        """The first message of the queue at this place of the log or behind it."""
        low: int = self._store.min_offset(TIMER_TOPIC, QUEUE_ID)
        high: int = self._store.max_offset(TIMER_TOPIC, QUEUE_ID)
        while low < high:
            middle = (low + high) // 2
            found = self._place(middle)
            if found is not None and found < place:
                low = middle + 1
            else:
                high = middle
        return low

    # ---------------------------------------------------------------------------------------------------- delivering

    async def _run(self) -> None:
        await self.restore()
        is_paused = False  # after a failure that was logged: one line is enough until it is over
        while True:
            self._wake.clear()
            try:
                pause_s = 0.0 if self.deliver_turn() else self._pause_s()
                is_paused = False
            except StoreError as error:
                if not is_paused:
                    _log.error("event=timer_delivery_paused error=%s", error)
                is_paused, pause_s = True, FAILURE_PAUSE_SECONDS
            except Exception:  # the task must live: the message is tried again, `TRIES_MAX` times
                if not is_paused:
                    key = self.pending.first()
                    _log.exception("event=timer_delivery_failed place=%s", None if key is None else place_of(key))
                is_paused, pause_s = True, FAILURE_PAUSE_SECONDS
            self._is_asleep = pause_s > TICK_SECONDS
            await wait_at_most(self._wake, pause_s)

    def _pause_s(self) -> float:
        """Until the next is due."""
        due_ms = self.pending.next_due_ms()
        if due_ms is None:
            return IDLE_SECONDS
        return min(max((due_ms - self._clock.now_ms()) / 1000, TICK_SECONDS), LOOK_SECONDS)

    def deliver_turn(self) -> bool:
        """Deliver what is due, for one turn of the event loop; whether there is more to do at once. StoreError."""
        now_ms, self._all_done_ms = self._clock.now_ms(), None
        more = self._admit()
        more = self.pending.take(now_ms, TURN_MAX) or more
        if self._is_awaiting or self._known <= self._moved_to or self._must_fetch():
            return False
        while (key := self.pending.first()) is not None:
            if due_of(key) > now_ms or not self._try(key):  # the clock was set back since it was taken
                return False
        if not more:
            self._has_caught_up, self._all_done_ms = True, now_ms
            if self._is_new:
                self._note(now_ms)
        return more

    def _must_fetch(self) -> bool:
        """Whether some of the messages that are due have left memory: then all wait for them."""
        if self._fetch is None:
            return False
        places = [place for key in self.pending.ready if (place := place_of(key)) not in self._fetched]
        absent = [pages for place in places for pages in self._store.absent_unit(place)]
        self._fetched = set(map(place_of, self.pending.ready)) if absent else set()
        if absent:  # each is asked for once: some file systems never tell that it is there
            self._is_awaiting = True
            self._fetch(absent, self._came)
        return bool(absent)

    def _came(self, error: BaseException | None) -> None:
        if error is not None:
            _log.error("event=timer_delivery_failed error=%s", error)
            self._fetched = set()
            assert self._loop is not None
            self._loop.call_later(FAILURE_PAUSE_SECONDS, self._go_on)
        else:
            self._go_on()

    def _go_on(self) -> None:
        self._is_awaiting = False
        self._wake.set()

    def _try(self, key: int) -> bool:
        """`_deliver`, but a message that fails again and again is given up."""
        try:
            return self._deliver(key)
        except StoreError:
            raise
        except Exception as error:
            self._failing, self._tries = key, self._tries + 1 if key == self._failing else 1
            if self._tries < TRIES_MAX:
                raise
            if (unit := self._unit(place_of(key))) is not None:
                self._drop(unit, f"its delivery failed {TRIES_MAX} times: {error!r}")
            self._done(unit)
            return True

    def _deliver(self, key: int) -> bool:
        """False if the first of those that are due has to wait."""
        due, unit = due_of(key), self._unit(place_of(key))
        if due > self._due_ms:
            if self._has_caught_up:
                self._note(due - 1)
            self._due_ms, self._recalled = due, set()
        if unit is not None:
            properties = decode_properties(unit.properties)
            if is_recall(key):
                self._recalled.add(properties.get(TIMER_DEL_UNIQKEY, ""))
            elif not (self._recalled and self._is_recalled(properties)) and not self._put(unit, properties):
                return False
        self._done(unit)
        return True

    def _done(self, unit: Unit | None) -> None:
        self._is_new = True
        self.counts.leave(self.pending.ready[0], unit)
        self.pending.done()

    def _is_recalled(self, properties: dict[str, str]) -> bool:
        unique_id = properties.get(UNIQ_KEY, "")
        return bool({unique_id, recall_key(properties.get(REAL_TOPIC, ""), unique_id)} & self._recalled)

    def _put(self, unit: Unit, properties: dict[str, str]) -> bool:
        """Put a message to its topic, or give it up; False if it has to wait."""
        record = delivered_copy(unit, properties, self._clock.now_ms())
        if record is None:
            self._drop(unit, "it names no topic and queue to go to")
            return True
        try:
            result = self._store.put(record, True)
        except RoomAwaited as awaited:
            self._is_awaiting = True
            self._store.when_room(awaited, partial(self._room_came, unit))
            return False
        except MessageIllegal as error:
            self._drop(unit, str(error))
            return True
        if result.status is PutStatus.PUT_OK:
            self._delivered(record.topic, result.size)
            self.on_delivery(record.topic)
            return True
        if result.status not in MAY_PASS:
            self._drop(unit, result.status.name)
            return True
        self._log_wait(unit, result.status)
        return False

    def _room_came(self, unit: Unit, refused: PutResult | None) -> None:
        if refused is not None:
            self._log_wait(unit, refused.status)
        self._go_on()

    def _log_wait(self, unit: Unit, status: PutStatus) -> None:
        """Log once per message that it waits."""
        if self._waits_for != unit.physical_offset:
            self._waits_for = unit.physical_offset
            text = "event=timer_delivery_waits place=%d reason=%s"
            self._lines.log(_log, text, unit.physical_offset, status.name, level=logging.WARNING, lines=DROPPED_LINES)

    def _unit(self, place: int) -> Unit | None:
        stored = self._store.unit_at(place)
        try:
            if stored is not None:
                return decode_unit(stored)
            reason = "the log has no message there"
        except UnitError as error:
            reason = str(error)
        text = "event=timer_message_unreadable place=%d error=%.300s"
        self._lines.log(_log, text, place, reason, level=logging.ERROR, lines=DROPPED_LINES)
        return None

    def _drop(self, unit: Unit, reason: str) -> None:
        """Log what is not delivered, and its id: with it the message can be read until the log expires."""
        properties = EncodedProperties(unit.properties.encode())
        text = "event=timer_message_dropped topic=%.300s id=%.300s stored_id=%s reason=%.300s"
        topic, unique_id = properties.get(REAL_TOPIC) or "", properties.get(UNIQ_KEY) or ""
        stored_id = offset_message_id(unit.store_host, unit.physical_offset)
        self._lines.log(_log, text, topic, unique_id, stored_id, reason, level=logging.ERROR, lines=DROPPED_LINES)

    # ------------------------------------------------------------------------------------------------------- progress

    def _note(self, done_due_ms: int) -> None:
        """All are done that are known and due then, but for those that are late."""
        pending = self.pending
        self._is_new = False
        self._boundary = TimerProgress(
            known=self._known,
            done_due_ms=done_due_ms,
            late=tuple(map(place_of, pending.late)),
            moved=pending.moved,
            log_end=self._store.commit_log_max_offset,
            lowest=-1 if pending.lowest is None else pending.lowest,
        )

    def _text(self) -> str:
        if self._boundary is not (self._noted[-1] if self._noted else self._safe):
            self._noted.append(self._boundary)
        while self._noted and self._noted[0].log_end <= self._store.lasting_offset:
            self._safe = self._noted.popleft()
        return dumps_pretty(plain(self._safe))

    # --------------------------------------------------------------------------------------------------------- moving

    async def _move(self) -> None:
        while True:
            await self._must_move.wait()
            self._must_move.clear()
            await self._restored.wait()
            try:
                moved = await self.move_below(self._move_end)
            except StoreError as error:
                _log.error("event=timers_not_moved error=%s", error)
                await asyncio.sleep(FAILURE_PAUSE_SECONDS)
            else:
                if moved:
                    _log.info("event=timers_moved below=%d count=%d", self._move_end, moved)
            self._move_end = 0

    async def move_below(self, end: int) -> int:
        """Put what waits in the log below `end` to its end again, in the order of places; returns how many."""
        moved = 0
        async for batch in self._waiting(0, end):
            for key in batch:
                moved += await self._move_one(key)
        return moved

    async def _waiting(self, begin: int, end: int) -> AsyncIterator[list[int]]:
        """What waits now in this part of the log, in the order of places, in batches that are in memory. StoreError."""
        keys = [key async for chunk in self.pending.chunks() for key in chunk if begin <= place_of(key) < end]
        keys.sort(key=place_of)
        for at in range(0, len(keys), TURN_MAX):
            batch = keys[at : at + TURN_MAX]
            await self._in_memory(batch)
            yield batch
            await asyncio.sleep(0)

    async def _in_memory(self, keys: Iterable[int]) -> None:
        """Return when these messages are in memory. StoreError if the disk fails."""
        if self._fetch is None:
            return
        if absent := [pages for key in keys for pages in self._store.absent_unit(place_of(key))]:
            came: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
            self._fetch(absent, came.set_result)
            if (error := await came) is not None:
                raise StoreError(f"timer messages cannot be read: {error}") from error

    async def _move_one(self, key: int) -> bool:
        while (
            result := await act_with_room(self._store.when_room, partial(self._put_again, key), _itself)
        ) is not None:
            if result.status is PutStatus.PUT_OK:
                return True
            await asyncio.sleep(FAILURE_PAUSE_SECONDS)
        return False

    def _put_again(self, key: int) -> PutResult | None:
        """None if the message does not wait any more, or cannot be read: it keeps no file then."""
        if not self.pending.waits(key):
            return None
        unit = self._unit(place_of(key))
        if unit is None:
            self.pending.move(key)
            self._is_new = True
            return None
        result = self._store.put(moved_copy(unit), True)
        if result.status is PutStatus.PUT_OK:
            self.counts.leave(key, unit)
            self.pending.move(key)
            self._is_new, self._moved_to = True, result.physical_offset
        return result


def _itself(result: PutResult) -> PutResult | None:
    return result
