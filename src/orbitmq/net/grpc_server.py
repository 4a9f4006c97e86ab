"""A server of gRPC: plain connections with prior knowledge of HTTP/2, and encrypted ones, on one port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from orbitmq.net.connection_options import ConnectionOptions
from orbitmq.net.grpc import Method
from orbitmq.net.grpc_connection import GrpcConnection
from orbitmq.net.server import IDLE_SECONDS, Listener
from orbitmq.net.tls import ServerTls
from orbitmq.runtime.refusals import Refusals
from orbitmq.wire.http2.grpc import MESSAGE_SIZE_MAX


class GrpcServer(Listener[GrpcConnection]):
    """`methods` by their paths, `/package.Service/Method`; it may change while the server runs.

    `idle_seconds`: a connection without an open call for so long gets GOAWAY. Pings do not count.
    `message_size_max`: bytes of one request message.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        *,
        tls: ServerTls | None = None,
        limits: ConnectionOptions | None = None,
        refusals: Refusals | None = None,
        idle_seconds: float = IDLE_SECONDS,
        message_size_max: int = MESSAGE_SIZE_MAX,
        on_open: Callable[[GrpcConnection], None] | None = None,
        on_close: Callable[[GrpcConnection], None] | None = None,
    ) -> None:
        super().__init__(
            self.accept,
            on_open=on_open,
            on_close=on_close,
            idle_seconds=idle_seconds,
            limits=limits,
            tls=tls,
            refusals=refusals,
        )
        self._methods = methods
        self._message_size_max = message_size_max

    def accept(self) -> GrpcConnection:
        """A connection of this server, for a transport that it has accepted or another server gives it."""
        return GrpcConnection(
            self._methods,
            on_open=self._opened,
            on_close=self._closed,
            message_size_max=self._message_size_max,
            budgets=self.budgets,
            refusals=self._refusals,
        )

    def _retire(self, connection: GrpcConnection) -> None:
        connection.drain()

    def _close_stale(self) -> None:
        before = asyncio.get_running_loop().time() - self._limits.frame_timeout_ms / 1000
        for connection in self.connections:
            connection.end_slow(before)
        super()._close_stale()

    async def _settle(self, grace_seconds: float) -> None:
        for connection in list(self.connections):
            connection.drain()
        await super()._settle(grace_seconds)
