"""The Telemetry stream: settings of clients, and what brokers want of them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from orbitmq.errors import RequestRejected, StatusError, UnitError
from orbitmq.message.properties import REAL_TOPIC, UNIQ_KEY, decode_properties
from orbitmq.message.unit import decode_unit
from orbitmq.net.connection import Connection
from orbitmq.net.grpc import Call
from orbitmq.net.routing import Answer
from orbitmq.proxy.backend import Backend
from orbitmq.proxy.checks import check_client_type, check_filter, checked_group, checked_topic, parsed
from orbitmq.proxy.messages import outgoing_message
from orbitmq.proxy.sending import Half, Sending
from orbitmq.proxy.sessions import Session
from orbitmq.proxy.settings import ServerSettings, merged_settings
from orbitmq.proxy.statuses import OK, status_in_time
from orbitmq.runtime.clock import Clock
from orbitmq.wire.bodies import ConsumeDirectlyResult, ConsumeResult, ConsumerRunningInfo
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_groups import GetConsumerRunningInfoHeader
from orbitmq.wire.headers_transaction import CheckTransactionStateHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.v2 import messages as v2
from orbitmq.wire.v2.enums import ClientType, Code

_log = logging.getLogger(__name__)

INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL = 3, 4, 8, 13  # statuses of gRPC
SETTINGS_SECONDS: Final = (
    60.0  # for the first settings: clients send them at once, and looking up a group takes seconds
)
SETTINGS_MAX: Final = (
    16  # of one stream that wait: clients send them again every 5 min, and when a subscription changes
)
STACKS_SIZE_MAX: Final = 4 << 20  # bytes: a thousand threads of a Java process
SETTINGS_SIZE_MAX: Final = 256 << 10  # bytes: some thousand topics, and each client's are kept
ANSWER_SECONDS: Final = 5.0  # that a client has for a command
PENDING_MAX: Final = 1000  # commands in flight to all clients
SERVER: Final = ServerSettings()
_RESULTS: Final = {
    Code.OK: ConsumeResult.CR_SUCCESS,
    Code.FAILED_TO_CONSUME_MESSAGE: ConsumeResult.CR_LATER,
    Code.MESSAGE_CORRUPTED: ConsumeResult.CR_RETURN_NULL,
}


class _Stream:
    """What is known of a stream. `session` is the client once its settings were taken: accounts may change before the
    stream ends.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self.session: Session | None = None
        self.time: asyncio.TimerHandle | None = None  # until settings were taken
        self.settings: deque[Any] = deque()
        self.is_busy = False

    def end_time(self) -> None:
        if self.time is not None:
            self.time.cancel()
            self.time = None


