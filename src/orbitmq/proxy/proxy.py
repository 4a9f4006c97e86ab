"""A front of its own process, for a cluster of several brokers, of orbitmq or of RocketMQ."""

from __future__ import annotations

import logging

from orbitmq.errors import ConfigurationError
from orbitmq.message.hosts import address_text
from orbitmq.net.connection_options import ConnectionOptions
from orbitmq.net.tls import ServerTls, client_context
from orbitmq.net.tls_options import TlsOptions
from orbitmq.proxy.backend import Accounts
from orbitmq.proxy.cluster import ClusterBackend
from orbitmq.proxy.front import Front
from orbitmq.proxy.options import ProxyOptions
from orbitmq.runtime.clock import Clock, SystemClock
from orbitmq.runtime.form import form
from orbitmq.runtime.refusals import Refusals
from orbitmq.wire.signature import Credentials

_log = logging.getLogger(__name__)


class Proxy:
    """Serves until stopped. Without `accounts` signatures are not checked."""

    def __init__(
        self,
        options: ProxyOptions,
        *,
        clock: Clock | None = None,
        tls: TlsOptions | None = None,
        connections: ConnectionOptions | None = None,
        accounts: Accounts | None = None,
    ) -> None:
        if not options.name_servers:
            raise ConfigurationError("option namesrvAddr: name at least one name server of the cluster, host:port")
        self.options = options
        self.refusals = Refusals()
        own = Credentials(options.access_key, options.secret_key) if options.access_key else None
        clock = clock or SystemClock()
        self._backend = ClusterBackend(
            options.name_servers, clock, delay_max_ms=options.max_delay_time_ms, accounts=accounts, credentials=own,
            tls=client_context(tls) if tls is not None and tls.uses_tls else None,
        )  # fmt: skip
        self.front = Front(
            self._backend, clock, host=options.host, tls=ServerTls(tls) if tls is not None else None,
            limits=connections or ConnectionOptions(), refusals=self.refusals,
        )  # fmt: skip

    @property
    def port(self) -> int:
        return self.front.port

    @property
    def address(self) -> str:
        return address_text(self.options.host, self.port)

    async def start(self) -> None:
        await self.front.bind(self.options.bind_address, self.options.grpc_server_port)
        await self.front.serve()
        _log.info("event=proxy_started address=%s form=%s", self.address, form())

    async def stop(self) -> None:
        await self.front.stop()
        await self._backend.stop()
        _log.info("event=proxy_stopped address=%s", self.address)
