"""The two steps of a producer: storing a half message, and END_TRANSACTION, which delivers or drops it.

Avoids errors of RocketMQ 4.9: a decision takes effect once however often it is sent, the first one is final, and one
that names an older copy of a message applies to the newest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable
from typing import TypeAlias

from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.send_handler import outcome_of
from orbitmq.broker.transactions.half import COPY_GROWTH, QUEUE_ID, Half, committed, make_half, op_record, read_half
from orbitmq.broker.transactions.ledger import WINDOW_MAX, Ledger, State
from orbitmq.errors import RequestRejected
from orbitmq.message.flags import TRANSACTION_COMMIT, TRANSACTION_NOT, TRANSACTION_ROLLBACK
from orbitmq.message.properties import UNIQ_KEY, EncodedProperties
from orbitmq.message.topics import HALF_TOPIC, OP_HALF_TOPIC
from orbitmq.net.routing import Answer, Router
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.shielded import ShieldedTasks
from orbitmq.store.engine import MessageStore
from orbitmq.store.queue_room import RoomAwaited
from orbitmq.store.records import PutRecord, PutResult, PutStatus
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_transaction import EndTransactionHeader
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

# Remarks that producers and tools of RocketMQ know.
NOT_FOUND = "Find prepared transaction message failed"
WRONG_GROUP = "The producer group wrong"
WRONG_QUEUE_OFFSET = "The transaction state table offset wrong"
WRONG_LOG_OFFSET = "The commit log offset wrong"

_Done: TypeAlias = "asyncio.Future[None]"


class Deciding:
    """The handler of END_TRANSACTION, and the put of half messages."""

    def __init__(
        self, store: MessageStore, writing: MessageWriter, ledger: Ledger, options: BrokerOptions, clock: Clock
    ) -> None:
        self._store = store
        self._writing = writing
        self._ledger = ledger
        self._options = options
        self._clock = clock
        self._shielded = ShieldedTasks()
        self._under_way: dict[int, _Done] = {}  # place of a half message -> its last decision that is made later
        self.store_host = b""  # known when the port is
        self.on_end: Callable[[str, bool, int], object] | None = None
        """Called for each decision, if set: topic, whether it was committed, milliseconds since the half message."""

    def add_to(self, router: Router) -> None:
        self._shielded = router.shielded
        router.add(RequestCode.END_TRANSACTION, self.end)

    def prepare(self, record: PutRecord, text: str, at_once: bool = False) -> PutResult:
        """Store a half message; `text` is its properties. RequestRejected, and what `MessageWriter.put` raises."""
        if self._options.reject_transaction_message:
            remark = f"the broker[{self._options.broker_ip1}] sending transaction message is forbidden"
            raise RequestRejected(ResponseCode.NO_PERMISSION, remark)
        if self._store.max_offset(HALF_TOPIC, QUEUE_ID) - self._ledger.position >= WINDOW_MAX:
            remark = f"{WINDOW_MAX} transactions arrived while an older one is pending; it is checked in the next round"
            raise RequestRejected(ResponseCode.SYSTEM_BUSY, remark)
        topic = record.topic
        make_half(record, text)
        refusal = self._store.refused_later(record, topic, COPY_GROWTH)
        if refusal is not None:
            return refusal
        result = self._writing.put_here(record, at_once)
        if result.status is PutStatus.PUT_OK and result.queue_offset < self._ledger.position:
            # The queue was removed, as queues are of which no message is left, and begins anew.
            self._ledger.begin(result.queue_offset, self._store.max_offset(OP_HALF_TOPIC, QUEUE_ID))
        if result.status is PutStatus.PUT_OK:
            result.transaction_id = EncodedProperties(record.properties).get(UNIQ_KEY) or ""
        return result

    def end(self, _connection: object, command: Command) -> Answer | Awaitable[Answer]:
        header = command.header(EndTransactionHeader)
        if header.commit_or_rollback == TRANSACTION_NOT:
            _log.debug("event=transaction_unknown group=%s id=%s", header.producer_group, header.msg_id)
            return None  # a decision "unknown", sent oneway
        if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "commitOrRollback field wrong")
        place = header.commit_log_offset
        earlier = self._under_way.get(place)
        if earlier is None and not self._is_hidden(place):
            try:
                return self._decide(command, header)
            except RoomAwaited:
                pass
        self._under_way[place] = done = asyncio.get_running_loop().create_future()
        return self._shielded.run(self._decide_later(command, header, earlier, done))

    def _is_hidden(self, place: int) -> bool:
        """Of a half message whose sender did not wait until it can be read, and may not wait now."""
        return self._store.readable_offset <= place < self._store.commit_log_max_offset

    async def _decide_later(
        self, command: Command, header: EndTransactionHeader, earlier: _Done | None, done: _Done
    ) -> Answer:
        """Wait for the half message to be readable and for room for the op message; decisions keep their order."""
        place = header.commit_log_offset
        try:
            if earlier is not None:
                await asyncio.wait((earlier,))
            if self._is_hidden(place):
                await self._writing.flushed()
            decide, refused = partial(self._decide, command, header), partial(self._refusal, command)
            answer = await self._writing.with_room(decide, refused)
        finally:
            done.set_result(None)
            if self._under_way.get(place) is done:
                del self._under_way[place]
        return await answer if isawaitable(answer) else answer

    def _decide(self, command: Command, header: EndTransactionHeader) -> Answer | Awaitable[Answer]:
        """RoomAwaited when the message, or the op message that must follow it at once, has no room yet."""
        half = self._named(header)
        state, offset = self._ledger.state(half.offset, half.identity)
        if state is State.DECIDED:
            return _respond(command, ResponseCode.SUCCESS)
        if state is State.OVER:
            remark = "the transaction is decided, or its producer has been asked about a newer copy of the message"
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
        ops = self._store.need_room(OP_HALF_TOPIC, QUEUE_ID)
        if header.commit_or_rollback == TRANSACTION_COMMIT:
            try:
                result = self._writing.put(committed(half), True)
            except RoomAwaited as awaited:  # all decisions wait in one line: from two, each would send it to the other
                raise awaited.behind(ops) from None
            if result.status is not PutStatus.PUT_OK:
                return self._refusal(command, result)
        return self._finish(command, header, half, offset)

    def _finish(
        self, command: Command, header: EndTransactionHeader, half: Half, offset: int
    ) -> Answer | Awaitable[Answer]:
        """Store the op message. It follows the committed message at once: a start after a crash relies on that."""
        op = self._store.put(op_record(offset, self._clock.now_ms(), self.store_host))
        if op.status is not PutStatus.PUT_OK:
            if header.commit_or_rollback == TRANSACTION_ROLLBACK:
                return self._refusal(command, op)
            _log.error("event=op_message_not_stored offset=%d status=%s", offset, op.status.name)
        else:
            self._ledger.op_stored(op.queue_offset, offset)
        self._ledger.decide(offset, half.identity)
        if self.on_end is not None:
            is_commit = header.commit_or_rollback == TRANSACTION_COMMIT
            self.on_end(half.topic, is_commit, self._clock.now_ms() - half.unit.store_timestamp)
        waits = self._writing.can_wait and half.waits_for_store and op.status is PutStatus.PUT_OK
        if waits and not command.is_oneway:
            return self._respond_when_durable(command, op)
        return _respond(command, ResponseCode.SUCCESS)

    async def _respond_when_durable(self, command: Command, op: PutResult) -> Answer:
        """A flush that takes too long is no failure: the decision is stored, as it is with RocketMQ."""
        await self._writing.durable(op)
        return _respond(command, ResponseCode.SUCCESS)

    def _named(self, header: EndTransactionHeader) -> Half:
        """The half message that a decision names, if all its fields match."""
        half = read_half(self._store.unit_at(header.commit_log_offset))
        if half is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, NOT_FOUND)
        if half.group != header.producer_group:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, WRONG_GROUP)
        if half.offset != header.tran_state_table_offset:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, WRONG_QUEUE_OFFSET)
        if half.unit.physical_offset != header.commit_log_offset:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, WRONG_LOG_OFFSET)
        return half

    def _refusal(self, command: Command, result: PutResult) -> Answer:
        return _respond(command, *outcome_of(result, self._writing.disk_use))


def _respond(command: Command, code: int, remark: str | None = None) -> Answer:
    if command.is_oneway:  # as those of producers are: nobody is told
        return None
    answer = command.response(code, remark)
    answer.ext = {}
    return answer
