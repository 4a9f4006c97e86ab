"""What a name server knows: routes, topics, the brokers of a cluster; and that it forgets a topic."""

from __future__ import annotations

from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask
from orbitmq.wire.bodies import ClusterInfo, TopicList, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers_namesrv import DeleteTopicFromNamesrvHeader, GetRouteInfoHeader, GetTopicsByClusterHeader
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode


async def route(remoting: Remoting, address: str, topic: str, *, timeout_ms: float = 3000) -> TopicRouteData | None:
    """GET_ROUTEINFO_BY_TOPIC: where the topic lives, None when the name server does not know it."""
    header = GetRouteInfoHeader(topic=topic)
    accept = (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    answer = await ask(remoting, address, code, header, timeout_ms=timeout_ms, accept=accept)
    return None if answer.code == ResponseCode.TOPIC_NOT_EXIST else decode(TopicRouteData, answer.body)


async def cluster_info(remoting: Remoting, address: str, *, timeout_ms: float = 3000) -> ClusterInfo:
    """GET_BROKER_CLUSTER_INFO: every broker with its addresses."""
    answer = await ask(remoting, address, RequestCode.GET_BROKER_CLUSTER_INFO, timeout_ms=timeout_ms)
    return decode(ClusterInfo, answer.body)


async def topics(remoting: Remoting, address: str, *, timeout_ms: float = 3000) -> list[str]:
    """GET_ALL_TOPIC_LIST_FROM_NAMESERVER: the names of all topics."""
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    answer = await ask(remoting, address, code, timeout_ms=timeout_ms)
    return decode(TopicList, answer.body).topic_list


async def topics_of_cluster(remoting: Remoting, address: str, cluster: str, *, timeout_ms: float = 3000) -> list[str]:
    """GET_TOPICS_BY_CLUSTER: the names of the topics that have queues on a broker of the cluster."""
    header = GetTopicsByClusterHeader(cluster)
    answer = await ask(remoting, address, RequestCode.GET_TOPICS_BY_CLUSTER, header, timeout_ms=timeout_ms)
    return decode(TopicList, answer.body).topic_list


async def name_server_system_topics(remoting: Remoting, address: str, *, timeout_ms: float = 3000) -> list[str]:
    """GET_SYSTEM_TOPIC_LIST_FROM_NS: names of clusters and brokers, which are topics, too."""
    code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS
    answer = await ask(remoting, address, code, timeout_ms=timeout_ms)
    return decode(TopicList, answer.body).topic_list


async def forget_topic(
    remoting: Remoting, address: str, topic: str, *, cluster: str | None = None, timeout_ms: float = 3000
) -> None:
    """DELETE_TOPIC_IN_NAMESRV: the routes are gone, until a broker that still has the topic registers."""
    header = DeleteTopicFromNamesrvHeader(topic, cluster)
    await ask(remoting, address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header, timeout_ms=timeout_ms)
