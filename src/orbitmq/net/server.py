"""Listens, accepts, closes the idle, stops gracefully. Must not know what any request means."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from orbitmq.errors import ConfigurationError, ConnectError
from orbitmq.net.budget import Budgets
from orbitmq.net.connection import Connection
from orbitmq.net.connection_options import ConnectionOptions
from orbitmq.net.lateness import Lateness
from orbitmq.net.memory import connect
from orbitmq.net.protocol_detector import Accepted, opener
from orbitmq.net.routing import Router
from orbitmq.net.tls import ServerTls
from orbitmq.runtime.limits import CONNECTIONS_SHARE, open_files
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.wire.frame import FRAME_SIZE_MAX
from orbitmq.wire.objects import STRANGERS

if TYPE_CHECKING:
    from orbitmq.net.grpc_server import GrpcServer

_log = logging.getLogger(__name__)

IDLE_SECONDS = 120.0  # RocketMQ's serverChannelMaxIdleTimeSeconds
IDLE_SCAN_SECONDS = 10.0
BACKLOG = 1024
CLOSED_A_TURN = 200  # idle connections per turn of the event loop: some 5 ms
IDLE_LINES = 20  # logged one by one when many are closed together


C = TypeVar("C", bound=Accepted)


async def serve(server: asyncio.Server) -> None:
    """Accept connections on what was bound before. ConfigurationError if another process serves one of its ports now,
    since those that bind a port with SO_REUSEADDR share it until the first of them listens.
    """
    for bound in server.sockets:
        host, port = bound.getsockname()[:2]
        with socket.socket(fileno=os.dup(bound.fileno())) as same:  # uvloop drops the error, and a socket that is deaf
            try:
                same.listen(BACKLOG)
                # Connections inherit it. Of those that are closing all must have it when the port is bound again.
                same.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            except OSError as error:
                reason = error.strerror
                raise ConfigurationError(f"cannot listen on {host}:{port}: {reason}") from error
    await server.start_serving()


class Listener(Generic[C]):
    """Listening sockets and their connections, of any protocol; `tls` says whether these may or must be encrypted."""

    def __init__(
        self,
        accept: Callable[[], C],
        *,
        on_open: Callable[[C], None] | None = None,
        on_close: Callable[[C], None] | None = None,
        idle_seconds: float = IDLE_SECONDS,
        limits: ConnectionOptions | None = None,
        tls: ServerTls | None = None,
        refusals: Refusals | None = None,
        accept_grpc: Callable[[], Accepted] | None = None,
    ) -> None:
        """`accept` makes a connection that calls `_opened` and `_closed`; `accept_grpc` one of another server, for
        peers that begin with HTTP/2.
        """
        self._tls = tls
        self._open = opener(accept, tls, accept_grpc)
        self._on_open = on_open
        self._on_close = on_close
        self._idle_seconds = idle_seconds
        self._limits = limits or ConnectionOptions()
        self._connections_max = self._limits.connections_max
        self._hosts: Counter[str] = Counter()  # address -> its connections
        self._servers: list[asyncio.Server] = []
        self._is_stopped = False
        self._scan: asyncio.TimerHandle | None = None
        self._refusals = refusals or Refusals()
        self.budgets = Budgets(self._limits.memory_max, self._refusals)
        self.connections: set[C] = set()

    async def start(self, host: str, port: int) -> int:
        """`bind`, then `serve`; returns the port."""
        bound = await self.bind(host, port)
        await self.serve()
        return bound

    async def bind(self, host: str, port: int, *, reuse: bool = True) -> int:
        """Take `host` (empty: every address) and `port` (0: any free one) without accepting yet; returns the port.

        `reuse` takes a given port though connections of an earlier process are closing, and though another process has
        bound it that way and does not listen: `serve` says which of them has it.
        ConfigurationError in one line when the port is taken or the address is not this machine's, or the certificate
        cannot be used.
        """
        loop = asyncio.get_running_loop()
        if self._tls is not None and not self._servers:
            self._tls.load()
        try:
            server = await loop.create_server(
                self._open,
                host or None,
                port,
                backlog=BACKLOG,
                start_serving=False,
                reuse_address=reuse and port != 0,
            )
        except OSError as error:
            reason = os.strerror(error.errno or errno.EADDRNOTAVAIL)  # asyncio of 3.13 gives no number then
            raise ConfigurationError(f"cannot listen on {host or '*'}:{port}: {reason}") from error
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def release(self) -> None:
        """Give back every port that was bound and is not served yet."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def serve(self) -> None:
        """Accept connections on everything bound. ConfigurationError as in `bind`: some systems report it only now."""
        self._is_stopped = False
        for server in self._servers:
            await serve(server)
        if self._tls is not None:
            self._tls.start()
        if self._scan is None:
            self._limit_connections()
            self._plan_scan()

    def _limit_connections(self) -> None:
        """No more than the files a process may open allow: without any left the store could not go on."""
        allowed = max(1, open_files() // CONNECTIONS_SHARE)
        if allowed < self._connections_max:
            _log.info("event=few_open_files connections=%d wanted=%d", allowed, self._connections_max)
            self._connections_max = allowed

    def _opened(self, connection: C) -> None:
        # Another server may still accept for a stopped one: such a connection would never be closed.
        if self._is_stopped or self._is_refused(connection):
            connection.abort()
            return
        self.connections.add(connection)
        self._hosts[connection.peer[0]] += 1
        if self._on_open:
            self._on_open(connection)

    def _is_refused(self, connection: C) -> bool:
        note, peer = self._refusals.note, connection.address
        if len(self.connections) >= self._connections_max:
            text = "event=too_many_connections peer=%s limit=%d"
            note(Limit.CONNECTIONS, _log, text, peer, self._connections_max)
            return True
        if self._hosts[connection.peer[0]] >= self._limits.host_connections_max:
            text = "event=too_many_connections_of_one_host peer=%s limit=%d"
            note(Limit.HOST_CONNECTIONS, _log, text, peer, self._limits.host_connections_max)
            return True
        return False

    def _closed(self, connection: C) -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            if connection.place_until > connection.loop.time():
                connection.loop.call_at(connection.place_until, self._leave_place, connection.peer[0])
            else:
                self._leave_place(connection.peer[0])
            if self._on_close:
                self._on_close(connection)

    def _leave_place(self, host: str) -> None:
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]

    def _plan_scan(self) -> None:
        seconds = min(IDLE_SCAN_SECONDS, self._limits.frame_timeout_ms / 2000)
        self._scan = asyncio.get_running_loop().call_later(seconds, self._close_stale)

    def _close_stale(self) -> None:
        """Close connections that have been silent, or had an incomplete request, for too long."""
        now = asyncio.get_running_loop().time()
        frames_from = now - self._limits.frame_timeout_ms / 1000
        for connection in [c for c in self.connections if c.frame_since < frames_from]:
            text = "event=frame_too_slow peer=%s limit_ms=%d"
            self._refusals.note(Limit.FRAME_TIME, _log, text, connection.address, self._limits.frame_timeout_ms)
            connection.abort()
        self._close_idle(deque(c for c in self.connections if c.last_active < now - self._idle_seconds))
        self._plan_scan()

    def _close_idle(self, idle: deque[C]) -> None:
        for _ in range(min(CLOSED_A_TURN, len(idle))):
            connection = idle.popleft()
            self._refusals.log(
                _log, "event=idle_closed peer=%s", connection.address, level=logging.INFO, lines=IDLE_LINES
            )
            self._retire(connection)
        if idle:
            asyncio.get_running_loop().call_soon(self._close_idle, idle)

    def _retire(self, connection: C) -> None:
        """Close a connection that is idle."""
        connection.close()

    async def stop(self, grace_seconds: float = 3.0) -> None:
        """Stop accepting, give requests in flight `grace_seconds`, then close everything."""
        self._is_stopped = True
        if self._scan is not None:
            self._scan.cancel()
            self._scan = None
        for server in self._servers:
            server.close()
        if self._tls is not None:
            await self._tls.stop()
        await self._settle(grace_seconds)
        for connection in list(self.connections):
            connection.close()
        self._servers.clear()
        await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.abort()

    async def _settle(self, grace_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_seconds
        while loop.time() < deadline and not all(c.is_idle for c in self.connections):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)


