"""The web server of `dashboard` and `gateway`: certificate, trusted proxies, start and end. Must not know its pages."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from orbitmq.cli.daemons import serve
from orbitmq.dashboard.connection_limits import BoundedConnection
from orbitmq.errors import ConfigurationError

STOP_SECONDS = 3  # for requests in flight


@dataclass(frozen=True, slots=True)
class WebServer:
    """The flags of a web server. ConfigurationError for a certificate without a key, or a proxy without address."""

    certificate: Path | None
    key: Path | None
    proxies: Sequence[str]

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigurationError("--tls-cert and --tls-key belong together")
        for text in self.proxies:  # uvicorn would take names for addresses that never match, and `*` for all addresses
            try:
                ipaddress.ip_network(text)
            except ValueError as error:
                raise ConfigurationError(f"--proxy: {error}") from error

    @property
    def scheme(self) -> str:
        return "http" if self.certificate is None else "https"

    def server(self, asgi: ASGIApp, connection: type[BoundedConnection]) -> uvicorn.Server:
        """The server of an application. ConfigurationError if the certificate cannot be read."""
        config = uvicorn.Config(
            asgi,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(self.proxies),
            forwarded_allow_ips=list(self.proxies),
            limit_concurrency=connection.connections_max,
            timeout_graceful_shutdown=STOP_SECONDS,
            ssl_certfile=self.certificate,
            ssl_keyfile=self.key,
            ws="none",
            http=connection,
        )
        try:
            config.load()
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"--tls-cert {self.certificate}, --tls-key {self.key}: {error}") from error
        return _Server(config)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def serve_web(
    server: uvicorn.Server, listening: socket.socket, stopped: asyncio.Event, name: str, address: str
) -> None:
    """Report the address, then serve until `stopped` is set; requests in flight have `STOP_SECONDS` to end."""
    serving = asyncio.create_task(server.serve([listening]))
    try:
        ended = asyncio.create_task(_first(stopped, serving))
        await serve(ended, f"  {name:<12} {address}\n")
    finally:
        server.should_exit = True
        await serving


async def _first(stopped: asyncio.Event, task: asyncio.Task[None]) -> None:
    waiting = asyncio.create_task(stopped.wait())
    await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


class _Server(uvicorn.Server):
    """Leaves signals to the process that runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
