"""A minimal HTTP server for metrics and health: GET and HEAD of known paths, one request a connection, all bounded.

Requests are parsed by h11. Knows nothing of what is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import h11

from orbitmq.errors import ConfigurationError

_log = logging.getLogger(__name__)

CONNECTIONS_MAX = 32  # scrapers are few; each further one is closed immediately
REQUEST_BYTES_MAX = 16 << 10  # of the request line and headers; a larger request is refused
REQUEST_SECONDS = 10.0  # for a peer to send its request
RESPONSE_SECONDS = 60.0  # to make and send the response; Prometheus gives up after 10 by default
PIECE_BYTES = 64 << 10  # written before waiting for the peer
READ_BYTES = 4096

Headers = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


PageHandler = Callable[[], Awaitable[HttpResponse]]


class HttpServer:
    """Serves `pages` (path -> page). `port` is known after the start."""

    def __init__(self, pages: Mapping[str, PageHandler], *, connections_max: int = CONNECTIONS_MAX) -> None:
        self._pages = pages
        self._connections_max = connections_max
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int, option: str) -> None:
        """ConfigurationError, which names `option`, if it cannot listen on the port."""
        try:
            self._server = await asyncio.start_server(self._accepted, host, port, limit=REQUEST_BYTES_MAX)
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(f"option {option}: cannot listen on {host}:{port}: {error}") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close all connections: a scraper repeats a scrape that is cut off."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if len(self._tasks) < self._connections_max:
                self._tasks.add(task)
                await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError) as error:  # only `stop` cancels this task
            _log.debug("event=http_connection_lost reason=%r", error)
            writer.transport.abort()  # `close` would wait for a peer that does not read its response
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await _request(http, reader)
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint
            await _send(http, writer, HttpResponse(f"{error}\n".encode(), status=status), with_body=True)
            return
        if request is None:
            return
        async with asyncio.timeout(RESPONSE_SECONDS):
            response = await self._respond(request)
            await _send(http, writer, response, with_body=request.method != b"HEAD")
            writer.close()
            await writer.wait_closed()  # the response is open until the peer has read what is buffered

    async def _respond(self, request: h11.Request) -> HttpResponse:
        if request.method not in (b"GET", b"HEAD"):
            return HttpResponse(b"only GET and HEAD\n", status=405)
        path = request.target.split(b"?", 1)[0].decode("latin-1")
        page = self._pages.get(path)
        if page is None:
            return HttpResponse(f"not found; available: {', '.join(self._pages)}\n".encode(), status=404)
        try:
            return await page()
        except Exception:  # a page that fails must not end the daemon
            _log.exception("event=page_failed path=%s", path)
            return HttpResponse(b"internal error; see the log\n", status=500)


async def _request(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """The head of a request; None if the peer has closed the connection. A body is not read."""
    while True:
        event = http.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None
        http.receive_data(await reader.read(READ_BYTES))


async def _send(http: h11.Connection, writer: asyncio.StreamWriter, response: HttpResponse, *, with_body: bool) -> None:
    headers: Headers = [
        ("Content-Type", response.content_type),
        ("Content-Length", str(len(response.body))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", "close"),
    ]
    if response.status == 405:
        headers.append(("Allow", "GET, HEAD"))
    writer.write(http.send(h11.Response(status_code=response.status, headers=headers)) or b"")
    if with_body:
        view = memoryview(response.body)
        for start in range(0, len(view), PIECE_BYTES):
            writer.write(view[start : start + PIECE_BYTES])
            await writer.drain()
    await writer.drain()
    if writer.can_write_eof():
        with contextlib.suppress(OSError):
            writer.write_eof()
