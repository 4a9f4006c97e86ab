"""Header declarations of the requests a name server handles."""

from __future__ import annotations

from orbitmq.wire.header import Header, Int32, Int64


class GetRouteInfoHeader(Header):
    """GET_ROUTEINFO_BY_TOPIC (105). A binary header cannot distinguish an empty topic from none: both have no route."""

    topic: str = ""
    accept_standard_json_only: bool | None = None


class RegisterBrokerHeader(Header):
    """REGISTER_BROKER (103). `body_crc32` 0 means unchecked. `master_epoch` is orbitmq's own, and a master's: the
    number of the last promotion it knows. Others pass over it.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    compressed: bool = False
    body_crc32: Int32 | None = None
    master_epoch: Int64 | None = None


class RegisterBrokerResponseHeader(Header):
    """The address of a slave's master; for a master that reports its epoch, a later master, if its registration was
    refused. `master_epoch` is orbitmq's own.
    """

    ha_server_addr: str | None = None
    master_addr: str | None = None
    master_epoch: Int64 | None = None


class UnregisterBrokerHeader(Header):
    """UNREGISTER_BROKER (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionHeader(Header):
    """QUERY_DATA_VERSION (322)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(Header):
    """Whether the broker's table differs from the one known."""

    changed: bool


class PutKVConfigHeader(Header):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


class GetKVConfigHeader(Header):
    """GET_KV_CONFIG (101)."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header):
    """The value."""

    value: str | None = None


class DeleteKVConfigHeader(Header):
    """DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


class GetKVListByNamespaceHeader(Header):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str


class GetTopicsByClusterHeader(Header):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


class DeleteTopicFromNamesrvHeader(Header):
    """DELETE_TOPIC_IN_NAMESRV (216)."""

    topic: str
    cluster_name: str | None = None


class WipeWritePermOfBrokerHeader(Header):
    """WIPE_WRITE_PERM_OF_BROKER (205)."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header):
    """How many topics changed."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerHeader(Header):
    """ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header):
    """How many topics changed."""

    add_topic_count: Int32
