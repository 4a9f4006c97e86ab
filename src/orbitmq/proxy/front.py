"""The service of RocketMQ 5 clients: each method with its handler, the clients, and what happens to them in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from orbitmq.errors import OrbitMQError, StatusError
from orbitmq.net.brake import LATE_S, REST_SECONDS, RESTS, TOO_OFTEN, SignatureBrake
from orbitmq.net.connection_options import ConnectionOptions
from orbitmq.net.grpc import Call, Method
from orbitmq.net.grpc_connection import GrpcConnection
from orbitmq.net.grpc_server import GrpcServer
from orbitmq.net.remoting import split_address
from orbitmq.net.tls import ServerTls
from orbitmq.proxy.backend import Backend
from orbitmq.proxy.checks import check_client_id, check_client_type, parsed, parsed_send, resource_name
from orbitmq.proxy.receiving import Receiving
from orbitmq.proxy.renewal import LOOK_SECONDS
from orbitmq.proxy.routes import endpoints_of, query_assignment, query_route
from orbitmq.proxy.sending import Sending
from orbitmq.proxy.sessions import Session, Sessions
from orbitmq.proxy.signature import is_signed_with, parse_authorization
from orbitmq.proxy.statuses import OK, status_in_time, status_of
from orbitmq.proxy.telemetry import Telemetry
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.periodic import Periodic
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.wire.http2.grpc import UNAVAILABLE
from orbitmq.wire.v2 import messages as v2
from orbitmq.wire.v2.enums import Code
from orbitmq.wire.v2.messages import status
from orbitmq.wire.v2.methods import SERVICE

_log = logging.getLogger(__name__)

CLIENT_ID: Final = "x-mq-client-id"
GRACE_SECONDS: Final = 3.0  # for calls in flight
SILENCE_SCAN_SECONDS: Final = 5.0
FORGOTTEN_AT_ONCE: Final = 100  # clients: a broker that does not respond takes 3 s for each
Work = Callable[[Session, Any], Coroutine[Any, Any, bytes]]
Start = Callable[[Call, Session, Any], bool]
"""Begins the work of a call, if it needs no wait: whether it did. StatusError."""
Parse = Callable[[Any, bytes], Any]
"""Class and bytes of a request -> the request. StatusError."""


class Front:
    """`host` is the address that clients get which name none themselves."""

    def __init__(
        self, backend: Backend, clock: Clock, *, host: str, tls: ServerTls | None, limits: ConnectionOptions,
        refusals: Refusals,
    ) -> None:  # fmt: skip
        self._backend = backend
        self._host = host
        self._refusals = refusals
        self._brake = SignatureBrake()
        self.sending = Sending(backend, clock)
        self.receiving = Receiving(backend, clock, self._start)
        self.sessions = Sessions(backend, clock)
        self.telemetry = Telemetry(backend, clock, self.sending, self._session)
        self.methods = self._methods()  # by name
        by_path = {f"/{SERVICE}/{name}": method for name, method in self.methods.items()}
        self.server = GrpcServer(by_path, tls=tls, limits=limits, refusals=refusals)
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._periodic = Periodic()
        self._periodic.every(LOOK_SECONDS, self.receiving.renewal.look)
        self._periodic.every(SILENCE_SCAN_SECONDS, self._forget_silent)

    async def bind(self, host: str, port: int) -> int:
        """Take the port without accepting yet. ConfigurationError as `GrpcServer.bind`."""
        self.port = await self.server.bind(host, port)
        return self.port

    async def serve(self) -> None:
        await self.server.serve()
        self._periodic.start()

    async def stop(self) -> None:
        """End calls in some seconds, and give back what only this front can acknowledge."""
        await self._end(GRACE_SECONDS)
        await self.receiving.renewal.stop()
        await self._hang_up()

    async def abandon(self) -> None:
        """End at once."""
        await self._end(0)
        await self._hang_up()

    async def _end(self, grace_seconds: float) -> None:
        await self._periodic.stop()
        await self.server.stop(grace_seconds)
        await self.telemetry.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hang_up(self) -> None:
        for session in self.sessions:
            await session.remoting.close()

    def _methods(self) -> dict[str, Method]:
        sending, receiving = self.sending, self.receiving
        return {
            "SendMessage": self._method("SendMessage", sending.send, sending.start, parsed_send),
            "ReceiveMessage": Method(self._receive),
            "Telemetry": Method(self.telemetry.open, is_stream_of_requests=True),
            "QueryRoute": self._method("QueryRoute", self._route),
            "QueryAssignment": self._method("QueryAssignment", self._assignment),
            "AckMessage": self._method("AckMessage", receiving.acknowledge, receiving.start_acknowledge),
            "ChangeInvisibleDuration": self._method("ChangeInvisibleDuration", receiving.change),
            "ForwardMessageToDeadLetterQueue": self._method("ForwardMessageToDeadLetterQueue", receiving.forward),
            "EndTransaction": self._method("EndTransaction", sending.end_transaction),
            "RecallMessage": self._method("RecallMessage", sending.recall),
            "Heartbeat": self._method("Heartbeat", self._heartbeat),
            "NotifyClientTermination": self._method("NotifyClientTermination", self._terminated),
        }

    def _method(
        self, name: str, work: Work, start: Start = lambda _call, _session, _request: False, parse: Parse = parsed
    ) -> Method:
        """A method with one response: what `start` does not take is the work of a task."""
        request_class, response_class = getattr(v2, f"{name}Request"), getattr(v2, f"{name}Response")

        def refuse(call: Call, error: Exception) -> None:
            call.reply(bytes(response_class(status=status_of(error, name)).SerializeToString()))

        async def respond(call: Call, session: Session, request: Any) -> None:
            try:
                call.reply(await work(session, request))
            except Exception as error:
                refuse(call, error)

        def handle(call: Call, data: bytes) -> None:
            try:
                session, request = self._session(call), parse(request_class, data)
                is_started = start(call, session, request)
            except StatusError as error:
                call.connection.loop.call_later(error.delay_s, refuse, call, error)
            except Exception as error:
                refuse(call, error)
            else:
                if not is_started:
                    self._start(respond(call, session, request))

        return Method(handle)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _session(self, call: Call) -> Session:
        """The client of a call. StatusError without an id, or with a wrong signature."""
        client_id = call.metadata.get(CLIENT_ID, "").strip()
        check_client_id(client_id)
        access_key = self._account(call)
        language = call.metadata.get("x-mq-language", "")
        return self.sessions.of(client_id, language, split_address(call.peer), access_key)

    def _account(self, call: Call) -> str | None:
        """The account that has signed a call; None without one, which brokers may allow. Without accounts, whatever a
        client sends is not looked at.
        """
        header = call.metadata.get("authorization")
        if header is None or not self._backend.has_accounts:
            return None
        rests = call.connection.attributes.get(RESTS)
        if rests is not None:
            raise StatusError(Code.UNAUTHORIZED, rests)
        found = parse_authorization(header)
        secret = self._backend.secret(found.access_key)
        # An unknown account takes as long as a wrong secret.
        if not is_signed_with(found, call.metadata.get("x-mq-date-time", ""), (secret or "").encode()) or not secret:
            raise self._wrong(call.connection, f"no account {found.access_key[:40]!r} has this signature")
        return found.access_key

    def _wrong(self, connection: GrpcConnection, reason: str) -> StatusError:
        """The refusal of a wrong signature. Who guesses secrets waits longer and longer, as over remoting."""
        text = "event=signature_refused peer=%s reason=%s"
        self._refusals.note(Limit.SIGNATURES, _log, text, connection.address, reason)
        late_s = self._brake.wrong(connection.peer[0], connection.loop.time())
        if late_s > 0:
            connection.place_until = connection.loop.time() + REST_SECONDS
        if late_s >= LATE_S:
            connection.attributes[RESTS] = f"{reason}; {TOO_OFTEN}"
            connection.loop.call_later(REST_SECONDS, connection.close)
        return StatusError(Code.UNAUTHORIZED, reason, late_s)

    # -------------------------------------------------------------------------------------------------- receive

    def _receive(self, call: Call, data: bytes) -> None:
        self._start(self._receive_later(call, data))

    async def _receive_later(self, call: Call, data: bytes) -> None:
        try:
            await self.receiving.receive(call, self._session(call), parsed(v2.ReceiveMessageRequest, data))
        except Exception as error:
            self.receiving.finish(call, await status_in_time(error, "ReceiveMessage"))

    # ------------------------------------------------------------------------------------------------- the others

    async def _route(self, session: Session, request: Any) -> bytes:
        answer = await query_route(self._backend, request, endpoints_of(request.endpoints, self.port, self._host))
        if session.note_route(resource_name(request.topic)):
            self._start(self._introduce(session))
        return answer

    @staticmethod
    async def _introduce(session: Session) -> None:
        try:
            await session.heartbeat()
        except OrbitMQError as error:  # the client's next heartbeat is told
            _log.info("event=client_not_registered client=%.300s error=%s", session.client_id, error)

    async def _assignment(self, _session: Session, request: Any) -> bytes:
        return await query_assignment(self._backend, request, endpoints_of(request.endpoints, self.port, self._host))

    async def _heartbeat(self, session: Session, request: Any) -> bytes:
        check_client_type(request.client_type)
        if session.settings is None:
            raise StatusError(Code.UNRECOGNIZED_CLIENT_TYPE, f"client {session.client_id} has sent no settings")
        await session.heartbeat()
        return bytes(v2.HeartbeatResponse(status=OK).SerializeToString())

    async def _terminated(self, session: Session, _request: Any) -> bytes:
        known = session.settings is not None
        await self._forget(session)
        said = OK if known else status(Code.UNRECOGNIZED_CLIENT_TYPE, "the client has sent no settings")
        return bytes(v2.NotifyClientTerminationResponse(status=said).SerializeToString())

    async def _forget_silent(self) -> None:
        silent = self.sessions.silent()
        for at in range(0, len(silent), FORGOTTEN_AT_ONCE):
            await asyncio.gather(*map(self._forget_if_silent, silent[at : at + FORGOTTEN_AT_ONCE]))

    async def _forget_if_silent(self, session: Session) -> None:
        if not session.is_silent() or self.sessions.get(session.client_id) is not session:
            return  # it has come back while others were forgotten
        _log.info("event=grpc_client_silent client=%.300s peer=%s", session.client_id, session.peer)
        if session.telemetry is not None:
            session.telemetry.end(UNAVAILABLE, "the client has sent no heartbeat")
        await self._forget(session)

    async def _forget(self, session: Session) -> None:
        self.sessions.forget(session)
        await self.receiving.renewal.leave(session)
        await session.leave()
