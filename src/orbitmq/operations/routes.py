"""Routes at a name server: of a topic, all topics, the brokers of a cluster, and their write permission."""

from __future__ import annotations

from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call, call_name_server
from orbitmq.wire.bodies import ClusterInfo, TopicList, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers_namesrv import (
    AddWritePermOfBrokerHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteTopicFromNamesrvHeader,
    GetRouteInfoHeader,
    GetTopicsByClusterHeader,
    WipeWritePermOfBrokerHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode


async def route(remoting: Remoting, address: str, topic: str, *, timeout_ms: float = 3000) -> TopicRouteData | None:
    """GET_ROUTEINFO_BY_TOPIC: the route of a topic, None when the name server does not know it."""
    header = GetRouteInfoHeader(topic=topic)
    accept = (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    response = await call_name_server(remoting, address, code, header, timeout_ms=timeout_ms, accept=accept)
    return None if response.code == ResponseCode.TOPIC_NOT_EXIST else decode(TopicRouteData, response.body)


async def cluster_info(remoting: Remoting, address: str, *, timeout_ms: float = 3000) -> ClusterInfo:
    """GET_BROKER_CLUSTER_INFO: every broker with its addresses."""
    response = await call_name_server(remoting, address, RequestCode.GET_BROKER_CLUSTER_INFO, timeout_ms=timeout_ms)
    return decode(ClusterInfo, response.body)


async def topics(remoting: Remoting, address: str, *, timeout_ms: float = 3000) -> list[str]:
    """GET_ALL_TOPIC_LIST_FROM_NAMESERVER: the names of all topics."""
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    response = await call_name_server(remoting, address, code, timeout_ms=timeout_ms)
    return decode(TopicList, response.body).topic_list


async def topics_of_cluster(remoting: Remoting, address: str, cluster: str, *, timeout_ms: float = 3000) -> list[str]:
    """GET_TOPICS_BY_CLUSTER: the names of the topics that have queues on a broker of the cluster."""
    header = GetTopicsByClusterHeader(cluster)
    response = await call(remoting, address, RequestCode.GET_TOPICS_BY_CLUSTER, header, timeout_ms=timeout_ms)
    return decode(TopicList, response.body).topic_list


async def name_server_system_topics(remoting: Remoting, address: str, *, timeout_ms: float = 3000) -> list[str]:
    """GET_SYSTEM_TOPIC_LIST_FROM_NS: names of clusters and brokers, which are topics as well."""
    code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS
    response = await call(remoting, address, code, timeout_ms=timeout_ms)
    return decode(TopicList, response.body).topic_list


async def delete_topic_route(
    remoting: Remoting, address: str, topic: str, *, cluster: str | None = None, timeout_ms: float = 3000
) -> None:
    """DELETE_TOPIC_IN_NAMESRV: delete the route, until a broker that still has the topic registers again."""
    header = DeleteTopicFromNamesrvHeader(topic, cluster)
    await call(remoting, address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header, timeout_ms=timeout_ms)


async def wipe_write_permission(remoting: Remoting, address: str, broker: str, *, timeout_ms: float = 6000) -> int:
    """WIPE_WRITE_PERM_OF_BROKER: remove a broker's write permission; returns the number of topics. The name server
    keeps it in memory only, until the broker registers a changed topic table.
    """
    header = WipeWritePermOfBrokerHeader(broker)
    response = await call(remoting, address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, header, timeout_ms=timeout_ms)
    return response.header(WipeWritePermOfBrokerResponseHeader).wipe_topic_count


async def add_write_permission(remoting: Remoting, address: str, broker: str, *, timeout_ms: float = 6000) -> int:
    """ADD_WRITE_PERM_OF_BROKER: make all topics of a broker readable and writable; returns the number of topics."""
    header = AddWritePermOfBrokerHeader(broker)
    response = await call(remoting, address, RequestCode.ADD_WRITE_PERM_OF_BROKER, header, timeout_ms=timeout_ms)
    return response.header(AddWritePermOfBrokerResponseHeader).add_topic_count
