"""Listens, accepts, closes the idle, stops gracefully. Must not know what any request means."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

from orbitmq.errors import ConfigurationError
from orbitmq.net.budget import FrameBudget
from orbitmq.net.connection import Connection
from orbitmq.net.door import opener
from orbitmq.net.lateness import Lateness
from orbitmq.net.routing import Router
from orbitmq.net.tls import ServerTls
from orbitmq.wire.frame import FRAME_SIZE_MAX

_log = logging.getLogger(__name__)

IDLE_SECONDS = 120.0  # RocketMQ's serverChannelMaxIdleTimeSeconds
IDLE_SCAN_SECONDS = 10.0
BACKLOG = 1024
CONNECTIONS_MAX = 20_000  # about 10 KiB each when quiet; keeps a flood of connections from taking the memory


class Server:
    """Listening sockets and their connections; `tls` says whether those may be, or have to be, encrypted."""

    def __init__(
        self,
        router: Router,
        *,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
        idle_seconds: float = IDLE_SECONDS,
        connections_max: int = CONNECTIONS_MAX,
        frame_size_max: int = FRAME_SIZE_MAX,
        typed: bool = True,
        tls: ServerTls | None = None,
    ) -> None:
        self._router = router
        self._tls = tls
        self._open = opener(self._accept, tls)
        self._on_open = on_open
        self._on_close = on_close
        self._idle_seconds = idle_seconds
        self._connections_max = connections_max
        self._frame_size_max = frame_size_max
        self._typed = typed
        self._servers: list[asyncio.Server] = []
        self._scan: asyncio.TimerHandle | None = None
        self._lateness = Lateness()
        self._budget = FrameBudget()
        self.connections: set[Connection] = set()

    def waited_ms(self) -> int:
        """How long at most what is read now has waited, because the event loop was busy."""
        return int(self._lateness.waited_ms())

    async def start(self, host: str, port: int) -> int:
        """`bind`, then `serve`; returns the port."""
        bound = await self.bind(host, port)
        await self.serve()
        return bound

    async def bind(self, host: str, port: int) -> int:
        """Take `host` (empty: every address) and `port` (0: any free one) without accepting yet; returns the port.

        ConfigurationError in one line when the port is taken or the address is not this machine's, or the certificate
        cannot be used.
        """
        loop = asyncio.get_running_loop()
        if self._tls is not None and not self._servers:
            self._tls.load()
        try:
            server = await loop.create_server(self._open, host or None, port, backlog=BACKLOG, start_serving=False)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConfigurationError(f"cannot listen on {host or '*'}:{port}: {reason}") from error
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def release(self) -> None:
        """Give back every port that was bound and is not served yet."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def serve(self) -> None:
        """Accept connections on everything bound. ConfigurationError as in `bind`: some systems tell only now."""
        for server in self._servers:
            try:
                await server.start_serving()
            except OSError as error:
                raise ConfigurationError(f"cannot listen: {error.strerror or error}") from error
        if self._tls is not None:
            self._tls.start()
        self._lateness.start()
        if self._scan is None:
            self._scan = asyncio.get_running_loop().call_later(IDLE_SCAN_SECONDS, self._close_idle)

    def _accept(self) -> Connection:
        return Connection(
            self._router,
            on_open=self._opened,
            on_close=self._closed,
            frame_size_max=self._frame_size_max,
            typed=self._typed,
            waited_ms=self._lateness.waited_ms,
            budget=self._budget,
        )

    def _opened(self, connection: Connection) -> None:
        if len(self.connections) >= self._connections_max:
            _log.warning("event=too_many_connections peer=%s limit=%d", connection.address, self._connections_max)
            connection.abort()
            return
        self.connections.add(connection)
        if self._on_open:
            self._on_open(connection)

    def _closed(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            if self._on_close:
                self._on_close(connection)

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() - self._idle_seconds
        for connection in [c for c in self.connections if c.last_active < deadline]:
            _log.info("event=idle_closed peer=%s", connection.address)
            connection.close()
        self._scan = loop.call_later(IDLE_SCAN_SECONDS, self._close_idle)

    async def stop(self, grace_seconds: float = 3.0) -> None:
        """Stop accepting, give answers under way `grace_seconds`, then close everything."""
        if self._scan is not None:
            self._scan.cancel()
            self._scan = None
        self._lateness.stop()
        for server in self._servers:
            server.close()
        if self._tls is not None:
            await self._tls.stop()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_seconds
        while loop.time() < deadline and not all(c.is_idle for c in self.connections):  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.close()
        self._servers.clear()
        await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.abort()
