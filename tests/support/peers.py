"""Both ends of a connection for tests: a server on a free port, and a bare peer of bytes and commands."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.net.server import Server
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder, encode_frame
from tests.support.loops import PATIENCE_SECONDS

LOOPBACK = "127.0.0.1"


@asynccontextmanager
async def serving(router: Router, **options: Any) -> AsyncIterator[tuple[Server, str]]:
    """A server and its address."""
    server = Server(router, **options)
    port = await server.start(LOOPBACK, 0)
    try:
        yield server, f"{LOOPBACK}:{port}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def remoting(router: Router | None = None, **options: Any) -> AsyncIterator[Remoting]:
    """An asking side that is closed at the end."""
    made = Remoting(router, **options)
    try:
        yield made
    finally:
        await made.close()


@contextmanager
def quiet_address() -> Iterator[str]:
    """An address where nobody listens and no other process begins to; a server of this test may."""
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind((LOOPBACK, 0))
        yield f"{LOOPBACK}:{keeper.getsockname()[1]}"


class BarePeer:
    """One TCP connection without orbitmq's own connection on this end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder(typed=False)
        self._ready: list[Command] = []

    async def send(self, *commands: Command) -> None:
        """Write the frames with one system call."""
        self.writer.write(b"".join(map(encode_frame, commands)))
        await self.writer.drain()

    async def read(self) -> Command:
        """The next command that comes."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self._ready:
                data = await self.reader.read(1 << 16)
                assert data, "the other side closed the connection"
                self._ready += self._decoder.feed(data)
        return self._ready.pop(0)

    async def ask(self, command: Command) -> Command:
        """Send, and read one answer."""
        await self.send(command)
        return await self.read()

    async def is_closed(self) -> bool:
        """Wait for the end of the stream; False when anything else comes."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def bare_peer(address: str, *, source: str | None = None) -> AsyncIterator[BarePeer]:
    """Connected to `address`, from the local address `source` if one is given."""
    host, _, port = address.rpartition(":")
    local = None if source is None else (source, 0)
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=local)
    try:
        yield BarePeer(reader, writer)
    finally:
        writer.close()
