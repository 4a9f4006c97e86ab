"""The kinds of answers: what `kind` says in their JSON, and of which items they are made; the published schemas come
from this table. Must not know which command or page gives them.
"""

from __future__ import annotations

from importlib import import_module

# Kind -> module and class of its items.
KINDS = {
    "ContextList": "orbitmq.admin.contexts:NamedCluster",
    "Plan": "orbitmq.admin.plans:Step",
    "ClusterOverview": "orbitmq.admin.cluster:Overview",
    "BrokerList": "orbitmq.admin.cluster:Member",
    "ClusterHealth": "orbitmq.admin.cluster:Health",
    "ReplicaList": "orbitmq.admin.cluster:Replica",
    "BrokerStatus": "orbitmq.admin.brokers:BrokerStatus",
    "BrokerEntries": "orbitmq.admin.brokers:Entry",
    "BrokerConsumption": "orbitmq.admin.brokers:Consumption",
    "SendTest": "orbitmq.admin.brokers:SendTest",
    "BrokerDifferences": "orbitmq.admin.brokers:Difference",
    "TopicList": "orbitmq.admin.topics:Topic",
    "TopicStatus": "orbitmq.admin.topics:TopicQueue",
    "TopicRoute": "orbitmq.admin.topics:TopicHome",
    "TopicConfig": "orbitmq.admin.topics:TopicConfiguration",
    "TopicClusters": "orbitmq.admin.topics:TopicCluster",
    "TopicConsumers": "orbitmq.admin.topics:TopicGroup",
    "TopicStats": "orbitmq.admin.topics:TopicFlow",
    "NameServerList": "orbitmq.admin.namesrv:NameServerStatus",
    "NameServerSettings": "orbitmq.admin.namesrv:Pair",
    "NameServerPairs": "orbitmq.admin.namesrv:Pair",
}


def item_of(kind: str) -> type:
    """The class of the items of a kind."""
    module, _, name = KINDS[kind].partition(":")
    item: type = getattr(import_module(module), name)
    return item
