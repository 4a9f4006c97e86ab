"""One name server: builds, starts and stops its parts in order. Knows neither routes nor requests."""

from __future__ import annotations

import asyncio
import logging

from orbitmq.namesrv.handlers import Handlers
from orbitmq.namesrv.kv import KVConfig
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.routes import RouteTable
from orbitmq.net.connection import Connection
from orbitmq.net.connection_options import ConnectionOptions
from orbitmq.net.server import Server
from orbitmq.net.tls import ServerTls
from orbitmq.net.tls_options import TlsOptions
from orbitmq.runtime.clock import Clock, SystemClock
from orbitmq.runtime.form import form
from orbitmq.runtime.refusals import Limit, Refusals

_log = logging.getLogger(__name__)

SCAN_INTERVAL_SECONDS = 10.0
EVERY_ADDRESS = ("", "0.0.0.0")  # noqa: S104 - compared with, not bound to


class NameServer:
    """Serves routes until stopped. Start and stop it on one event loop; `port` is known once it is started.

    Without `tls` connections are plain.
    """

    def __init__(
        self,
        options: NamesrvOptions | None = None,
        *,
        clock: Clock | None = None,
        tls: TlsOptions | None = None,
        connections: ConnectionOptions | None = None,
    ) -> None:
        self.options = options or NamesrvOptions()
        self._clock = clock or SystemClock()
        self.refusals = Refusals()
        self.routes = RouteTable(self._left_out)
        self.kv = KVConfig(self.options.kv_config_file)
        self._handlers = Handlers(self.options, self.routes, self.kv, self._clock, self.refusals)
        self.router = self._handlers.router()
        self.router.limit_bodies(self.refusals)
        self._server = Server(
            self.router,
            on_close=self._handlers.connection_closed,
            idle_seconds=float(self.options.idle_seconds_max),
            tls=ServerTls(tls) if tls is not None else None,
            limits=connections,
            refusals=self.refusals,
        )
        self.budgets, self.lateness = self._server.budgets, self._server.lateness
        self._next_scan: asyncio.TimerHandle | None = None
        self.port = 0

    @property
    def address(self) -> str:
        """`host:port` to give to brokers and clients of this machine."""
        host = self.options.bind_address
        return f"{'127.0.0.1' if host in EVERY_ADDRESS else host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._server.connections)

    async def start(self) -> None:
        """Read the settings and listen. ConfigurationError: the port is taken; StoreDamaged: kvConfig.json is."""
        self.kv.load()
        self.port = await self._server.start(self.options.bind_address, self.options.listen_port)
        self._plan_scan()
        _log.info("event=namesrv_started address=%s form=%s", self.address, form())

    async def stop(self) -> None:
        """Respond to requests in flight and close every connection."""
        if self._next_scan is not None:
            self._next_scan.cancel()
            self._next_scan = None
        await self._server.stop()
        _log.info("event=namesrv_stopped address=%s", self.address)

    def _left_out(self, broker_name: str, count: int, limit: int) -> None:
        text = "event=topics_left_out broker=%.100s topics=%d limit=%d"
        self.refusals.note(Limit.ROUTES, _log, text, broker_name, count, limit)

    def scan(self) -> None:
        """Remove silent brokers and close their connections."""
        for member in self.routes.expire(self._clock.now_ms()):
            _log.warning("event=broker_gone address=%s reason=silent", member.address)
            if isinstance(member.owner, Connection):
                member.owner.close()

    def _plan_scan(self) -> None:
        self._next_scan = asyncio.get_running_loop().call_later(SCAN_INTERVAL_SECONDS, self._scan_and_plan)

    def _scan_and_plan(self) -> None:
        self.scan()
        self._plan_scan()
