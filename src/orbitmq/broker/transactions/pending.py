"""For tools: lists pending transactions, and resumes the checks of an abandoned one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import NoReturn

from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.transactions.checking import Checking
from orbitmq.broker.transactions.half import QUEUE_ID, Half, copy_record, read_half, resumed_copy
from orbitmq.broker.transactions.ledger import Ledger, State
from orbitmq.broker.transactions.verdict import due_ms
from orbitmq.errors import OrbitMQError, RequestRejected
from orbitmq.message.ids import decode_offset_message_id, offset_message_id
from orbitmq.message.properties import KEYS
from orbitmq.message.topics import HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC
from orbitmq.net.routing import Router
from orbitmq.runtime.clock import Clock
from orbitmq.store.engine import MessageStore
from orbitmq.store.records import PutResult, PutStatus
from orbitmq.wire.bodies_transaction import PendingTransaction, PendingTransactions
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_transaction import PendingTransactionsHeader, ResumeCheckHalfMessageHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode

PAGE_MAX = 1000  # transactions in one response, some 400 kB
SCAN_MAX = 100_000  # half messages examined for one response; the next request continues there
STEP_MESSAGES = 128  # examined in one turn of the event loop


class Pending:
    """Handlers over the half queue."""

    def __init__(
        self, store: MessageStore, writing: MessageWriter, ledger: Ledger, checking: Checking, clock: Clock
    ) -> None:
        self._store = store
        self._writing = writing
        self._ledger = ledger
        self._checking = checking
        self._clock = clock

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.GET_PENDING_TRANSACTIONS, self.pending)
        router.add(RequestCode.RESUME_CHECK_HALF_MESSAGE, self.resume)

    async def pending(self, _connection: object, command: Command) -> Command:
        header = command.header(PendingTransactionsHeader)
        limit = min(max(header.limit, 1), PAGE_MAX)
        found: list[PendingTransaction] = []
        offset = first = max(header.offset, self._ledger.position, self._store.min_offset(HALF_TOPIC, QUEUE_ID))
        while entries := self._store.entries(HALF_TOPIC, QUEUE_ID, offset, STEP_MESSAGES):
            for half in self._open(offset, [place for place, _, _ in entries]):
                if header.topic in (None, half.topic) and header.producer_group in (None, half.group):
                    found.append(self._shown(half))
                    if len(found) == limit:
                        return _page(command, found, half.offset + 1)
            offset += len(entries)
            if offset - first >= SCAN_MAX:
                return _page(command, found, offset)
            await asyncio.sleep(0)
        return _page(command, found, -1)

    def _open(self, offset: int, places: list[int]) -> Iterator[Half]:
        """The pending ones among the half messages from `offset` on."""
        for number, place in enumerate(places, offset):
            half = read_half(self._store.unit_at(place), with_body=False)
            if half is not None and self._ledger.state(number, half.identity) == (State.OPEN, number):
                yield half

    def _shown(self, half: Half) -> PendingTransaction:
        now_ms, unit = self._clock.now_ms(), half.unit
        next_ms, interval_ms = self._checking.next_round_ms, self._checking.interval_ms
        late_ms = due_ms(half, self._checking.limits) - next_ms
        rounds = max(0, -(-late_ms // interval_ms))
        return PendingTransaction(
            topic=half.topic,
            queue_id=half.queue_id,
            keys=half.properties.get(KEYS),
            unique_id=half.unique_id,
            offset_message_id=offset_message_id(unit.store_host, unit.physical_offset),
            producer_group=half.group,
            queue_offset=half.offset,
            born_timestamp=unit.born_timestamp,
            age_ms=now_ms - unit.born_timestamp,
            checks=half.checks,
            next_check=next_ms + rounds * interval_ms,
        )

    async def resume(self, _connection: object, command: Command) -> Command:
        """Copy an abandoned or pending message to the end of the queue, with no checks counted."""
        return await self._writing.with_room(partial(self._resume, command), _refuse)

    def _resume(self, command: Command) -> Command:
        half = self._found(command.header(ResumeCheckHalfMessageHeader).msg_id)
        if half is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"there is no undecided message of that id in {HALF_TOPIC}"
            )
        result = self._store.put(copy_record(resumed_copy(half)), True)
        if result.status is not PutStatus.PUT_OK:
            _refuse(result)
        self._ledger.copied(result.queue_offset, half.identity)
        return command.response(ResponseCode.SUCCESS)

    def _found(self, message_id: str) -> Half | None:
        """The message of this offset id, if it may be resumed."""
        try:
            stored = self._store.unit_at(decode_offset_message_id(message_id).physical_offset)
        except OrbitMQError as error:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error
        given_up = read_half(stored, TRANSACTION_CHECK_MAX_TOPIC)
        if given_up is not None:
            return None if self._ledger.is_decided(given_up.identity) else given_up
        half = read_half(stored)
        if half is None or self._ledger.state(half.offset, half.identity) != (State.OPEN, half.offset):
            return None
        # Without an identity the copy could not take the place of its original.
        return half if half.offset >= self._ledger.position and half.identity is not None else None


def _refuse(result: PutResult) -> NoReturn:
    raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"the message is not stored: {result.status.name}")


def _page(command: Command, found: list[PendingTransaction], next_offset: int) -> Command:
    answer = command.response(ResponseCode.SUCCESS, body=encode(PendingTransactions(found, next_offset)))
    answer.ext = {}
    return answer
