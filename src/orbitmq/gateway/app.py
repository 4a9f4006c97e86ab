"""The gateway as an ASGI application: the checks of every request, then its operation, then the response.

In this order: the host, the origin, the account, path and query, the body, a place if it may wait. Brokers check the
account and what it may do, because requests to them are signed with it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orbitmq.dashboard.guard import is_ours, refuse_host
from orbitmq.errors import OrbitMQError
from orbitmq.gateway import bodies, openapi
from orbitmq.gateway.accounts import account_of
from orbitmq.gateway.limits import BODIES_BYTES_MAX, BODY_BYTES_MAX, STREAMS_MAX, WAITING_MAX, Places
from orbitmq.gateway.links import Links
from orbitmq.gateway.metrics import GatewayMetrics
from orbitmq.gateway.operations import Call, EventStream
from orbitmq.gateway.problems import Refused, problem, problem_of, response
from orbitmq.gateway.streams import Prefetched, lasting
from orbitmq.gateway.table import EVENTS, JSON, TABLE, Operation
from orbitmq.metrics.page import MetricsPage
from orbitmq.metrics.source import MetricsSection
from orbitmq.metrics.table_native import GATEWAY
from orbitmq.wire.signature import Credentials

_log = logging.getLogger(__name__)

HEADERS: Final = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
}
"""Of every response: no browser shows it, keeps it or lends it to a page."""
_FOREIGN: Final = "the request comes from a page of another site"


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The options of `orbitmq gateway`."""

    name_servers: Sequence[str]
    client: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the clients towards brokers: TLS. No account: that is the caller's."""
    hosts: frozenset[str] = frozenset()
    """Names by which the gateway is reached, besides loopback."""
    on_loopback: bool = True
    """Then no address but those of loopback is a name of the gateway."""
    is_secure: bool = False
    """With a certificate every name is accepted if `hosts` has none: another site's name does not fit it."""


