"""Reads the metrics of `table_native.NAMESRV` from a running name server. Must not know how they are served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from orbitmq.message.model import MASTER_ID
from orbitmq.metrics.connections import loop_delays, memory, refusals
from orbitmq.metrics.model import Readers, Sample
from orbitmq.namesrv.server import NameServer
from orbitmq.runtime.clock import Clock, SystemClock


class NamesrvMetrics:
    """The metrics of one name server."""

    def __init__(self, server: NameServer, clock: Clock | None = None) -> None:
        self._server = server
        self._clock = clock or SystemClock()

    @property
    def labels(self) -> dict[str, str]:
        """Labels of every series; a name server belongs to no cluster."""
        return {"cluster": "", "node_type": "namesrv", "node_id": self._server.address}

    async def prepare(self) -> None:
        """Nothing to do: no reader blocks."""

    def failure(self) -> str | None:
        """None: a name server has nothing that could fail."""
        return None

    def readers(self) -> Readers:
        """One reader for each metric of the table."""
        return {
            "orbitmq_namesrv_brokers": self._brokers,
            "orbitmq_namesrv_broker_has_master": self._masters,
            "orbitmq_namesrv_broker_other_masters": self._other_masters,
            "orbitmq_namesrv_broker_silent_seconds": self._silent,
            "orbitmq_namesrv_topics": lambda: [((), self._server.routes.topic_count)],
            "orbitmq_namesrv_connections": lambda: [((), self._server.connections)],
            "orbitmq_namesrv_connection_memory_bytes": lambda: memory(self._server.budgets),
            "orbitmq_namesrv_event_loop_delay_seconds": lambda: loop_delays(self._server.lateness),
            "orbitmq_namesrv_refusals_total": lambda: refusals(self._server.refusals),
        }

    def _brokers(self) -> Iterator[Sample]:
        counts: Counter[str] = Counter()
        for _, broker in self._server.routes.brokers():
            counts[broker.cluster] += len(broker.members)
        for cluster, count in counts.items():
            yield (cluster,), count

    def _masters(self) -> Iterator[Sample]:
        for name, broker in self._server.routes.brokers():
            yield (broker.cluster, name), MASTER_ID in broker.members

    def _other_masters(self) -> Iterator[Sample]:
        for name, broker in self._server.routes.brokers():
            yield (broker.cluster, name), len(broker.rivals)

    def _silent(self) -> Iterator[Sample]:
        now_ms = self._clock.now_ms()
        for name, broker in self._server.routes.brokers():
            for broker_id, member in list(broker.members.items()):
                yield (broker.cluster, name, str(broker_id)), max(0, now_ms - member.seen_ms) / 1000