class Telemetry:
    """`session_of` finds or makes the client of a call."""

    def __init__(self, backend: Backend, clock: Clock, sending: Sending, session_of: Callable[[Call], Session]) -> None:
        self._backend = backend
        self._clock = clock
        self._sending = sending
        self._session_of = session_of
        self._nonces = count(1)
        self._pending: dict[str, tuple[Call, asyncio.Future[Any]]] = {}  # by nonce, and whom it was sent
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, call: Call) -> None:
        """A client has opened its stream."""
        stream = _Stream(call)
        call.on_message = lambda data: self._received(stream, data)
        call.on_half_close = lambda: self._closed(stream)
        call.on_over = lambda: self._lost(stream)
        stream.time = asyncio.get_running_loop().call_later(SETTINGS_SECONDS, self._give_up, stream)

    def _give_up(self, stream: _Stream) -> None:
        stream.call.end(DEADLINE_EXCEEDED, f"no settings were taken from this client within {SETTINGS_SECONDS:g} s")
        self._lost(stream)

    def _received(self, stream: _Stream, data: bytes) -> None:
        call = stream.call
        try:
            command = parsed(v2.TelemetryCommand, data, STACKS_SIZE_MAX)
        except StatusError as error:
            call.end(INVALID_ARGUMENT, str(error))
            return
        kind = command.WhichOneof("command")
        if kind == "settings":
            self._queue(stream, command.settings)
        elif kind in ("thread_stack_trace", "verify_message_result", "verify_message_command"):
            # Node's clients send the command itself back.
            asked, waiting = self._pending.get(getattr(command, kind).nonce, (None, None))
            if asked is call and waiting is not None and not waiting.done():
                waiting.set_result(command)

    def _queue(self, stream: _Stream, settings: Any) -> None:
        """Settings are taken one after another: the newest hold."""
        if len(stream.settings) >= SETTINGS_MAX:
            stream.call.end(RESOURCE_EXHAUSTED, f"{SETTINGS_MAX} settings of this client wait already")
            self._lost(stream)
            return
        stream.settings.append(settings)
        if not stream.is_busy:
            stream.is_busy = True
            self._start(self._settle(stream))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle(self, stream: _Stream) -> None:
        while stream.settings:
            await self._settle_next(stream, stream.settings.popleft())
        stream.is_busy = False

    async def _settle_next(self, stream: _Stream, settings: Any) -> None:
        """Take the settings of a client and send it those that hold."""
        call = stream.call
        if call.is_over:
            return
        try:
            session = self._session_of(call)
            await self._take(session, settings)
        except Exception as error:
            self._refuse(stream, await status_in_time(error, "Telemetry"))
            return
        self._settled(stream, session)

    @staticmethod
    def _settled(stream: _Stream, session: Session) -> None:
        call = stream.call
        if call.is_over:
            return
        former, session.telemetry = session.telemetry, call
        stream.session = session
        stream.end_time()
        if former is not None and former is not call and not former.is_over:
            former.end()
        call.send(bytes(v2.TelemetryCommand(status=OK, settings=session.settings).SerializeToString()))

    def _refuse(self, stream: _Stream, said: Any) -> None:
        """As RocketMQ does: a client without an id gets a status and keeps its stream; for all else the stream ends."""
        call = stream.call
        if call.is_over:
            return
        if said.code == Code.CLIENT_ID_REQUIRED:
            call.send(bytes(v2.TelemetryCommand(status=said).SerializeToString()))
            return
        # A kind of client that is not served is the server's fault there.
        is_clients = 40000 <= said.code < 50000 and said.code != Code.UNRECOGNIZED_CLIENT_TYPE
        prefix = "" if said.code == Code.BAD_REQUEST else "process client telemetryCommand failed. "
        call.end(INVALID_ARGUMENT if is_clients else INTERNAL, f"{prefix}{said.message}")
        self._lost(stream)

    async def _take(self, session: Session, settings: Any) -> None:
        """StatusError for settings that are refused."""
        if settings.ByteSize() > SETTINGS_SIZE_MAX:
            raise StatusError(Code.PAYLOAD_TOO_LARGE, f"settings of more than {SETTINGS_SIZE_MAX} bytes")
        if settings.WhichOneof("pub_sub") is None:
            raise StatusError(Code.BAD_REQUEST, "there is no publishing or subscription data in settings")
        check_client_type(settings.client_type)
        rules = None
        if settings.WhichOneof("pub_sub") == "publishing":
            for topic in map(checked_topic, settings.publishing.topics):
                # A producer is asked about half messages of its topics, and gets them.
                if not self._backend.may_send(session.access_key, topic):
                    raise StatusError(Code.UNAUTHORIZED, f"this account may not send to topic {topic[:300]}")
        else:
            rules = await self._backend.group(checked_group(settings.subscription.group))
            for one in settings.subscription.subscriptions:
                check_filter(checked_topic(one.topic), one.expression.type, one.expression.expression)
        session.settings = merged_settings(settings, rules, SERVER)
        if not session.router.handlers:
            self._serve(session)
        await session.heartbeat()

    def _closed(self, stream: _Stream) -> None:
        self._lost(stream)
        stream.call.end()

    @staticmethod
    def _lost(stream: _Stream) -> None:
        stream.end_time()
        session = stream.session
        if session is not None and session.telemetry is stream.call:
            session.telemetry = None
            session.heard()  # it has so long to come back

    # ----------------------------------------------------------------------------------------- requests of brokers

    def _serve(self, session: Session) -> None:
        """Have the client get what brokers ask it."""
        router = session.router
        router.add(RequestCode.CHECK_TRANSACTION_STATE, lambda at, command: self._check(session, at, command))
        router.add(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, lambda _at, _command: None)
        router.add(RequestCode.GET_CONSUMER_RUNNING_INFO, lambda _at, command: self._running_info(session, command))
        router.add(RequestCode.CONSUME_MESSAGE_DIRECTLY, lambda _at, command: self._verify(session, command))

    def _check(self, session: Session, connection: Connection, command: Command) -> None:
        """A producer is asked how a transaction ends. Without a stream another is asked in the next round."""
        header = command.header(CheckTransactionStateHeader)
        try:
            unit = decode_unit(command.body)
        except UnitError as error:
            _log.warning("event=bad_transaction_check broker=%s error=%s", connection.address, error)
            return
        properties = decode_properties(unit.properties)
        topic, transaction_id = properties.get(REAL_TOPIC, unit.topic), properties.get(UNIQ_KEY, "")
        half = Half(connection.address, "", header.tran_state_table_offset, header.commit_log_offset)
        self._sending.keep(topic, transaction_id, half)
        asked = v2.TelemetryCommand()
        asked.recover_orphaned_transaction_command.transaction_id = transaction_id
        asked.recover_orphaned_transaction_command.message.CopyFrom(
            outgoing_message(unit, topic, None, self._clock.now_ms())
        )
        if session.telemetry is not None and not session.telemetry.is_over:
            session.telemetry.send(bytes(asked.SerializeToString()))

    async def _running_info(self, session: Session, command: Command) -> Answer:
        header = command.header(GetConsumerRunningInfoHeader)
        stacks = None
        if header.jstack_enable:
            asked = v2.TelemetryCommand()
            asked.print_thread_stack_trace_command.nonce = nonce = str(next(self._nonces))
            stacks = (await self._ask(session, nonce, asked)).thread_stack_trace.thread_stack_trace
        settings = session.settings
        found = [session.subscription(topic) for topic in session.topics()]
        info = ConsumerRunningInfo(
            jstack=stacks,
            properties={
                "consumerGroup": session.group,
                "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY"
                if session.kind == ClientType.SIMPLE_CONSUMER
                else "CONSUME_PASSIVELY",
                "PROP_CLIENT_VERSION": settings.user_agent.version,
                "PROP_CONSUMEORDERLY": str(session.is_orderly).lower(),
            },
            subscription_set=[one for one in found if one is not None],
        )
        return command.response(ResponseCode.SUCCESS, body=encode(info))

    async def _verify(self, session: Session, command: Command) -> Answer:
        """Have the listener of a client consume one message now."""
        asked = v2.TelemetryCommand()
        asked.verify_message_command.nonce = nonce = str(next(self._nonces))
        unit = decode_unit(command.body)
        message = outgoing_message(unit, unit.topic, None, self._clock.now_ms())
        asked.verify_message_command.message.CopyFrom(message)
        began = asyncio.get_running_loop().time()
        answer = await self._ask(session, nonce, asked)
        result = ConsumeDirectlyResult(
            consume_result=_RESULTS.get(answer.status.code, ConsumeResult.CR_THROW_EXCEPTION),
            order=session.is_orderly,
            remark="from gRPC client",
            spent_time_ms=round((asyncio.get_running_loop().time() - began) * 1000),
        )
        return command.response(ResponseCode.SUCCESS, body=encode(result))

    async def _ask(self, session: Session, nonce: str, command: Any) -> Any:
        """The client's response to a command. RequestRejected when there is none."""
        call = session.telemetry
        if call is None or call.is_over:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"client {session.client_id} has no open stream")
        if len(self._pending) >= PENDING_MAX:
            raise RequestRejected(ResponseCode.SYSTEM_BUSY, f"{PENDING_MAX} commands wait for clients already")
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[nonce] = call, waiting
        call.send(bytes(command.SerializeToString()))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await waiting
        except TimeoutError:
            text = f"client {session.client_id} has not answered within {ANSWER_SECONDS:g} s"
            raise RequestRejected(ResponseCode.SYSTEM_BUSY, text) from None
        finally:
            self._pending.pop(nonce, None)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
