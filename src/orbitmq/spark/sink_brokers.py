"""Which brokers may hold what a task has sent before, so that a repeated task asks each of them or fails.

A broker that dies leaves the route, and nothing tells any more what it stored. That it was there is known all the same:
to the driver, which looks when a write begins; to the marks of the task on other brokers; and to option
`expectBrokers`. Must not know messages.
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
    """Those that had a master when a write began, and those the options name; travels to the executors."""

    of_topics: Mapping[str, frozenset[str]]
    """Of the topics the options name."""
    of_cluster: frozenset[str]
    """All there were, where rows choose their topics; none where the options do."""


NO_BROKERS = KnownBrokers({}, frozenset())


def cluster_of(options: WriteOptions) -> ClusterClient:
    """The cluster as the driver asks it, and the threads of a task."""
    return ClusterClient(options.name_servers, options.send_timeout_ms, RETRIES, options.protection)


def known_brokers(options: WriteOptions) -> KnownBrokers:
    """What the driver sees now; none unless the write is effectively-once. SourceError when no name server responds."""
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
    """None for a topic there is not: the tasks tell that."""
    places, _ = cluster.look_up([topic])
    return frozenset(queue.broker_name for queue, place in places.items() if place.has_master)


def require_brokers(wanted: Collection[str], there: Collection[str]) -> None:
    """SourceError ORBITMQ_BROKER_UNAVAILABLE when one of those wanted is not there."""
    missing = sorted(set(wanted) - set(there))
    if missing:
        raise SourceError(
            "ORBITMQ_BROKER_UNAVAILABLE",
            f"broker {', '.join(missing)} may hold messages of this task, but has no master or no readable queue now",
        )
