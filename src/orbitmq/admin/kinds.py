"""The kinds of answers: what `kind` says in their JSON, and of which items they are made; the published schemas come
from this table. Must not know which command or page gives them.
"""

from __future__ import annotations

from importlib import import_module

from msgspec import Struct


class NamedCluster(Struct, frozen=True, rename="camel"):
    """One context."""

    name: str
    in_use: bool
    """Whether commands use it unless they name another."""
    name_servers: list[str]
    cluster: str | None
    access_key: str | None
    secret: str | None
    """Where the secret key is kept: `env MQ_SECRET`; never the secret."""
    tls: bool
    remember: str | None
    """How long a stopped broker is expected back; None for the default of 72 hours."""
    protected: bool
    readonly: bool


# Kind -> module and class of its items.
KINDS = {
    "AccountList": "orbitmq.admin.acl:AclAccount",
    "AclVersions": "orbitmq.admin.acl:AclFileStatus",
    "BrokerConsumption": "orbitmq.admin.brokers:Consumption",
    "BrokerDifferences": "orbitmq.admin.brokers:Difference",
    "BrokerEntries": "orbitmq.admin.brokers:BrokerEntry",
    "BrokerList": "orbitmq.admin.cluster:ClusterBroker",
    "ConfigDifferences": "orbitmq.admin.plans:Step",
    "ConfigDivergences": "orbitmq.admin.config_as_code:Divergence",
    "Examination": "orbitmq.admin.verdict:Finding",
    "BrokerStatus": "orbitmq.admin.brokers:BrokerStatus",
    "ClientReport": "orbitmq.admin.clients:ConsumerReport",
    "ClusterHealth": "orbitmq.admin.verdict:Finding",
    "ClusterOverview": "orbitmq.admin.cluster:Overview",
    "ContextList": "orbitmq.admin.kinds:NamedCluster",
    "DelayQueueList": "orbitmq.admin.delays:DelayQueue",
    "GroupDiagnosis": "orbitmq.admin.verdict:Finding",
    "GroupList": "orbitmq.admin.groups:GroupSummary",
    "GroupProgress": "orbitmq.admin.progress:GroupProgress",
    "GroupRulesList": "orbitmq.admin.groups:GroupRules",
    "LoadReport": "orbitmq.admin.loads:LoadReport",
    "MemberList": "orbitmq.admin.clients:ConsumerMember",
    "Message": "orbitmq.admin.bodies:StoredMessage",
    "MessageIdentity": "orbitmq.admin.ids:Identity",
    "MessageList": "orbitmq.admin.bodies:StoredMessage",
    "MessageStory": "orbitmq.admin.message_history:MessageHistory",
    "NameServerList": "orbitmq.admin.namesrv:NameServerStatus",
    "NameServerPairs": "orbitmq.admin.namesrv:Pair",
    "NameServerSettings": "orbitmq.admin.namesrv:Pair",
    "PendingHalfList": "orbitmq.admin.half_messages:PendingHalf",
    "Waited": "orbitmq.admin.wait_conditions:Waited",
    "Plan": "orbitmq.admin.plans:Step",
    "PositionList": "orbitmq.admin.clients:Position",
    "ProducerList": "orbitmq.admin.clients:ProducerMember",
    "QueueLagList": "orbitmq.admin.progress:GroupQueue",
    "ReplicaList": "orbitmq.admin.cluster:Replica",
    "SendTest": "orbitmq.admin.brokers:SendTest",
    "SentMessage": "orbitmq.admin.message_send:Sent",
    "StoredOffsetList": "orbitmq.admin.offsets:StoredOffset",
    "SubscriptionList": "orbitmq.admin.clients:Subscription",
    "TagCountList": "orbitmq.admin.scan:TagCount",
    "TopicClusters": "orbitmq.admin.topics:TopicCluster",
    "TopicConfig": "orbitmq.admin.topics:TopicConfiguration",
    "TopicConsumers": "orbitmq.admin.topics:TopicGroup",
    "TopicList": "orbitmq.admin.topics:Topic",
    "TopicRoute": "orbitmq.admin.topics:TopicHome",
    "TopicStats": "orbitmq.admin.topics:TopicFlow",
    "TopicStatus": "orbitmq.admin.topics:TopicQueue",
    "TraceGraph": "orbitmq.admin.traces:TraceGraph",
    "TraceRecordList": "orbitmq.admin.traces:Traced",
    "WhiteLists": "orbitmq.admin.acl:WhiteList",
}


def item_of(kind: str) -> type:
    """The class of the items of a kind."""
    module, _, name = KINDS[kind].partition(":")
    item: type = getattr(import_module(module), name)
    return item
