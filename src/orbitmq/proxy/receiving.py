"""ReceiveMessage, AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from orbitmq.errors import BrokerError, OrbitMQError, RemotingError, StatusError
from orbitmq.message.flags import PERM_READ
from orbitmq.message.model import MASTER_ID
from orbitmq.message.pop import MAX_MESSAGES, NORMAL, Receipt, pop_retry_topic
from orbitmq.message.properties import decode_properties
from orbitmq.net.grpc import Call
from orbitmq.operations import pops, sends
from orbitmq.operations.call import checked
from orbitmq.operations.pops import Popped
from orbitmq.proxy.backend import Backend
from orbitmq.proxy.checks import (
    BATCH_MAX,
    Limits,
    check_changed_invisible_ms,
    check_filter,
    check_invisible_ms,
    checked_group,
    checked_topic,
    polling_ms,
)
from orbitmq.proxy.handles import Handle, check_log_offset, valid_handle
from orbitmq.proxy.messages import message_id_of, outgoing_message
from orbitmq.proxy.renewal import Renewal, Renewed
from orbitmq.proxy.routes import address_of, require_route
from orbitmq.proxy.sessions import Session, subscription_of
from orbitmq.proxy.statuses import OK, common, status_of
from orbitmq.runtime.clock import Clock
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import ConsumerSendMsgBackHeader
from orbitmq.wire.headers_pop import AckMessageHeader, ChangeInvisibleTimeHeader, PopMessageHeader
from orbitmq.wire.v2 import messages as v2
from orbitmq.wire.v2.enums import Code
from orbitmq.wire.v2.messages import milliseconds_of

_log = logging.getLogger(__name__)

CALL_MS: Final = 3000
BEYOND_POLL_MS: Final = 5000  # of the network, beyond what a broker may wait
GIVEN_BACK_MS: Final = 1000  # when a client has read too little: it may be the next to ask, too
AT_ONCE_MS: Final = 0  # when the call has ended
RENEWED_MS: Final = 60_000  # at first, of messages that are renewed
AT_END: Final = 1  # where a new group begins
ALL_QUEUES: Final = -1
LIMITS: Final = Limits()


Start = Callable[[Coroutine[Any, Any, None]], None]


class Receiving:
    """Receives of all clients. `start` has work done beside the calls."""

    def __init__(self, backend: Backend, clock: Clock, start: Start) -> None:
        self._backend = backend
        self._clock = clock
        self._start = start
        self._turn = 0
        self.renewal = Renewal(clock, self._change)

    # ------------------------------------------------------------------------------------------------------- receive

    async def receive(self, call: Call, session: Session, request: Any) -> None:
        """Deliver messages, or say that there are none. StatusError, BrokerError, RemotingError."""
        topic, group = checked_topic(request.message_queue.topic), checked_group(request.group)
        if session.settings is None:
            raise StatusError(Code.INTERNAL_SERVER_ERROR, "the client has sent no settings over a Telemetry stream")
        if request.auto_renew:
            invisible_ms = RENEWED_MS
        else:
            invisible_ms = milliseconds_of(request.invisible_duration)
            check_invisible_ms(invisible_ms, LIMITS)
        expression = request.filter_expression
        check_filter(topic, expression.type, expression.expression)
        subscription = subscription_of(topic, expression, session.last_heard_ms)
        poll_ms = self._polling_ms(call, session, request)
        broker_name, address = await self._broker(topic, request.message_queue.broker.name)
        header = PopMessageHeader(
            consumer_group=group,
            topic=topic,
            queue_id=ALL_QUEUES,  # RocketMQ does not look at the queue that a client names, whatever it was assigned
            max_msg_nums=min(max(request.batch_size, 1), MAX_MESSAGES),
            invisible_time=invisible_ms,
            poll_time=poll_ms,
            born_time=self._clock.now_ms(),
            init_mode=AT_END,
            expression_type=subscription.expression_type,
            expression=subscription.expression,
            order=session.is_orderly,
            attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
            broker_name=broker_name,
        )
        found = await self._pop(call, session, address, header)
        kept = [one for one in found if await self._is_kept(session, group, topic, address, one)]
        if call.is_over:  # the client has gone, or has waited too long
            await self._give_back(session, group, topic, address, kept, AT_ONCE_MS)
            return
        if not kept:
            raise StatusError(Code.MESSAGE_NOT_FOUND, "no match message" if found else "no new message")
        call.on_over = lambda: self._start(self._take_back(call, session, group, topic, address, kept))
        call.send(bytes(v2.ReceiveMessageResponse(status=OK).SerializeToString()))
        self._deliver(call, session, group, topic, address, kept, is_renewed=request.auto_renew)

    def _deliver(
        self, call: Call, session: Session, group: str, topic: str, address: str, found: list[Popped], *,
        is_renewed: bool,
    ) -> None:  # fmt: skip
        """Send messages until the call is over, as it is when its peer reads too little."""
        now_ms = self._clock.now_ms()
        for unit, receipt in found:
            if call.is_over:
                return
            handle = Handle(receipt, unit.physical_offset)
            message = outgoing_message(unit, topic, handle.encode(), now_ms)
            if is_renewed:
                self.renewal.add(session, group, topic, message.system_properties.message_id, address, handle)
            call.send(bytes(v2.ReceiveMessageResponse(message=message).SerializeToString()))
        self.finish(call)

    async def _take_back(
        self, call: Call, session: Session, group: str, topic: str, address: str, found: list[Popped]
    ) -> None:
        """End the renewal of the messages that were not sent, and give them back."""
        lost = []
        for unit, receipt in found[max(0, call.sent_count - 1) :]:  # the first that is sent is the status
            handle = Handle(receipt, unit.physical_offset).encode()
            renewed = await self.renewal.take(session, message_id_of(unit, decode_properties(unit.properties)), handle)
            lost.append(Popped(unit, receipt if renewed is None else renewed.handle.receipt))
        await self._give_back(session, group, topic, address, lost, GIVEN_BACK_MS)

    async def _pop(self, call: Call, session: Session, address: str, header: PopMessageHeader) -> list[Popped]:
        if call.is_over:
            return []
        command = pops.pop_request(header)
        receiving = asyncio.current_task()

        def drop() -> None:
            is_unsent = session.remoting.connection(address) is None
            if is_unsent or self._backend.drop_pop(session.remoting, address, command.opaque or 0):
                assert receiving is not None
                receiving.cancel()  # no response comes any more

        call.on_over = drop
        timeout_ms = header.poll_time + BEYOND_POLL_MS
        try:
            return await pops.pop_units(session.remoting, address, header, command, timeout_ms=timeout_ms)
        except RemotingError:  # it may have stopped
            self._backend.doubt(header.topic)
            raise
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            text = "knows no POP consumption, as of RocketMQ 4: consume with a client of RocketMQ 4"
            raise StatusError(Code.NOT_IMPLEMENTED, f"broker {header.broker_name} {text}") from error
        finally:
            call.on_over = None

    @staticmethod
    def _polling_ms(call: Call, session: Session, request: Any) -> int:
        asked = milliseconds_of(request.long_polling_timeout) if request.HasField("long_polling_timeout") else None
        left = None if call.timeout_seconds is None else round(call.timeout_seconds * 1000)
        version = call.metadata.get("x-mq-client-version", "")
        return polling_ms(asked, milliseconds_of(session.settings.request_timeout), left, version, LIMITS)

    def finish(self, call: Call, failed: Any = None) -> None:
        """The end of a receive: a status if it has failed, and the time."""
        if call.is_over:
            return
        if failed is not None:
            call.send(bytes(v2.ReceiveMessageResponse(status=failed).SerializeToString()))
        last = v2.ReceiveMessageResponse()
        last.delivery_timestamp.FromMilliseconds(self._clock.now_ms())
        call.send(bytes(last.SerializeToString()))
        call.end()

    async def _broker(self, topic: str, name: str) -> tuple[str, str]:
        """Name and address of the broker to ask: the one that is named, else each in turn. As RocketMQ has it, a named
        one that does not have the topic any more is as good as none: the client looks for queues only now and then.
        """
        route = await require_route(self._backend, topic)
        readable = {one.broker_name for one in route.data.queue_datas if one.perm & PERM_READ and one.read_queues}
        masters = [one for one in route.data.broker_datas if MASTER_ID in one.addresses and one.broker_name in readable]
        if not masters:
            raise StatusError(Code.FORBIDDEN, f"topic {topic[:300]} has no readable queue at a master")
        for one in masters:
            if one.broker_name == name:
                return name, one.addresses[MASTER_ID]
        self._turn += 1
        chosen = masters[self._turn % len(masters)]
        return chosen.broker_name, chosen.addresses[MASTER_ID]

    async def _is_kept(self, session: Session, group: str, topic: str, address: str, popped: Popped) -> bool:
        """Whether the client gets it. One that it has had too often becomes a dead letter."""
        unit, receipt = popped
        if not session.max_attempts or unit.reconsume_times < session.max_attempts:
            return True
        try:
            await self._bury(session, group, topic, address, unit.physical_offset, "")
            await self._acknowledge(session, group, topic, address, receipt)
        except OrbitMQError as error:  # it is redelivered, and this is tried again
            text = "event=dead_letter_failed group=%.300s topic=%.300s offset=%d error=%s"
            _log.warning(text, group, topic, unit.physical_offset, error)
        return False

    async def _give_back(
        self, session: Session, group: str, topic: str, address: str, found: list[Popped], invisible_ms: int
    ) -> None:
        for _, receipt in found:
            try:
                await self._change(session, group, topic, address, receipt, invisible_ms)
            except OrbitMQError as error:  # it is redelivered after its time
                _log.info("event=not_given_back group=%.300s topic=%.300s error=%s", group, topic, error)

    # ---------------------------------------------------------------------------------------- acknowledge and change

    def start_acknowledge(self, call: Call, session: Session, request: Any) -> bool:
        """Acknowledge the one message of a request if that needs no wait; False, and nothing is done, otherwise."""
        if len(request.entries) != 1:
            return False
        topic, group, entry = checked_topic(request.topic), checked_group(request.group), request.entries[0]
        route = self._backend.known(topic)
        if route is None:
            return False
        renewed = self.renewal.take_at_once(session, entry.message_id, entry.receipt_handle)
        waiter = _Acknowledging(self, call, session, entry, renewed)
        try:
            if renewed is None or renewed.renewing is None:
                handle = valid_handle(entry.receipt_handle, self._clock.now_ms()) if renewed is None else renewed.handle
                waiter.address = address_of(route, handle.receipt.broker_name)
                header = _acknowledgement(handle.receipt, topic, group)
                if pops.start_acknowledge(session.remoting, waiter.address, header, CALL_MS, waiter) is not None:
                    return True
        except StatusError:  # of the entry: `acknowledge` says so
            pass
        waiter.restore()
        return False

    async def acknowledge(self, session: Session, request: Any) -> bytes:
        topic, group = checked_topic(request.topic), checked_group(request.group)
        if not request.entries:
            raise StatusError(Code.INTERNAL_SERVER_ERROR, "the request has no entry")
        if len(request.entries) > BATCH_MAX:
            raise StatusError(Code.PAYLOAD_TOO_LARGE, f"{len(request.entries)} entries, at most {BATCH_MAX} are taken")
        statuses = await asyncio.gather(*(self._ack(session, group, topic, entry) for entry in request.entries))
        return _acknowledged(request.entries, statuses)

    async def _ack(self, session: Session, group: str, topic: str, entry: Any) -> Any:
        try:
            async with self._held(session, topic, entry.message_id, entry.receipt_handle) as (handle, address):
                await self._acknowledge(session, group, topic, address, handle.receipt)
        except Exception as error:
            return status_of(error, "AckMessage")
        return OK

    @asynccontextmanager
    async def _held(
        self, session: Session, topic: str, message_id: str, text: str
    ) -> AsyncIterator[tuple[Handle, str]]:
        """The newest handle of a message, and its broker. Its renewal ends, unless what is done with it fails: then the
        client tries again by the handle that it has. StatusError if it has expired.
        """
        renewed = await self.renewal.take(session, message_id, text)
        try:
            handle = renewed.handle if renewed is not None else valid_handle(text, self._clock.now_ms())
            route = await require_route(self._backend, topic)
            yield handle, address_of(route, handle.receipt.broker_name)
        except BaseException:
            if renewed is not None:
                self.renewal.restore(session, message_id, text, renewed)
            raise

    async def _acknowledge(self, session: Session, group: str, topic: str, address: str, receipt: Receipt) -> None:
        await pops.acknowledge(session.remoting, address, _acknowledgement(receipt, topic, group), timeout_ms=CALL_MS)

    async def change(self, session: Session, request: Any) -> bytes:
        topic, group = checked_topic(request.topic), checked_group(request.group)
        invisible_ms = milliseconds_of(request.invisible_duration)
        check_changed_invisible_ms(invisible_ms, LIMITS)
        async with self._held(session, topic, request.message_id, request.receipt_handle) as (handle, address):
            receipt = await self._change(session, group, topic, address, handle.receipt, invisible_ms)
        answer = v2.ChangeInvisibleDurationResponse(status=OK)
        answer.receipt_handle = Handle(receipt, handle.log_offset).encode()
        return bytes(answer.SerializeToString())

    async def _change(
        self, session: Session, group: str, topic: str, address: str, receipt: Receipt, invisible_ms: int
    ) -> Receipt:
        """The receipt from now on; the old one is void."""
        header = ChangeInvisibleTimeHeader(
            group, _topic_of(receipt, topic, group), receipt.queue_id, receipt.encode(), receipt.offset, invisible_ms,
            broker_name=receipt.broker_name,
        )  # fmt: skip
        found = await pops.change_invisible_time(session.remoting, address, header, timeout_ms=CALL_MS)
        return receipt._replace(
            start=receipt.offset,
            pop_ms=found.pop_time,
            invisible_ms=found.invisible_time,
            revive_queue=found.revive_qid,
        )

    # -------------------------------------------------------------------------------------------------- dead letters

    async def forward(self, session: Session, request: Any) -> bytes:
        """Make a dead letter of a message that its consumer gives up."""
        topic, group = checked_topic(request.topic), checked_group(request.group)
        async with self._held(session, topic, request.message_id, request.receipt_handle) as (handle, address):
            check_log_offset(handle)
            await self._bury(session, group, topic, address, handle.log_offset, request.message_id)
            await self._acknowledge(session, group, topic, address, handle.receipt)
        return bytes(v2.ForwardMessageToDeadLetterQueueResponse(status=OK).SerializeToString())

    async def _bury(
        self, session: Session, group: str, topic: str, address: str, log_offset: int, message_id: str
    ) -> None:
        header = ConsumerSendMsgBackHeader(
            offset=log_offset,
            group=group,
            delay_level=-1,
            origin_msg_id=message_id,
            origin_topic=topic,
            max_reconsume_times=0,
        )
        await sends.send_back(session.remoting, address, header, timeout_ms=CALL_MS)


class _Acknowledging:
    """Turns the broker's response to an acknowledgement into that of the call, without a task."""

    def __init__(self, receiving: Receiving, call: Call, session: Session, entry: Any, renewed: Renewed | None) -> None:
        self.address = ""
        self._receiving = receiving
        self._call = call
        self._session = session
        self._entry = entry
        self._renewed = renewed

    def done(self) -> bool:
        return False  # also when the client waits no longer: a message that is kept has to be renewed again

    def set_result(self, response: Command) -> None:
        try:
            checked(response, self.address)
        except BrokerError as error:
            self.set_exception(error)
        else:
            self._reply(OK)

    def set_exception(self, error: Exception) -> None:
        self.restore()
        self._reply(status_of(error, "AckMessage"))

    def restore(self) -> None:
        """The message is not acknowledged."""
        if self._renewed is not None:
            self._receiving.renewal.restore(
                self._session, self._entry.message_id, self._entry.receipt_handle, self._renewed
            )

    def _reply(self, said: Any) -> None:
        self._call.reply(_acknowledged([self._entry], [said]))


def _acknowledged(entries: Sequence[Any], statuses: list[Any]) -> bytes:
    answer = v2.AckMessageResponse(status=common(statuses))
    for entry, said in zip(entries, statuses, strict=True):
        answer.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=said)
    return bytes(answer.SerializeToString())


def _acknowledgement(receipt: Receipt, topic: str, group: str) -> AckMessageHeader:
    return AckMessageHeader(
        group, _topic_of(receipt, topic, group), receipt.queue_id, receipt.encode(), receipt.offset,
        broker_name=receipt.broker_name,
    )  # fmt: skip


def _topic_of(receipt: Receipt, topic: str, group: str) -> str:
    """Where the message was received from."""
    return topic if receipt.kind == NORMAL else pop_retry_topic(topic, group)
