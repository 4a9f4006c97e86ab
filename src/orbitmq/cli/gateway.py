"""The command `gateway`: its cluster and address, until it is stopped. Must not know an operation."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from orbitmq.cli.contexts import choose
from orbitmq.cli.daemons import run_until_stopped
from orbitmq.cli.exit_codes import one_line_errors
from orbitmq.cli.page_process import listen
from orbitmq.cli.tls import tls_settings
from orbitmq.cli.web_server import WebServer, is_loopback, serve_web
from orbitmq.dashboard.connection_limits import BoundedConnection
from orbitmq.errors import ConfigurationError
from orbitmq.gateway.app import Gateway, GatewaySettings
from orbitmq.gateway.limits import CONNECTIONS_MAX, REQUEST_SECONDS
from orbitmq.message.hosts import address_text
from orbitmq.runtime import logging


class GatewayFlags(NamedTuple):
    """The flags of `orbitmq gateway`."""

    name_servers: Sequence[str]
    context: str | None
    host: str
    port: int
    allowed_hosts: Sequence[str]
    proxies: Sequence[str]
    certificate: Path | None
    key: Path | None
    plain: bool


class GatewayConnection(BoundedConnection):
    """A connection with the limits of the gateway."""

    connections_max = CONNECTIONS_MAX
    request_seconds = REQUEST_SECONDS


def run(flags: GatewayFlags, log_level: logging.Level) -> None:
    """Ends with the process."""
    with one_line_errors("gateway"):
        context = choose(flags.name_servers, flags.context, None)
        if context.addresses:
            raise ConfigurationError(
                f"context {context.name} maps addresses; the gateway reaches brokers where they register"
            )
        web = WebServer(flags.certificate, flags.key, flags.proxies)
        if not (is_loopback(flags.host) or flags.certificate or flags.plain):
            raise ConfigurationError(
                f"--host {flags.host} is not a loopback address, and secrets and messages would cross the network in "
                "plain text; give --tls-cert and --tls-key, or --plain behind a proxy that ends TLS"
            )
        settings = GatewaySettings(
            context.name_servers,
            tls_settings(context),
            hosts=frozenset(name.lower() for name in flags.allowed_hosts),
            on_loopback=is_loopback(flags.host),
            is_secure=flags.certificate is not None,
        )
        listening = listen(flags.host, flags.port)
        run_until_stopped(lambda stopped: _serve(settings, listening, web, flags.host, stopped), log_level)


async def _serve(
    settings: GatewaySettings, listening: socket.socket, web: WebServer, host: str, stopped: asyncio.Event
) -> None:
    gateway = Gateway(settings)
    server = web.server(gateway.asgi, GatewayConnection)
    gateway.start()
    ending = asyncio.create_task(_end(gateway, stopped))
    try:
        address = address_text(host, listening.getsockname()[1])
        await serve_web(server, listening, stopped, "gateway", f"{web.scheme}://{address}/openapi.json")
    finally:
        ending.cancel()
        await gateway.stop()


async def _end(gateway: Gateway, stopped: asyncio.Event) -> None:
    """What waits ends with the signal, before the server closes its connections."""
    await stopped.wait()
    gateway.end()
