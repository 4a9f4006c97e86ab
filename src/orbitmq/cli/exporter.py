"""The command `exporter`: its cluster and account, until it is stopped. Must not know which requests it sends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from orbitmq.cli.contexts import Context, choose
from orbitmq.cli.daemons import run_until_stopped, serve
from orbitmq.cli.exit_codes import one_line_errors
from orbitmq.cli.tls import tls_context
from orbitmq.message.hosts import address_text
from orbitmq.metrics.exporter import Exporter, ExporterSettings
from orbitmq.net.remoting import Remoting
from orbitmq.runtime import logging
from orbitmq.wire.signature import sign

__all__ = ["ExportedCluster", "ExporterSettings", "run"]


class ExportedCluster(NamedTuple):
    """The flags that select the cluster."""

    name_servers: Sequence[str]
    context: str | None
    cluster: str | None
    mapped: Sequence[str]


def run(place: ExportedCluster, host: str, port: int, settings: ExporterSettings, log_level: logging.Level) -> None:
    """Ends with the process."""
    with one_line_errors("exporter"):
        context = choose(*place[:4])
        remoting = partial(_remoting, context)
        run_until_stopped(lambda stopped: _serve(context, remoting(), host, port, settings, stopped), log_level)


def _remoting(context: Context) -> Remoting:
    credentials = context.credentials()
    return Remoting(
        sign=None if credentials is None else partial(sign, credentials=credentials),
        direct=None if not context.addresses else lambda address, _: context.addresses.get(address, address),
        tls=tls_context(context),
    )


async def _serve(
    context: Context, remoting: Remoting, host: str, port: int, settings: ExporterSettings, stopped: asyncio.Event
) -> None:
    exporter = Exporter(remoting, context.name_servers, settings, cluster=context.cluster)
    try:
        await exporter.start(host, port)
        await serve(stopped.wait(), f"metrics      http://{address_text(host, exporter.port)}/metrics\n")
    finally:
        await exporter.stop()
        await remoting.close()
