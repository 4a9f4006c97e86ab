"""Polls a whole cluster in rounds and serves the results: one process, bounded requests, a deadline.

A broker that does not respond, or a request that is refused, affects no other metrics. Must not know command lines.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from orbitmq.admin.session import Node, Session
from orbitmq.errors import OrbitMQError
from orbitmq.metrics.exporter_metrics import ExporterMetrics, View
from orbitmq.metrics.page import MetricsPage
from orbitmq.metrics.poller import BrokerPoller, Timer
from orbitmq.metrics.source import MetricsSection, Scrapes
from orbitmq.metrics.table_exporter import EXPORTER
from orbitmq.net.remoting import Remoting

_log = logging.getLogger(__name__)

JOB = "exporter"
NAME_SERVERS = "name servers"  # the target of failed requests to name servers
STALE_ROUNDS = 3  # results older than so many rounds are no longer served
STALE_SECONDS_MIN = 180.0  # but never after less than this time; a broker that restarts responds again by then


@dataclass(frozen=True, slots=True)
class ExporterSettings:
    """How the exporter polls a cluster."""

    interval_seconds: float = 15.0
    deadline_seconds: float = 30.0
    """Time for the requests to one broker in one round; the remaining ones come first in the next."""
    forget_seconds: float = 3600.0
    """How long a broker that is no longer registered is reported as down."""
    queue_series: int = 1000
    with_clients: bool = True
    steady_labels: bool = False

    @property
    def stale_seconds(self) -> float:
        return max(STALE_SECONDS_MIN, STALE_ROUNDS * (self.interval_seconds + self.deadline_seconds))


class Exporter:
    """`start` serves immediately; the first round follows. `first_round` is set when it is over."""

    def __init__(
        self,
        remoting: Remoting,
        name_servers: Sequence[str],
        settings: ExporterSettings | None = None,
        *,
        cluster: str | None = None,
        timer: Timer = time.monotonic,
    ) -> None:
        self.settings = settings or ExporterSettings()
        self._remoting = remoting
        self._name_servers = tuple(name_servers)
        self._cluster = cluster
        self._timer = timer
        self._begun = timer()
        self._pollers: dict[Node, BrokerPoller] = {}
        self._registered_at: dict[Node, float] = {}
        self._name_servers_at: float | None = None
        self._scrapes = Scrapes()
        self._rounds: asyncio.Task[None] | None = None
        self.first_round = asyncio.Event()
        metrics = ExporterMetrics(
            self._view,
            self._failure,
            lambda: self._name_servers_at,
            queue_series=self.settings.queue_series,
            steady_labels=self.settings.steady_labels,
        )
        self.page = MetricsPage((MetricsSection("page", EXPORTER, metrics),), scrapes=self._scrapes)

    @property
    def port(self) -> int:
        return self.page.port

    async def start(self, host: str, port: int) -> None:
        """ConfigurationError if it cannot listen on the port."""
        await self.page.start(host, port, "--port")
        self._rounds = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)
        await self.page.stop()

    async def _run(self) -> None:
        while True:
            begun = self._timer()
            try:
                await self.round()
            except Exception:  # go on with the next round
                _log.exception("event=round_failed")
            self.first_round.set()
            await asyncio.sleep(max(0.0, begun + self.settings.interval_seconds - self._timer()))

    async def round(self) -> None:
        """Query the name servers, then poll all brokers concurrently."""
        begun = self._timer()
        await self._find()
        data = {poller.node for poller in self._view().data}
        deadline = self.settings.deadline_seconds
        pollers = self._pollers.items()
        await asyncio.gather(*(poller.round(deadline, with_data=node in data) for node, poller in pollers))
        self._scrapes.durations[JOB] = self._timer() - begun

    async def _find(self) -> None:
        """Add registered brokers; remove those that have not been registered for a long time."""
        try:
            nodes = await Session(self._remoting, self._name_servers, cluster=self._cluster).nodes()
        except OrbitMQError as error:
            self._failed(NAME_SERVERS, str(error))
            return
        now = self._name_servers_at = self._timer()
        replaced = {(node.cluster, node.name, node.id) for node in nodes} | {node.address for node in nodes}
        for node in list(self._pollers):
            has_successor = (node.cluster, node.name, node.id) in replaced or node.address in replaced
            is_old = now - self._registered_at[node] > self.settings.forget_seconds
            if node not in nodes and (has_successor or is_old):
                del self._pollers[node], self._registered_at[node]
        for node in nodes:
            self._registered_at[node] = now
            if node not in self._pollers:
                self._pollers[node] = self._poller(node)

    def _poller(self, node: Node) -> BrokerPoller:
        return BrokerPoller(
            node,
            self._remoting,
            lambda reason: self._failed(str(node), reason),
            with_clients=self.settings.with_clients,
            timer=self._timer,
        )

    def _failed(self, target: str, reason: str) -> None:
        self._scrapes.errors[JOB, target] += 1
        _log.info("event=request_failed target=%s reason=%.300s", target, reason)

    def _view(self) -> View:
        now = self._timer()
        return View(self._pollers.values(), now, now - self.settings.stale_seconds)

    def _failure(self) -> str | None:
        """Why there are no new results."""
        last = self._begun if self._name_servers_at is None else self._name_servers_at
        age = self._timer() - last
        return f"no name server has responded for {age:.0f} s" if age > self.settings.stale_seconds else None
