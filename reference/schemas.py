"""The published schemas: the items of each kind of JSON output, and their JSON Schema."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec

from orbitmq.admin.envelope import API_VERSION, FORMER_KEYS, INSTANT
from orbitmq.admin.results import Failure

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
    "ClientStack": "orbitmq.admin.clients:ConsumerReport",
    "ClusterHealth": "orbitmq.admin.verdict:Finding",
    "ClusterOverview": "orbitmq.admin.cluster:Overview",
    "ContextList": "orbitmq.cli.context_file:NamedCluster",
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
    "TimerList": "orbitmq.admin.delays:Timer",
    "InFlightMessageList": "orbitmq.admin.in_flight_messages:InFlightMessage",
    "PendingHalfList": "orbitmq.admin.half_messages:PendingHalf",
    "Waited": "orbitmq.admin.wait_conditions:Waited",
    "Plan": "orbitmq.admin.plans:Step",
    "PositionList": "orbitmq.admin.clients:Position",
    "ProducerList": "orbitmq.admin.clients:ProducerMember",
    "QueueLagList": "orbitmq.admin.progress:GroupQueue",
    "ElectedReplicaList": "orbitmq.admin.elections:ElectedReplica",
    "ReplicaList": "orbitmq.admin.cluster:Replica",
    "SchemaCheck": "orbitmq.admin.schemas:SchemaComparison",
    "SchemaList": "orbitmq.admin.schemas:SchemaTopic",
    "SchemaVersionList": "orbitmq.admin.schemas:TopicSchemaVersion",
    "SendTest": "orbitmq.admin.brokers:SendTest",
    "SentMessage": "orbitmq.admin.message_send:Sent",
    "StoredOffsetList": "orbitmq.admin.offsets:StoredOffset",
    "SubscriptionList": "orbitmq.admin.clients:Subscription",
    "TagCountList": "orbitmq.admin.scan:TagCount",
    "TopicClusters": "orbitmq.admin.topics:TopicCluster",
    "TopicConfig": "orbitmq.admin.topics:TopicConfiguration",
    "TopicConsumers": "orbitmq.admin.topics:TopicGroup",
    "TopicList": "orbitmq.admin.topic_summaries:TopicRow",
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


def schema(kind: str, item: type) -> dict[str, Any]:
    """The JSON Schema (2020-12) of the output of this kind."""
    (items, failures), definitions = msgspec.json.schema_components((item, Failure), ref_template="#/$defs/{name}")
    for definition in definitions.values():
        _describe_times(definition)
    for former, key in FORMER_KEYS.get(kind, {}).items():
        of_item = definitions[item.__name__]["properties"]
        of_item[former] = {**of_item[key], "deprecated": True}
    instant = {"type": "integer", "description": "milliseconds since 1970-01-01 UTC"}
    properties = {
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": kind},
        "cluster": {"type": ["string", "null"]},
        "generatedAtMs": instant,
        "generatedAt": {"type": "string", "format": "date-time"},
        "partial": {"type": "boolean", "description": "whether `errors` names nodes whose part is missing"},
        "items": {"type": "array", "items": items},
        "warnings": {"type": "array", "items": {"type": "string"}},
        "errors": {"type": "array", "items": failures},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": kind,
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        "$defs": definitions,
    }


def _describe_times(definition: dict[str, Any]) -> None:
    properties = definition.get("properties", {})
    for key in [key for key in properties if key.endswith(INSTANT)]:
        text = {"type": ["string", "null"], "format": "date-time"}
        properties[key.removesuffix("Ms")] = text
    if properties:
        definition["additionalProperties"] = False
