"""The `health` commands, for probes: send a daemon one cheap request, print one line, and set the exit code.

Address and TLS are read from the daemon's own configuration, so a probe cannot differ from its daemon. Must not know
what daemons are made of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from orbitmq.broker.options import BrokerOptions
from orbitmq.cli import configuration
from orbitmq.cli.exit_codes import EXIT_FAILED, fail, one_line_errors
from orbitmq.errors import BrokerError, ConfigurationError, OrbitMQError, StorePoisoned
from orbitmq.message.hosts import address_text
from orbitmq.metrics.options import MetricsOptions
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.net.remoting import Remoting
from orbitmq.net.tls import client_context
from orbitmq.net.tls_options import ENFORCING, TlsOptions, with_tls_file
from orbitmq.operations.routes import cluster_info
from orbitmq.operations.statistics import runtime_info
from orbitmq.runtime.error_texts import translated
from orbitmq.store.options import StoreOptions

DENIED = "AclException"  # begins the remark for requests without an account; that of RocketMQ has the package before it
ON_THIS_MACHINE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound to

Look = Callable[[Remoting, str, float], Awaitable[str]]


def namesrv(config: Path | None, settings: Sequence[str], address: str | None, timeout_s: float) -> None:
    with one_line_errors("health namesrv"):
        pairs, _ = configuration.read(config, {}, NamesrvOptions, TlsOptions, MetricsOptions, settings=settings)
        options, tls = NamesrvOptions.parse(pairs), TlsOptions.parse(with_tls_file(pairs))
        place = address or place_of(options.bind_address, options.listen_port)
    _report("health namesrv", tls, _name_server, place, timeout_s)


def broker(config: Path | None, settings: Sequence[str], address: str | None, timeout_s: float) -> None:
    with one_line_errors("health broker"):
        known = (BrokerOptions, StoreOptions, TlsOptions, MetricsOptions)
        pairs, _ = configuration.read(config, {}, *known, settings=settings)
        options, tls = BrokerOptions.parse(pairs), TlsOptions.parse(with_tls_file(pairs))
        place = address or place_of(options.listen_address, options.listen_port)
    _report("health broker", tls, _broker, place, timeout_s)


def place_of(host: str, port: int) -> str:
    """The address to reach a daemon of this machine that listens on `host` and `port`."""
    if port == 0:
        raise ConfigurationError("listenPort is 0, any free port: use --address")
    return address_text(ON_THIS_MACHINE.get(host, host), port)


def _report(command: str, tls: TlsOptions, look: Look, address: str, timeout_s: float) -> None:
    """Ends the process with 1 and the reason unless `look` finds the daemon ready."""
    try:
        line = asyncio.run(_probe(tls, look, address, timeout_s * 1000))
    except OrbitMQError as error:
        fail(command, f"{address} is not ready: {error}", EXIT_FAILED)
    print(translated(f"{address} is ready: {line}"))


async def _probe(tls: TlsOptions, look: Look, address: str, timeout_ms: float) -> str:
    context = client_context(tls) if tls.mode == ENFORCING else None
    remoting = Remoting(connect_timeout_ms=timeout_ms, tls=context)
    try:
        return await look(remoting, address, timeout_ms)
    finally:
        await remoting.close()


async def _name_server(remoting: Remoting, address: str, timeout_ms: float) -> str:
    known = await cluster_info(remoting, address, timeout_ms=timeout_ms)
    return f"broker names known: {len(known.brokers)}"


async def _broker(remoting: Remoting, address: str, timeout_ms: float) -> str:
    """A broker responds once its store is open, so even a refusal for lack of an account shows that it is ready."""
    try:
        metrics = await runtime_info(remoting, address, timeout_ms=timeout_ms)
    except BrokerError as error:
        if DENIED not in error.remark:
            raise
        return "it requires an account"
    if metrics.get("brokerActive") == "false":
        raise StorePoisoned("its disk has failed; it stores nothing until it is restarted")
    return f"log from {metrics.get('commitLogMinOffset', '?')} to {metrics.get('commitLogMaxOffset', '?')}"
