"""Serves the metrics page of the daemons of a process if the options say so. Must not know how daemons are run.

The modules for the page are imported only then, to save memory.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from orbitmq.broker.broker import Broker
from orbitmq.message.hosts import address_text
from orbitmq.metrics.broker import BrokerMetrics
from orbitmq.metrics.namesrv import NamesrvMetrics
from orbitmq.metrics.options import MetricsOptions
from orbitmq.metrics.source import MetricsSection
from orbitmq.metrics.table_native import BROKER, NAMESRV, PROXY
from orbitmq.namesrv.server import NameServer

if TYPE_CHECKING:
    from orbitmq.proxy.proxy import Proxy

_log = logging.getLogger(__name__)


def parts_of(options: MetricsOptions, *daemons: Broker | NameServer | Proxy) -> tuple[MetricsSection, ...]:
    """The metrics of daemons; create them before the brokers start, to count everything. Empty if off."""
    return tuple(_part(options, daemon) for daemon in daemons) if options.is_on else ()


def _part(options: MetricsOptions, daemon: Broker | NameServer | Proxy) -> MetricsSection:
    if isinstance(daemon, Broker):
        return MetricsSection("broker", BROKER, BrokerMetrics(daemon, options.queue_series))
    if isinstance(daemon, NameServer):
        return MetricsSection("namesrv", NAMESRV, NamesrvMetrics(daemon))
    from orbitmq.metrics.proxy import ProxyMetrics  # it needs Protobuf, as the proxy does

    return MetricsSection("proxy", PROXY, ProxyMetrics(daemon))


@asynccontextmanager
async def served(options: MetricsOptions, parts: tuple[MetricsSection, ...]) -> AsyncIterator[str | None]:
    """Serve metrics while the context is open. Yields the address of the page, None if metrics are off.

    ConfigurationError if it cannot listen on the port.
    """
    if not options.is_on:
        yield None
        return
    from orbitmq.metrics.page import MetricsPage

    page = MetricsPage(parts)
    await page.start(options.host, options.port, "metricsPromExporterPort")
    address = f"http://{address_text(options.host, page.port)}/metrics"
    _log.info("event=metrics_served at=%s", address)
    try:
        yield address
    finally:
        await page.stop()
