"""Checks pending transactions in rounds, and asks their producers.

Maintains the ledger: rebuilt from half and op queue at a start, saved as the offsets of a consumer group, as in
RocketMQ. Work is done in short steps, each too short to delay the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Iterator
from functools import partial

from orbitmq.broker.clients import Producers
from orbitmq.broker.message_writer import act_with_room
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.topics import Topics
from orbitmq.broker.transactions.half import (
    QUEUE_ID,
    Half,
    became,
    check_unit,
    checked_copy,
    copy_record,
    decided_offsets,
    discard_record,
    immune_copy,
    op_record,
    read_half,
)
from orbitmq.broker.transactions.ledger import Ledger, State
from orbitmq.broker.transactions.verdict import HOUR_MS, Limits, Verdict, judge
from orbitmq.errors import OrbitMQError, UnitError
from orbitmq.message.ids import offset_message_id
from orbitmq.message.properties import PROPERTIES_SIZE_MAX
from orbitmq.message.topics import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC, TRANSACTION_GROUP
from orbitmq.message.unit import BLANK, BLANK_MAGIC, decode_unit
from orbitmq.net.connection import Connection
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.refusals import Refusals
from orbitmq.store.engine import MessageStore
from orbitmq.store.records import PutRecord, PutResult, PutStatus
from orbitmq.wire.command import request
from orbitmq.wire.headers_transaction import CheckTransactionStateHeader
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

STEP_MESSAGES = 64  # per turn of the event loop; each may be read, copied and sent, some 60 µs
STEP_BYTES = 2 << 20  # limit per turn: copying large bodies takes time
STEP_PAUSE_SECONDS = 0.002  # between the steps of a round, so that sends are processed
TICK_SECONDS = 1.0  # how often progress is noted
SKIPPED, WITHOUT_PRODUCER = "skipped", "without_producer"  # counted in a round in addition to the verdicts
WORRYING = {SKIPPED, Verdict.DISCARD.name.lower()}
NOTED_MAX = 64  # progress that waits for its flush; with more, only the newest is of interest


class Checking:
    """`ledger` is shared with the handler of END_TRANSACTION."""

    def __init__(
        self,
        store: MessageStore,
        ledger: Ledger,
        topics: Topics,
        offsets: ConsumerOffsets,
        producers: Producers,
        options: BrokerOptions,
        clock: Clock,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._topics = topics
        self._offsets = offsets
        self._producers = producers
        self._clock = clock
        self._options = options
        self.next_round_ms = 0
        self.store_host = b""  # known when the port is
        self._task: asyncio.Task[None] | None = None
        self._turns: dict[str, deque[Connection]] = {}  # of one round: producer group -> its live producers in turn
        self._counts: Counter[str] = Counter()  # of one round
        self._noted: deque[tuple[int, int, int]] = deque()  # end of the log -> progress that is safe when it is flushed
        self._committed = (0, 0)
        self._lines = Refusals()

    @property
    def limits(self) -> Limits:
        """As the options are now."""
        return Limits(
            self._options.transaction_timeout_ms,
            self._options.transaction_check_max,
            self._store.options.file_reserved_time_hours * HOUR_MS,
        )

    @property
    def interval_ms(self) -> int:
        """From one round to the next."""
        return self._options.transaction_check_interval_ms

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            begun, begun_ms = loop.time(), self._clock.now_ms()
            self.next_round_ms = begun_ms + self.interval_ms
            try:
                while (left := begun + self.interval_ms / 1000 - loop.time()) > 0:
                    self.next_round_ms = begun_ms + self.interval_ms
                    await asyncio.sleep(min(left, TICK_SECONDS))
                    await self._keep_progress()
                await self.round()
            except Exception:  # the next round must still come
                _log.exception("event=transaction_round_failed")

    # ------------------------------------------------------------------------------------------------------- a round

    async def round(self) -> None:
        """Check all pending transactions that are old enough. An error ends this round, not the checks."""
        started_ms = self._clock.now_ms()
        try:
            more = True
            while more:
                more = await act_with_room(self._store.when_room, partial(self._step, started_ms), self._refused)
                await asyncio.sleep(STEP_PAUSE_SECONDS)
        except OrbitMQError as error:
            _log.error("event=transaction_checks_paused error=%s", error)
        finally:
            self._turns.clear()
        if self._counts:
            counts = " ".join(f"{name}={count}" for name, count in sorted(self._counts.items()))
            level = logging.WARNING if self._counts.keys() & WORRYING else logging.INFO
            _log.log(level, "event=transactions_checked %s", counts)
            self._counts.clear()

    def _step(self, started_ms: int) -> bool:
        """Check some messages; False when the round is over. RoomAwaited as the store raises it: call again later."""
        ledger, store, limits = self._ledger, self._store, self.limits
        if ledger.position < (low := store.min_offset(HALF_TOPIC, QUEUE_ID)):
            ledger.pass_over(low - 1)  # their files have expired
        first = ledger.position
        entries = store.entries(HALF_TOPIC, QUEUE_ID, first, STEP_MESSAGES)
        size_looked_at = 0
        for offset, (place, size, _) in enumerate(entries, first):
            if offset < ledger.position:
                continue  # decided
            if not self._check(offset, place, limits, started_ms):
                return False
            size_looked_at += size
            if size_looked_at >= STEP_BYTES:
                return True
        return bool(entries)

    def _check(self, offset: int, place: int, limits: Limits, started_ms: int) -> bool:
        """Deal with the first open message; False when it ends the round."""
        half = read_half(self._store.unit_at(place))
        if half is None:
            _log.debug("event=half_message_skipped offset=%d", place)
            self._counts[SKIPPED] += 1
        is_open = half is not None and self._ledger.state(offset, half.identity) == (State.OPEN, offset)
        if half is not None and is_open and not self._handle(half, limits, started_ms):
            return False
        self._ledger.pass_over(offset)
        return True

    def _handle(self, half: Half, limits: Limits, started_ms: int) -> bool:
        """Process a pending message by its age and number of checks; False if it ends the round."""
        verdict = judge(half, limits, started_ms, self._clock.now_ms())
        if verdict is Verdict.WAIT:
            return False
        copy = immune_copy(half) if verdict is Verdict.SPARE else checked_copy(half)
        record = copy_record(copy)
        if (
            len(record.properties) > PROPERTIES_SIZE_MAX
        ):  # RocketMQ ends its round here, so later messages would never be checked
            text = "event=transaction_given_up topic=%.300s id=%.300s reason=no_room_for_its_checks"
            self._lines.log(_log, text, half.topic, half.unique_id)
            verdict = Verdict.DISCARD
        if verdict is Verdict.DISCARD:
            self._topics.create_for_system(TRANSACTION_CHECK_MAX_TOPIC, 1)
            if self._put(discard_record(half)) is None:
                return False
            self._ledger.give_up(half.identity)
            _log.debug(
                "event=transaction_given_up topic=%s group=%s id=%s checks=%d",
                half.topic, half.group, half.unique_id, half.checks,
            )  # fmt: skip
        else:
            result = self._put(record)
            if result is None:
                return False
            self._ledger.copied(result.queue_offset, half.identity)
            if verdict is Verdict.CHECK:
                self._request_check(copy, result)
        self._counts[verdict.name.lower()] += 1
        return True

    def _put(self, record: PutRecord, at_once: bool = True) -> PutResult | None:
        result = self._store.put(record, at_once)
        if result.status is PutStatus.PUT_OK:
            return result
        self._refused(result)
        return None

    def _refused(self, result: PutResult) -> bool:
        """The round is over: what it copies cannot be stored."""
        _log.error("event=transaction_checks_paused status=%s", result.status.name)
        return False

    # --------------------------------------------------------------------------------------------- check requests

    def _request_check(self, half: Half, result: PutResult) -> None:
        """Send one check request to one producer of the group. Without a producer the next round tries again."""
        connection = self._next_producer(half.group)
        if connection is None:
            self._counts[WITHOUT_PRODUCER] += 1
            return
        header = CheckTransactionStateHeader(
            result.queue_offset,
            result.physical_offset,
            half.unique_id or None,
            half.unique_id or None,
            offset_message_id(result.store_host, result.physical_offset),
        )
        body = check_unit(half, result.queue_offset, result.physical_offset)
        connection.send(request(RequestCode.CHECK_TRANSACTION_STATE, header, body, oneway=True))

    def _next_producer(self, group: str) -> Connection | None:
        """All producers of a group in turn, beginning with a different one in each round, without those that are not
        connected or do not read.
        """
        turn = self._turns.get(group)
        if turn is None:
            members = self._producers.groups.get(group)
            if not members:
                return None
            turn = self._turns[group] = deque(members)
            turn.rotate(random.randrange(len(turn)))  # noqa: S311 - spreads load, guards nothing
        for _ in range(len(turn)):
            turn.rotate(-1)
            if turn[-1].takes_more:
                return turn[-1]
        return None

    # ------------------------------------------------------------------------------------------------------ progress

    async def restore(self) -> None:
        """Rebuild the ledger from the store, before anything is served."""
        ledger = self._ledger
        ledger.begin(*self._saved_progress())
        self._committed = (ledger.position, ledger.op_position)
        oldest = self._store.entries(HALF_TOPIC, QUEUE_ID, ledger.position, 1)
        for batch in self._batches(OP_HALF_TOPIC, ledger.op_position) if oldest else ():
            for _, place in batch:
                # Op messages below the oldest half message refer to expired ones, or to an earlier queue with these
                # offsets.
                for offset in self._decisions(place) if place > oldest[0][0] else ():
                    ledger.restore_decision(offset)
            await asyncio.sleep(0)
        delivered: Half | None = None  # the newest copy of a message that has no op message yet
        for batch in self._batches(HALF_TOPIC, ledger.position):
            for offset, place in batch:
                half = read_half(self._store.unit_at(place), with_body=False)
                if half is None:
                    continue
                if half.is_copy:
                    ledger.restore_copy(offset, half.identity, half.origin)
                if self._is_delivered(half):
                    delivered = half
            await asyncio.sleep(0)
        if delivered is not None and ledger.state(delivered.offset, delivered.identity)[0] is State.OPEN:
            self._complete(delivered)
        ledger.advance()

    def _complete(self, half: Half) -> None:
        """Store the op message that a crash has prevented."""
        if self._put(op_record(half.offset, self._clock.now_ms(), self.store_host), at_once=False) is not None:
            self._ledger.restore_end(half.offset, half.identity)

    def _is_delivered(self, half: Half) -> bool:
        """Whether the log ends with the committed message: the broker was killed between it and the op message."""
        last = self._store.max_offset(half.topic, half.queue_id) - 1
        for place, size, _ in self._store.entries(half.topic, half.queue_id, last, 1) if last >= 0 else ():
            if self._is_end(place + size):
                return became(half, self._store.unit_at(place))
        return False

    def _is_end(self, place: int) -> bool:
        """Whether the log ends there, but for what fills up a file."""
        rest = self._store.unit_at(place)
        if rest is not None and BLANK.unpack_from(rest)[1] == BLANK_MAGIC:
            place += len(rest)
        return place == self._store.commit_log_max_offset

    def _saved_progress(self) -> tuple[int, int]:
        """The offsets of both queues, limited to their range. Progress beyond a queue's end is that of another queue,
        or of one that a crash has shortened: then both are read from their beginning.
        """
        topics = (HALF_TOPIC, OP_HALF_TOPIC)
        half_low, op_low = (self._store.min_offset(topic, QUEUE_ID) for topic in topics)
        half_end, op_end = (self._store.max_offset(topic, QUEUE_ID) for topic in topics)
        half, op = (self._offsets.query(TRANSACTION_GROUP, topic, QUEUE_ID) or 0 for topic in topics)
        if half > half_end or op > op_end:
            return half_low, op_low
        return max(half, half_low), max(op, op_low)

    def _batches(self, topic: str, offset: int) -> Iterator[list[tuple[int, int]]]:
        """Queue offset and place of everything from `offset` on, as much at a time as fits into one turn."""
        while entries := self._store.entries(topic, QUEUE_ID, offset, STEP_MESSAGES):
            yield [(number, place) for number, (place, _, _) in enumerate(entries, offset)]
            offset += len(entries)

    def _decisions(self, place: int) -> list[int]:
        """The half messages that an op message ends; none if it cannot be read."""
        stored = self._store.unit_at(place)
        try:
            return decided_offsets(decode_unit(stored).body) if stored is not None else []
        except UnitError:
            return []

    async def _keep_progress(self) -> None:
        """Go over op messages that have done their work, and note how far both queues are."""
        more = True
        while more:
            more = self._pass_ops()
            await asyncio.sleep(0)
        self.note_progress()

    def _pass_ops(self) -> bool:
        """One step; False if the next op message is still needed, or there is none."""
        ledger = self._ledger
        low, high = self._store.min_offset(OP_HALF_TOPIC, QUEUE_ID), self._store.max_offset(OP_HALF_TOPIC, QUEUE_ID)
        ledger.op_position = max(ledger.op_position, low) if ledger.op_position <= high else low
        if ledger.pass_ops():
            return False
        entries = self._store.entries(OP_HALF_TOPIC, QUEUE_ID, ledger.op_position, STEP_MESSAGES)
        for place, _, _ in entries:
            if max(self._decisions(place), default=-1) >= ledger.position:
                return False
            ledger.op_position += 1
        return bool(entries)

    def note_progress(self) -> None:
        """Save durable progress. After a crash some producers may be asked again; no transaction is lost."""
        progress = (self._ledger.position, self._ledger.op_position)
        if len(self._noted) >= NOTED_MAX:
            self._noted.pop()
        if progress != (self._noted[-1][1:] if self._noted else self._committed):
            self._noted.append((self._store.commit_log_max_offset, *progress))
        while self._noted and self._noted[0][0] <= self._store.lasting_offset:
            self._committed = position, op_position = self._noted.popleft()[1:]
            self._offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, QUEUE_ID, position)
            self._offsets.commit(TRANSACTION_GROUP, OP_HALF_TOPIC, QUEUE_ID, op_position)
