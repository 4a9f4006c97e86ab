"""Takes snapshots of a cluster for a stream, and tolerates brokers that are unavailable for a while.

A stream plans by the offsets of masters: a slave may lag, and messages that it lacks would look lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from orbitmq.errors import SourceError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster_client import NO_RETRIES, BrokerAddresses, ClusterClient, require_open
from orbitmq.spark.group_offsets import by_broker
from orbitmq.spark.next_batch import ClusterSnapshot
from orbitmq.spark.offsets import Bounds
from orbitmq.spark.queue_selection import QueueSelection

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class UnavailablePolicy:
    """Whether to hold the queues of unavailable brokers, and for how long."""

    hold: bool
    timeout_ms: int


class ClusterMonitor:
    """Watches the queues of a stream. `places` has the broker addresses of the last snapshot, for the tasks. A broker
    of `expected` without a queue of the stream does not respond, even if the stream never saw it."""

    def __init__(
        self,
        cluster: ClusterClient,
        selection: QueueSelection,
        policy: UnavailablePolicy,
        expected: Collection[str] = (),
        *,
        strict: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._selection = selection
        self._policy = policy
        self._expected = expected
        self._strict = strict
        self._clock = clock
        self._down_since: dict[str, float] = {}
        self.places: dict[MessageQueue, BrokerAddresses] = {}

    @property
    def down(self) -> frozenset[str]:
        """The brokers that did not respond at the last snapshot."""
        return frozenset(self._down_since)

    def snapshot(self, known: Iterable[MessageQueue]) -> ClusterSnapshot:
        """The offsets of the cluster now. `known` are the queues of the stream so far.

        SourceError when a broker did not respond for longer than allowed or rejects a request, and when a queue may not
        be read.
        """
        known = frozenset(known)
        self.places = self._find_queues(known)
        bounds, failures = self._bounds()
        missing = {queue for queue in known if queue not in self.places and self._selection.includes(queue)}
        registered = self._cluster.info().brokers if missing else {}
        for queue in missing:
            if queue.broker_name not in registered:
                failures.setdefault(queue.broker_name, "no name server knows it")
        for name in set(self._expected) - {queue.broker_name for queue in self.places}:
            failures.setdefault(name, "option expectBrokers names it, but no name server knows a queue of it to read")
        self._track_failures(failures)
        held = frozenset(queue for queue in known if queue.broker_name in failures)
        return ClusterSnapshot(bounds, held, frozenset(missing) - held)

    def _find_queues(self, known: frozenset[MessageQueue]) -> dict[MessageQueue, BrokerAddresses]:
        try:
            found = self._selection.find(self._cluster)
        except SourceError as error:
            if error.name != "ORBITMQ_NAMESERVER_UNAVAILABLE" or not self.places or not self._policy.hold:
                raise
            LOG.warning("event=routes_kept error=%s", error)  # every client keeps using the routes it has
            return self.places
        require_open(found.closed)
        for topic, refusal in found.unknown.items():
            if self._strict and not any(queue.topic == topic for queue in known):
                raise refusal
        return dict(found.queues)

    def _bounds(self) -> tuple[Bounds, dict[str, str]]:
        """The bounds of all queues whose brokers respond, and the errors of the other brokers."""
        found: dict[MessageQueue, tuple[int, int]] = {}
        failures: dict[str, str] = {}
        brokers = by_broker(self.places)
        for name, queues in brokers.items():
            place = self.places[queues[0]]
            if not place.has_master:
                failures[name] = "its master is not registered"
                continue
            try:
                found |= self._client_for(name, alone=len(brokers) == 1).bounds(
                    dict.fromkeys(queues, place.addresses[:1])
                )
            except SourceError as error:
                if error.name != "ORBITMQ_BROKER_UNAVAILABLE" or not self._policy.hold:
                    raise
                failures[name] = str(error)
        return found, failures

    def _client_for(self, name: str, *, alone: bool) -> ClusterClient:
        """The client for the next request to a broker. The queues of the others do not wait long for a silent one."""
        if name in self._down_since:
            down_ms = int((self._clock() - self._down_since[name]) * 1000)
            # A tenth of the time, so that a broker that is only slow is heard before the query fails.
            return self._cluster.brief(down_ms // 10, NO_RETRIES)
        return self._cluster if alone or not self._policy.hold else self._cluster.brief()

    def _track_failures(self, failures: Mapping[str, str]) -> None:
        """Record which brokers do not respond, and since when. SourceError after the timeout."""
        now = self._clock()
        for name in self._down_since.keys() - failures.keys():
            LOG.warning("event=broker_back broker=%s", name)
        for name in failures.keys() - self._down_since.keys():
            LOG.warning("event=broker_held broker=%s error=%s", name, failures[name])
        self._down_since = {name: self._down_since.get(name, now) for name in failures}
        for name, since in self._down_since.items():
            if not self._policy.hold or (now - since) * 1000 >= self._policy.timeout_ms:
                raise SourceError(
                    "ORBITMQ_BROKER_UNAVAILABLE", f"broker {name} for {now - since:.0f} s: {failures[name]}"
                )