class Server(Listener[Connection]):
    """The server of a router: remoting connections, and on the same port, with `grpc`, those of that server."""

    def __init__(
        self,
        router: Router,
        *,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
        idle_seconds: float = IDLE_SECONDS,
        limits: ConnectionOptions | None = None,
        frame_size_max: int = FRAME_SIZE_MAX,
        typed: bool = True,
        tls: ServerTls | None = None,
        refusals: Refusals | None = None,
        grpc: GrpcServer | None = None,
    ) -> None:
        """`grpc` must be served, too: it counts, limits and closes the connections that it takes over."""
        super().__init__(
            self._accept,
            on_open=on_open,
            on_close=on_close,
            idle_seconds=idle_seconds,
            limits=limits,
            tls=tls,
            refusals=refusals,
            accept_grpc=grpc.accept if grpc is not None else None,
        )
        self._router = router
        self._frame_size_max = frame_size_max
        self._typed = typed
        self.lateness = Lateness(each=STRANGERS.refill, refusals=self._refusals)

    async def serve(self) -> None:
        await super().serve()
        self.lateness.start()

    async def stop(self, grace_seconds: float = 3.0) -> None:
        self.lateness.stop()
        await super().stop(grace_seconds)

    def _accept(self) -> Connection:
        return Connection(
            self._router,
            on_open=self._opened,
            on_close=self._closed,
            frame_size_max=self._frame_size_max,
            typed=self._typed,
            lateness=self.lateness,
            budgets=self.budgets,
            refusals=self._refusals,
        )

    def connect_inside(
        self, make: Callable[[], Connection], peer: tuple[str, int], address: tuple[str, int]
    ) -> Connection:
        """A connection from this process, which counts as one of `peer` to `address`. ConnectError if it is refused."""
        made, accepted = make(), self._accept()
        connect(made, accepted, peer, address)
        if not self._servers or not accepted.is_open:
            made.abort()
            raise ConnectError(f"{address[0]}:{address[1]} takes no more connections")
        return made
