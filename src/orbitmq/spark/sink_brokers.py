"""Which brokers may hold messages of a task, so that a repeated task queries each of them or fails.

A broker that dies leaves the route, and what it stored is unknown. But its existence is known: to the driver, which
looks up the brokers when a write starts, from the task's marks on other brokers, and from the option `expectBrokers`.
Knows no messages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from orbitmq.errors import SourceError
from orbitmq.message.model import MASTER_ID
from orbitmq.spark.cluster_client import ClusterClient, Retries
from orbitmq.spark.sink_options import WriteOptions

RETRIES = Retries(3, 1000)


@dataclass(frozen=True)
class KnownBrokers:
    """The brokers with a master when a write started, and those of the options. It is sent to the executors."""

    of_topics: Mapping[str, frozenset[str]]
    """Brokers of the topics that the options name."""
    of_cluster: frozenset[str]
    """All brokers when rows choose their topics, none when the options do."""


NO_BROKERS = KnownBrokers({}, frozenset())


def cluster_of(options: WriteOptions) -> ClusterClient:
    """The client of the driver, and of the threads of a task."""
    return ClusterClient(options.name_servers, options.send_timeout_ms, RETRIES, options.protection)


def known_brokers(options: WriteOptions) -> KnownBrokers:
    """The brokers now, none unless the write is effectively-once. SourceError when no name server responds."""
    if not options.effectively_once:
        return NO_BROKERS
    cluster = cluster_of(options)
    if not options.topic:
        return KnownBrokers({}, masters(cluster) | options.broker_names)
    topic, elsewhere = map(options.names.wrap, (options.topic, options.dead_letter_topic))
    of_topics = {name: _masters_of(cluster, name) for name in (elsewhere, topic) if name}
    return KnownBrokers({**of_topics, topic: of_topics[topic] | options.broker_names}, frozenset())


def masters(cluster: ClusterClient) -> frozenset[str]:
    """The brokers of a cluster whose masters are registered."""
    return frozenset(name for name, data in cluster.info().brokers.items() if MASTER_ID in data.addresses)


def _masters_of(cluster: ClusterClient, topic: str) -> frozenset[str]:
    """Empty for a topic that does not exist: the tasks report that."""
    places = cluster.look_up([topic]).queues
    return frozenset(queue.broker_name for queue, place in places.items() if place.has_master)


def require_brokers(wanted: Collection[str], there: Collection[str]) -> None:
    """SourceError ORBITMQ_BROKER_UNAVAILABLE when a wanted broker is missing."""
    missing = sorted(set(wanted) - set(there))
    if missing:
        raise SourceError(
            "ORBITMQ_BROKER_UNAVAILABLE",
            f"broker {', '.join(missing)} may hold messages of this task, but has no master or no readable queue now",
        )
