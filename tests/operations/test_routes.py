"""Questions to a name server are asked as the Java client asks them."""

from __future__ import annotations

import asyncio

from orbitmq.operations.routes import (
    add_write_permission,
    cluster_info,
    delete_topic_route,
    name_server_system_topics,
    route,
    topics,
    topics_of_cluster,
    wipe_write_permission,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.requests import RequestCode
from tests.support.recorded import ADDRESS, exchange


def test_a_route_that_exists() -> None:
    found = exchange(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    known = asyncio.run(route(found.remoting, ADDRESS, found.ext["topic"]))
    found.assert_asked_as_java()
    assert known
    assert known.broker_datas[0].addresses[0]
    assert known.queue_datas[0].write_queues > 0


def test_an_unknown_topic_has_no_route() -> None:
    found = exchange(RequestCode.GET_ROUTEINFO_BY_TOPIC, ResponseCode.TOPIC_NOT_EXIST)
    assert asyncio.run(route(found.remoting, ADDRESS, found.ext["topic"])) is None


def test_brokers_and_topics() -> None:
    found = exchange(RequestCode.GET_BROKER_CLUSTER_INFO)
    info = asyncio.run(cluster_info(found.remoting, ADDRESS))
    found.assert_asked_as_java()
    assert info.brokers["broker-a"].addresses[0]
    assert "broker-a" in info.clusters["DefaultCluster"]
    found = exchange(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert "TBW102" in asyncio.run(topics(found.remoting, ADDRESS))
    found.assert_asked_as_java()


def test_topics_of_a_cluster_and_those_of_the_system() -> None:
    found = exchange(RequestCode.GET_TOPICS_BY_CLUSTER)
    assert "TBW102" in asyncio.run(topics_of_cluster(found.remoting, ADDRESS, found.ext["cluster"]))
    found.assert_asked_as_java()
    found = exchange(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert "DefaultCluster" in asyncio.run(name_server_system_topics(found.remoting, ADDRESS))
    found.assert_asked_as_java()


def test_a_name_server_forgets_a_topic() -> None:
    found = exchange(RequestCode.DELETE_TOPIC_IN_NAMESRV)
    asyncio.run(delete_topic_route(found.remoting, ADDRESS, found.ext["topic"], cluster=found.ext["clusterName"]))
    found.assert_asked_as_java()


def test_write_permission_is_taken_and_given() -> None:
    found = exchange(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
    assert asyncio.run(wipe_write_permission(found.remoting, ADDRESS, "broker-a")) > 0
    found.assert_asked_as_java()
    found = exchange(RequestCode.ADD_WRITE_PERM_OF_BROKER)
    assert asyncio.run(add_write_permission(found.remoting, ADDRESS, "broker-a")) > 0
    found.assert_asked_as_java()