class Gateway:
    """All operations, for the cluster of `settings`."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.links = Links(settings.name_servers, settings.client)
        self.waiting = Places("waiting receives", WAITING_MAX)
        self.streams = Places("streams", STREAMS_MAX)
        self.bodies = Places("bytes of bodies", BODIES_BYTES_MAX)
        self._prefetched: dict[tuple[str, str], list[Prefetched]] = {}
        self._figures = GatewayMetrics(self.waiting, self.streams, self.bodies, self.links)
        self._metrics_page = MetricsPage((MetricsSection("gateway", GATEWAY, self._figures),))
        self._ended = asyncio.Event()
        self._document = msgspec.json.encode(openapi.document())
        routes = [
            *(_route(one.path, self._serves(one), one.method) for one in TABLE),
            _route("/healthz", self._page(self._health)),
            _route("/readyz", self._page(self._readiness)),
            _route("/metrics", self._page(self._metrics)),
            _route("/openapi.json", self._page(self._openapi)),
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: self._http_error, Exception: self._bug})
        app.router.redirect_slashes = False
        self.asgi = _Headers(app)

    def start(self) -> None:
        self.links.start()

    def end(self) -> None:
        """End what waits; further requests are served until `stop`."""
        self._ended.set()

    async def stop(self) -> None:
        self.end()
        await self.links.stop()

    # ----------------------------------------------------------------------------------------------------- operations

    def _serves(self, one: Operation) -> Callable[[Request], Awaitable[Response]]:
        body_decoder = None if one.body is None else msgspec.json.Decoder(one.body)

        async def serve(request: Request) -> Response:
            found = await self._respond(one, body_decoder, request)
            self._figures.counts[one.name, str(found.status_code)] += 1
            return found

        return serve

    async def _respond(
        self, one: Operation, body_decoder: msgspec.json.Decoder[bodies.Shape] | None, request: Request
    ) -> Response:
        account: Credentials | None = None
        peer = _peer(request)
        try:
            self._check_caller(request)
            account = account_of(request.headers.get("authorization"))
            path = _converted(dict(request.path_params), one.path_shape, "the path")
            query = _converted(_query_of(request), one.query, "the query")
            async with self._body(request, body_decoder) as body:
                return await self._worked(one, request, account, peer, path, query, body)
        except Refused as error:
            found = problem(error.status_code, error.detail, error.hint)
        except OrbitMQError as error:
            found = problem_of(error)
        if found.status == HTTPStatus.UNAUTHORIZED and account is not None:
            await self.links.refuse(account, peer)
        return response(found)

    async def _worked(
        self, one: Operation, request: Request, account: Credentials | None, peer: str, path: Any, query: Any, body: Any
    ) -> Response:
        caller = f"address {peer}" if account is None else f"account {account.access_key}"
        last_event_id = request.headers.get("last-event-id", "")
        if one.response is None:
            return await self._stream(one, account, peer, caller, path, query, last_event_id)
        async with self.links.use(account, peer) as link:
            call = Call(link, path, query, body, last_event_id, caller, self._prefetched)
            if not one.waits:
                return _json(await one.work(call))
            self.waiting.take(caller)
            try:
                return await self._unless_gone(one, call, request)
            finally:
                self.waiting.leave(caller)

    async def _unless_gone(self, one: Operation, call: Call[Any, Any, Any], request: Request) -> Response:
        """End the work when the caller has gone, or the gateway ends: it gives back what it has received."""
        loop = asyncio.get_running_loop()
        work = asyncio.ensure_future(one.work(call))
        gone, ended = loop.create_task(_disconnected(request)), loop.create_task(self._ended.wait())
        try:
            await asyncio.wait({work, gone, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise Refused(503, "the gateway stops, or the caller has gone")
            return _json(work.result())
        finally:
            for task in (work, gone, ended):
                task.cancel()
            await asyncio.gather(work, gone, ended, return_exceptions=True)

    async def _stream(
        self, one: Operation, account: Credentials | None, peer: str, caller: str, path: Any, query: Any, last_id: str
    ) -> Response:
        """The account's link is in use, and a place is taken, until the stream ends."""
        async with AsyncExitStack() as stack:
            self.streams.take(caller)
            stack.callback(self.streams.leave, caller)
            link = await stack.enter_async_context(self.links.use(account, peer))
            found = await one.work(Call(link, path, query, bodies.Nothing(), last_id, caller, self._prefetched))
            assert isinstance(found, EventStream)
            stack.push_async_callback(found.ended)
            return _Events(found, self._ended, stack.pop_all())

    # --------------------------------------------------------------------------------------------------------- checks

    def _check_caller(self, request: Request) -> None:
        """The host, and that no page of another site sent it: a browser adds what it knows of the account."""
        host = request.headers.get("host", "")
        host = host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]
        if self.settings.on_loopback or not _is_address(host):
            try:
                refuse_host(request, self.settings.hosts, open_to_all=self.settings.is_secure)
            except HTTPException as error:
                raise Refused(error.status_code, f"this gateway is not {host[:100]!r}") from error
        if not is_ours(request):
            raise Refused(403, _FOREIGN, "send it from a program, or from the server of the page")

    @asynccontextmanager
    async def _body(
        self, request: Request, decoder: msgspec.json.Decoder[bodies.Shape] | None
    ) -> AsyncIterator[bodies.Shape]:
        """The body, checked. It takes its part of the memory for bodies until the request is done."""
        if decoder is None:
            yield bodies.Nothing()
            return
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON:
            raise Refused(415, f"the Content-Type is {kind[:100]!r}, and not {JSON}")
        data, peer = bytearray(), _peer(request)
        try:
            async for piece in request.stream():
                self.bodies.take(peer, len(piece))
                data += piece
                if len(data) > BODY_BYTES_MAX:
                    raise Refused(413, f"a body of more than {BODY_BYTES_MAX} bytes")
            yield _decoded(bytes(data), decoder)
        except ClientDisconnect as error:
            raise Refused(400, "the body was cut off") from error
        finally:
            self.bodies.leave(peer, len(data))

    # ---------------------------------------------------------------------------------------------------------- pages

    def _page(self, page: Callable[[], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            try:
                self._check_caller(request)
                return await page()
            except Refused as error:
                return response(problem(error.status_code, error.detail, error.hint))
            except OrbitMQError as error:
                return response(problem_of(error))

        return serve

    async def _health(self) -> Response:
        return _json(bodies.Health(status="ok"))

    async def _readiness(self) -> Response:
        async with self.links.use(None, "") as link:
            if not await link.check_name_servers():
                raise Refused(503, "no broker is registered at the name servers", "start a broker")
        return _json(bodies.Health(status="ok"))

    async def _openapi(self) -> Response:
        return Response(self._document, media_type=JSON)

    async def _metrics(self) -> Response:
        found = await self._metrics_page.metrics()
        return Response(found.body, headers={"content-type": found.content_type})

    # --------------------------------------------------------------------------------------------------------- errors

    async def _http_error(self, request: Request, error: Exception) -> Response:
        """Of a path or a method that there is not."""
        assert isinstance(error, HTTPException)
        text = f"there is no {request.method[:20]} of {request.scope['path'][:300]}"
        return response(problem(error.status_code, text), error.headers)

    async def _bug(self, request: Request, error: Exception) -> Response:
        _log.error("event=request_failed path=%r", request.scope["path"], exc_info=error)
        return response(problem(500, "internal error"))


class _Headers:
    """Adds `HEADERS` to every response of an application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await self._app(scope, receive, with_headers)


class _Events(StreamingResponse):
    """Sends the events of a stream, and then ends it."""

    def __init__(self, stream: EventStream, ended: asyncio.Event, taken: AsyncExitStack) -> None:
        self._stream = stream
        self._taken = taken
        self._lasting = lasting(stream.events, stream.seconds, ended)
        super().__init__(self._lasting, media_type=EVENTS, headers={"x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._taken, aclosing(self._stream.events), aclosing(self._lasting):
            await super().__call__(scope, receive, send)


def _route(path: str, serve: Callable[[Request], Awaitable[Response]], method: str = "GET") -> Route:
    made = Route(path, serve, methods=[method])
    assert made.methods is not None
    made.methods.discard("HEAD")  # a stream would run for it
    return made


def _json(found: object) -> Response:
    return Response(msgspec.json.encode(found), media_type=JSON)


def _decoded(data: bytes, decoder: msgspec.json.Decoder[bodies.Shape]) -> bodies.Shape:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Refused(400, f"the body: {error}") from error


def _converted(given: Mapping[str, str], shape: type[bodies.Shape], what: str) -> bodies.Shape:
    try:
        return msgspec.convert(given, shape, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise Refused(400, f"{what}: {error}") from error


def _query_of(request: Request) -> dict[str, str]:
    """Refused if a parameter is given twice."""
    pairs = request.query_params.multi_items()
    found = dict(pairs)
    if len(found) != len(pairs):
        name = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise Refused(400, f"the query has the parameter {name[:100]!r} more than once")
    return found


def _peer(request: Request) -> str:
    return request.client.host if request.client else ""


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
