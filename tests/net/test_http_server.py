"""What is served over HTTP: known paths, GET and HEAD, nothing without bounds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.net import http_server
from orbitmq.net.http_server import REQUEST_BYTES_MAX, HttpResponse, HttpServer
from tests.support.loops import LoopFactory, until


async def _hello() -> HttpResponse:
    return HttpResponse(b"hello" * 100_000)


async def _large() -> HttpResponse:
    return HttpResponse(b"hello" * 10_000_000)  # more than the kernel takes for a peer that does not read


async def _fails() -> HttpResponse:
    raise ValueError("a bug")


@asynccontextmanager
async def _serving(connections_max: int = 3) -> AsyncIterator[HttpServer]:
    server = HttpServer({"/hello": _hello, "/fails": _fails}, connections_max=connections_max)
    await server.start("127.0.0.1", 0, "port")
    try:
        yield server
    finally:
        await server.stop()


async def _ask(server: HttpServer, request: bytes) -> tuple[bytes, bytes]:
    """Head and body of what comes back until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
    writer.close()
    return head, body


def _request(method: str = "GET", path: str = "/hello") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()


async def test_a_page_is_served_whole(both_loops: LoopFactory) -> None:
    async with _serving() as server:
        head, body = await _ask(server, _request(path="/hello?from=prometheus"))
    assert head.startswith(b"HTTP/1.1 200")
    assert body == b"hello" * 100_000


async def test_head_gives_no_body() -> None:
    async with _serving() as server:
        head, body = await _ask(server, _request("HEAD"))
    assert b"Content-Length: 500000" in head
    assert not body


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (_request("POST"), 405),
        (_request("DELETE"), 405),
        (_request(path="/"), 404),
        (_request(path="/../etc/passwd"), 404),
        (_request(path="/hello%00"), 404),
        (_request(path="/fails"), 500),
        (b"no http\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: a\r\nX: a\r\n b\x00\r\n\r\n", 400),
        (b"GET /" + b"a" * (REQUEST_BYTES_MAX + 1), 431),
    ],
    ids=["post", "delete", "root", "above", "zero byte", "bug", "garbage", "no host", "bad header", "large"],
)
async def test_anything_else_is_refused_in_words(request_bytes: bytes, status: int) -> None:
    async with _serving() as server:
        head, body = await _ask(server, request_bytes)
    assert head.startswith(f"HTTP/1.1 {status}".encode())
    assert b"passwd" not in body
    assert b"a bug" not in body


async def test_further_connections_are_closed_and_those_before_served() -> None:
    async with _serving(connections_max=2) as server:
        first = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
        while len(server._tasks) < 2:  # noqa: ASYNC110 - they are accepted by the loop's next turns
            await asyncio.sleep(0)
        reader, _writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""
        first[0][1].write(_request())
        assert (await first[0][0].read()).endswith(b"hello")


async def test_a_peer_that_does_not_ask_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.05)
    async with _serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /hello")
        assert await reader.read() == b""


async def test_a_peer_that_does_not_read_is_cut_off(both_loops: LoopFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else answers pile up for peers that are counted no more."""
    monkeypatch.setattr(http_server, "RESPONSE_SECONDS", 0.05)
    writers: list[asyncio.StreamWriter] = []

    class Watched(HttpServer):
        async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            await super()._accepted(reader, writer)

    server = Watched({"/hello": _large})
    await server.start("127.0.0.1", 0, "port")
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.sendall(_request())
        await until(lambda: writers and writers[0].transport.is_closing(), "the end of the connection")
        async with asyncio.timeout(30):
            await writers[0].wait_closed()
        assert not server._tasks
    await server.stop()


async def test_a_port_that_is_taken_is_told_with_its_option() -> None:
    async with _serving() as server:
        with pytest.raises(ConfigurationError, match="option myPort"):
            await HttpServer({}).start("127.0.0.1", server.port, "myPort")
