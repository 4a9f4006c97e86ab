"""Reads the metrics of `table_native.PROXY` from a running proxy. Must not know how they are served."""

from __future__ import annotations

from orbitmq.metrics.connections import memory, refusals
from orbitmq.metrics.model import Readers
from orbitmq.proxy.proxy import Proxy


class ProxyMetrics:
    """The metrics of one proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    @property
    def labels(self) -> dict[str, str]:
        """Labels of every series; a proxy finds its cluster by the name servers, which have no name for it."""
        return {"cluster": "", "node_type": "proxy", "node_id": self._proxy.address}

    async def prepare(self) -> None:
        """Nothing to do: no reader blocks."""

    def failure(self) -> str | None:
        """None: a proxy has nothing that could fail; brokers and name servers have their own health."""
        return None

    def readers(self) -> Readers:
        """One reader for each metric of the table."""
        front = self._proxy.front
        return {
            "orbitmq_proxy_connections": lambda: [((), len(front.server.connections))],
            "orbitmq_proxy_clients": lambda: [((), len(front.sessions))],
            "orbitmq_proxy_calls_total": lambda: [((name,), one.count) for name, one in front.methods.items()],
            "orbitmq_proxy_connection_memory_bytes": lambda: memory(front.server.budgets),
            "orbitmq_proxy_refusals_total": lambda: refusals(self._proxy.refusals),
        }
