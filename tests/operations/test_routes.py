"""Questions to a name server are asked as the Java client asks them."""

from __future__ import annotations

import asyncio

from orbitmq.operations.routes import cluster_info, route, topics
from orbitmq.wire.codes import RequestCode, ResponseCode
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
