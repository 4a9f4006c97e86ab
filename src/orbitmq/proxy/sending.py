"""SendMessage, EndTransaction and RecallMessage."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from orbitmq.errors import RemotingError, StatusError
from orbitmq.message.batch import encode_batch
from orbitmq.message.flags import (
    PERM_WRITE,
    TRANSACTION_COMMIT,
    TRANSACTION_NOT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from orbitmq.message.ids import decode_offset_message_id
from orbitmq.message.message_loops import decode_messages
from orbitmq.message.model import MASTER_ID, MessageExt
from orbitmq.message.properties import REAL_TOPIC, TIMER_DELIVER_MS, UNIQ_KEY, encode_properties
from orbitmq.message.timers import RecallHandle
from orbitmq.net.grpc import Call
from orbitmq.operations import sends
from orbitmq.operations.sends import SendReply
from orbitmq.operations.transactions import end_transaction_oneway
from orbitmq.proxy.backend import Backend, TopicRoute
from orbitmq.proxy.checks import Limits, check_message, check_transaction_id, checked_topic, checked_topic_of_send
from orbitmq.proxy.messages import IncomingMessage, incoming_message, queue_of_group
from orbitmq.proxy.routes import address_of, require_route
from orbitmq.proxy.sessions import Session
from orbitmq.proxy.statuses import OF_STORED, OK, status_of
from orbitmq.proxy.topic_types import check_message_type, no_topic
from orbitmq.runtime.clock import Clock
from orbitmq.wire.command import Command
from orbitmq.wire.headers import SendMessageV2Header
from orbitmq.wire.headers_transaction import EndTransactionHeader
from orbitmq.wire.v2 import messages as v2
from orbitmq.wire.v2.enums import Code, TransactionResolution, TransactionSource
from orbitmq.wire.v2.messages import status

SEND_MS: Final = 3000
TEMPLATE: Final = "TBW102"  # RocketMQ's topic that others are made from; the route says that this one exists
HALVES_MAX: Final = 100_000  # some 300 bytes each; the others are found in the broker's index
AVOIDED_MS: Final = 10_000  # after a failure, as RocketMQ 5.3 avoids a broker
UNKNOWN: Final = TRANSACTION_NOT
_DECISIONS: Final = {
    TransactionResolution.COMMIT: TRANSACTION_COMMIT,
    TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK,
}


@dataclass(frozen=True, slots=True)
class Half:
    """Where the half of a transaction is."""

    address: str
    broker_name: str
    queue_offset: int
    log_offset: int


class Sending:
    """Sends of all clients."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._limits = Limits(delay_max_ms=backend.delay_max_ms)
        self._turn = 0  # of the queue for the next message without a group
        self._avoided: dict[str, int] = {}  # brokers that did not respond, and until when others are preferred
        self._halves: OrderedDict[tuple[str, str], Half] = OrderedDict()  # by topic and transaction id

    # --------------------------------------------------------------------------------------------------------- sends

    def start(self, call: Call, session: Session, request: Any) -> bool:
        """Send the one message of a request if that needs no wait; False, and nothing is done, otherwise. StatusError
        when it must not be sent.
        """
        if len(request.messages) != 1:
            return False
        topic = checked_topic_of_send(request)
        route = self._backend.known(topic)
        if route is None:
            return False
        message = self._message(session, topic, request.messages[0])
        waiter = _Waiter(self, call, message, *self._place(message, route))
        header = self._header(message, waiter.queue_id)
        if sends.start_send(session.remoting, waiter.address, header, message.body, SEND_MS, waiter) is None:
            return False
        self._turn += 1
        return True

    async def send(self, session: Session, request: Any) -> bytes:
        topic = checked_topic_of_send(request)
        messages = [self._message(session, topic, one) for one in request.messages]
        route = await self._backend.route(topic)
        if route is None:
            raise no_topic(topic, messages[0].properties)
        broker_name, address, queue_id = self._place(messages[0], route)
        self._turn += 1
        if len(messages) == 1:
            header, body = self._header(messages[0], queue_id), messages[0].body
        else:
            header, body = self._header(messages[0], queue_id), encode_batch(map(_item, messages))
            header.batch, header.properties = True, ""
        try:
            reply = await sends.send(session.remoting, address, header, body, timeout_ms=SEND_MS)
        except RemotingError:
            self.doubt(topic, broker_name)
            raise
        return self.response(messages, reply, broker_name, address)

    def doubt(self, topic: str, broker_name: str) -> None:
        """A broker did not respond: it may have stopped, and the next sends go to others."""
        self._avoided[broker_name] = self._clock.now_ms() + AVOIDED_MS
        self._backend.doubt(topic)

    def _message(self, session: Session, topic: str, message: Any) -> IncomingMessage:
        now_ms = self._clock.now_ms()
        check_message(message, self._limits, now_ms)
        return incoming_message(message, topic, session.peer[0], now_ms)

    def _place(self, message: IncomingMessage, route: TopicRoute) -> tuple[str, str, int]:
        """Broker name, its address and the queue. StatusError for a message of another type than the topic's."""
        check_message_type(message.topic, route.message_type, message.properties)
        writable = [
            (one, broker)
            for one in route.data.queue_datas
            if one.perm & PERM_WRITE and one.write_queues
            for broker in route.data.broker_datas
            if broker.broker_name == one.broker_name and MASTER_ID in broker.addresses
        ]
        if not writable:
            raise StatusError(Code.FORBIDDEN, f"topic {message.topic[:300]} has no writable queue")
        group = message.message_group
        if self._avoided and not group:  # which has its queue on one broker
            now_ms = self._clock.now_ms()
            self._avoided = {name: until_ms for name, until_ms in self._avoided.items() if now_ms < until_ms}
            writable = [one for one in writable if one[0].broker_name not in self._avoided] or writable
        queues = sum(one.write_queues for one, _ in writable)
        number = queue_of_group(group, queues) if group else self._turn % queues
        for data, broker in writable:
            if number < data.write_queues:
                return data.broker_name, broker.addresses[MASTER_ID], number
            number -= data.write_queues
        raise AssertionError("a queue is one of all")

    def _header(self, message: IncomingMessage, queue_id: int) -> SendMessageV2Header:
        return SendMessageV2Header(
            producer_group=message.topic,
            topic=message.topic,
            default_topic=TEMPLATE,
            default_topic_queue_nums=0,
            queue_id=queue_id,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            flag=0,
            properties=encode_properties(message.properties),
            reconsume_times=0,
        )

    def response(self, messages: list[IncomingMessage], reply: SendReply, broker_name: str, address: str) -> bytes:
        """The response to a send that was stored."""
        code = OF_STORED[reply.code]
        answer = v2.SendMessageResponse(status=OK if code is Code.OK else status(code))
        # As RocketMQ has it: one entry for all messages, and the id of a message is its transaction's as well.
        entry = answer.entries.add(message_id=",".join([one.properties[UNIQ_KEY] for one in messages]))
        entry.status.CopyFrom(answer.status)
        entry.transaction_id, entry.offset = entry.message_id, reply.queue_offset
        if reply.recall_handle:
            entry.recall_handle = reply.recall_handle
        if messages[0].sys_flag & TRANSACTION_PREPARED:
            offset = decode_offset_message_id(reply.offset_msg_id).physical_offset
            half = Half(address, broker_name, reply.queue_offset, offset)
            self.keep(messages[0].topic, entry.transaction_id, half)
        return bytes(answer.SerializeToString())

    # -------------------------------------------------------------------------------------------------- transactions

    def keep(self, topic: str, transaction_id: str, half: Half) -> None:
        """Remember where a half message is; of too many the oldest is forgotten, and looked up when it is needed."""
        self._halves[topic, transaction_id] = half
        if len(self._halves) > HALVES_MAX:
            self._halves.popitem(last=False)

    async def end_transaction(self, session: Session, request: Any) -> bytes:
        topic, transaction_id = checked_topic(request.topic), request.transaction_id
        check_transaction_id(transaction_id)
        half = self._halves.pop((topic, transaction_id), None) or await self._found(topic, transaction_id)
        header = EndTransactionHeader(
            producer_group=topic,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.log_offset,
            commit_or_rollback=_DECISIONS.get(request.resolution, UNKNOWN),
            from_transaction_check=request.source == TransactionSource.SOURCE_SERVER_CHECK,
            msg_id=request.message_id or transaction_id,
            transaction_id=transaction_id,
        )
        await end_transaction_oneway(session.remoting, half.address, header)
        return bytes(v2.EndTransactionResponse(status=OK).SerializeToString())

    async def _found(self, topic: str, transaction_id: str) -> Half:
        """A half message that was sent by way of another front, or before a restart."""
        route = await require_route(self._backend, topic)
        failure: RemotingError | None = None
        for broker in route.data.broker_datas:
            if (address := broker.addresses.get(MASTER_ID)) is None:
                continue
            try:
                half = await self._half_at(address, topic, transaction_id)
            except RemotingError as error:  # it may be at another broker
                failure = error
                continue
            if half is not None:
                return Half(address, broker.broker_name, half.queue_offset, half.commit_log_offset)
        if failure is not None:
            raise failure
        raise StatusError(
            Code.INTERNAL_SERVER_ERROR, f"no pending transaction {transaction_id[:300]} of topic {topic[:300]}"
        )

    async def _half_at(self, address: str, topic: str, transaction_id: str) -> MessageExt | None:
        found = decode_messages(await self._backend.half_messages(address, transaction_id), "")
        wanted = transaction_id, topic
        matching = [one for one in found if (one.properties.get(UNIQ_KEY), one.properties.get(REAL_TOPIC)) == wanted]
        return matching[-1] if matching else None

    # -------------------------------------------------------------------------------------------------------- recall

    async def recall(self, session: Session, request: Any) -> bytes:
        topic = checked_topic(request.topic)
        route = await require_route(self._backend, topic)
        check_message_type(topic, route.message_type, {TIMER_DELIVER_MS: ""})
        address = address_of(route, RecallHandle.decode(request.recall_handle).broker_name)
        message_id = await sends.recall(session.remoting, address, topic, request.recall_handle, timeout_ms=SEND_MS)
        return bytes(v2.RecallMessageResponse(status=OK, message_id=message_id).SerializeToString())


class _Waiter:
    """Turns the broker's response into that of the call, without a task."""

    def __init__(
        self, sending: Sending, call: Call, message: IncomingMessage, broker_name: str, address: str, queue_id: int
    ) -> None:
        self.address = address
        self.queue_id = queue_id
        self._sending = sending
        self._call = call
        self._message = message
        self._broker_name = broker_name

    def done(self) -> bool:
        return self._call.is_over

    def set_result(self, response: Command) -> None:
        try:
            reply = sends.reply_of(response, self.address)
            answer = self._sending.response([self._message], reply, self._broker_name, self.address)
        except Exception as error:  # it becomes the response, as in a task
            self.set_exception(error)
        else:
            self._call.reply(answer)

    def set_exception(self, error: Exception) -> None:
        if isinstance(error, RemotingError):
            self._sending.doubt(self._message.topic, self._broker_name)
        failed = status_of(error, "SendMessage")
        self._call.reply(bytes(v2.SendMessageResponse(status=failed).SerializeToString()))


def _item(message: IncomingMessage) -> tuple[int, bytes, str]:
    """Of a batch."""
    return 0, message.body, encode_properties(message.properties)
