"""ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.pop.in_flight import Checkpoint, Key
from orbitmq.broker.pop.journal import Journal
from orbitmq.broker.pop.ordering import NOT_ITS_TIME, UNKNOWN, Orders
from orbitmq.broker.pop.pop_handler import PopHandler
from orbitmq.broker.send_handler import OUTCOMES
from orbitmq.broker.topics import Topics
from orbitmq.errors import MessageIllegal, RequestRejected
from orbitmq.message.pop import ORDERLY_REVIVE_QUEUE, Receipt
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.runtime.clock import Clock
from orbitmq.store.engine import MessageStore
from orbitmq.store.records import PutResult, PutStatus
from orbitmq.wire.bodies_pop import read_batch
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_pop import AckMessageHeader, ChangeInvisibleTimeHeader
from orbitmq.wire.requests import RequestCode

_NO_FIELDS: Final = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}


class AckHandler:
    """The handlers."""

    def __init__(
        self,
        journal: Journal,
        orders: Orders,
        popping: PopHandler,
        store: MessageStore,
        writing: MessageWriter,
        topics: Topics,
        offsets: ConsumerOffsets,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._orders = orders
        self._popping = popping
        self._store = store
        self._writing = writing
        self._topics = topics
        self._offsets = offsets
        self._clock = clock

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.ACK_MESSAGE, self.acknowledge)
        router.add(RequestCode.BATCH_ACK_MESSAGE, self.acknowledge_batch)
        router.add(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, self.change_invisible_time)

    async def acknowledge(self, _connection: Connection, command: Command) -> Command:
        """A message needs no redelivery. One that is not in flight any more stays as it is."""
        header = command.header(AckMessageHeader)
        receipt = self._checked(header, past_the_end=True)
        await self._journal.restored()
        if receipt.revive_queue == ORDERLY_REVIVE_QUEUE:
            key = (header.topic, header.consumer_group, header.queue_id)
            self._acknowledge_in_order(key, header.offset, receipt.pop_ms)
            return command.response(ResponseCode.SUCCESS)
        named = Key(header.topic, header.consumer_group, header.queue_id, receipt.start, receipt.pop_ms)
        acknowledge = partial(self._journal.acknowledge, named, [header.offset])
        return command.response(*await self._outcome(await self._writing.with_room(acknowledge, _itself)))

    async def acknowledge_batch(self, _connection: Connection, command: Command) -> Command:
        """The same of many messages. BodyError."""
        wanted = [(one, one.offsets()) for one in read_batch(command.body)]
        await self._journal.restored()
        last: PutResult | None = None
        for one, offsets in wanted:
            if one.rq == ORDERLY_REVIVE_QUEUE:
                for offset in offsets:
                    with suppress(RequestRejected):  # of one message; others count all the same
                        self._acknowledge_in_order((one.topic, one.c, one.q), offset, one.pt)
                continue
            key = Key(one.topic, one.c, one.q, one.so, one.pt)
            acknowledge = partial(self._journal.acknowledge, key, offsets)
            last = await self._writing.with_room(acknowledge, _itself) or last
        return command.response(*await self._outcome(last))

    async def change_invisible_time(self, _connection: Connection, command: Command) -> Command:
        """A message is to be redelivered at another time than was said when it was delivered."""
        header = command.header(ChangeInvisibleTimeHeader)
        try:
            receipt = self._checked(header, past_the_end=False)
        except RequestRejected as error:
            answer = command.response(error.code, error.remark)
            answer.ext = dict(_NO_FIELDS)
            return answer
        await self._journal.restored()
        if receipt.revive_queue == ORDERLY_REVIVE_QUEUE:
            return self._change_in_order(command, header, receipt)
        old = Key(header.topic, header.consumer_group, header.queue_id, receipt.start, receipt.pop_ms)
        key = self._journal.in_flight.free(old._replace(start=header.offset, pop_ms=self._clock.now_ms()))
        checkpoint = Checkpoint(key, header.invisible_time, (header.offset,))
        put = await self._writing.with_room(partial(self._change, checkpoint, old), _itself)
        answer = command.response(*await self._outcome(put))
        answer.ext = {
            "popTime": str(key.pop_ms),
            "invisibleTime": str(header.invisible_time),
            "reviveQid": str(receipt.revive_queue),
        }
        return answer

    def _change(self, checkpoint: Checkpoint, old: Key) -> PutResult | None:
        known = self._journal.in_flight.find(old)
        if known is None or known.due_ms <= self._clock.now_ms() or checkpoint.key.start not in known.left():
            return None  # it is redelivered already, or need not be
        if self._journal.in_flight.is_full(old.group) and len(known.left()) > 1:
            raise RequestRejected(ResponseCode.SYSTEM_BUSY, f"{old.group} has too many messages in flight")
        return self._journal.add(checkpoint, leaves=old)

    def _checked(self, header: AckMessageHeader | ChangeInvisibleTimeHeader, *, past_the_end: bool) -> Receipt:
        """RequestRejected for what cannot have been delivered."""
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic {header.topic} does not exist")
        if not 0 <= header.queue_id < topic.read_queues:
            remark = f"queue {header.queue_id} of {header.topic}: it has {topic.read_queues}"
            raise RequestRejected(ResponseCode.MESSAGE_ILLEGAL, remark)
        low = self._store.min_offset(header.topic, header.queue_id)
        high = self._store.max_offset(header.topic, header.queue_id)
        if not low <= header.offset < high + past_the_end:
            remark = f"offset {header.offset} of queue {header.queue_id} of {header.topic}: it has {low} to {high}"
            raise RequestRejected(ResponseCode.NO_MESSAGE, remark)
        try:
            return Receipt.decode(header.extra_info)
        except MessageIllegal as error:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error

    async def _outcome(self, put: PutResult | None) -> tuple[int, str | None]:
        """The response to a record that was put, once it is as safe as the store is configured to make it. A disk or a
        slave that is late is an operator's concern, as with RocketMQ. None: there was nothing to put.
        """
        if put is None or put.status is PutStatus.PUT_OK:
            if put is not None and self._writing.can_wait:
                await self._writing.durable(put)
            return OUTCOMES[PutStatus.PUT_OK]
        return OUTCOMES[put.status]

    # --------------------------------------------------------------------------------------------------- in order

    def _acknowledge_in_order(self, key: tuple[str, str, int], offset: int, pop_ms: int) -> None:
        """RequestRejected for a message that was not delivered."""
        topic, group, queue_id = key
        committed = self._offsets.query(group, topic, queue_id) or 0
        if offset < committed:
            return
        following = self._orders.acknowledge(key, offset, pop_ms, committed)
        if following == UNKNOWN:
            remark = f"offset {offset} of queue {queue_id} of {topic} was not delivered to {group}"
            raise RequestRejected(ResponseCode.MESSAGE_ILLEGAL, remark)
        if following == NOT_ITS_TIME:
            return
        self._offsets.commit(group, topic, queue_id, following, only_forward=True)
        self._popping.wake_in_order(key)

    def _change_in_order(self, command: Command, header: ChangeInvisibleTimeHeader, receipt: Receipt) -> Command:
        answer = command.response(ResponseCode.SUCCESS)
        key = (header.topic, header.consumer_group, header.queue_id)
        now_ms = self._clock.now_ms()
        visible_ms = now_ms + header.invisible_time
        committed = self._offsets.query(header.consumer_group, header.topic, header.queue_id) or 0
        if header.offset < committed or not self._orders.change(key, header.offset, receipt.pop_ms, visible_ms):
            answer.ext = dict(_NO_FIELDS)
            return answer
        self._popping.wake_in_order(key)
        answer.ext = {
            "popTime": str(receipt.pop_ms),
            "invisibleTime": str(visible_ms - receipt.pop_ms),
            "reviveQid": str(ORDERLY_REVIVE_QUEUE),
        }
        return answer


def _itself(result: PutResult) -> PutResult | None:
    return result
