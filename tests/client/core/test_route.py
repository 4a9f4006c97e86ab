"""Routes give the queues that Java's client derives from them."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.client.core.route import (
    ReadAddress,
    from_template,
    no_queue_cause,
    publish_queues,
    read_address,
    same_route,
    subscribe_queues,
)
from orbitmq.wire.bodies import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.objects import decode
from tests.support.golden import vectors


def route(perm: int = 6, addresses: dict[int, str] | None = None, read: int = 4, write: int = 4) -> TopicRouteData:
    return TopicRouteData(
        broker_datas=[BrokerData(addresses={0: "h:1"} if addresses is None else addresses, broker_name="a")],
        queue_datas=[QueueData(broker_name="a", perm=perm, read_queues=read, write_queues=write)],
    )


@pytest.mark.parametrize("case", vectors()["route_to_queues"])
def test_queues_equal_java(case: dict[str, Any]) -> None:
    decoded = decode(TopicRouteData, case["routeJson"])
    published = publish_queues("T", decoded)
    assert published.ordered is case["orderTopic"]
    assert [f"{q.topic}|{q.broker_name}|{q.queue_id}" for q in published.queues] == case["publish"]
    subscribed = [f"{q.topic}|{q.broker_name}|{q.queue_id}" for q in subscribe_queues("T", decoded)]
    assert sorted(subscribed) == sorted(case["subscribe"])


def test_a_new_topic_gets_no_more_queues_than_the_template_can_be_read_from() -> None:
    taken = from_template(route(read=2, write=8), 4)
    assert len(publish_queues("T", taken).queues) == 2
    assert len(publish_queues("T", from_template(route(read=16, write=16), 4)).queues) == 4


def test_routes_compare_by_content_and_not_by_order() -> None:
    one = TopicRouteData(
        broker_datas=[BrokerData(broker_name="a"), BrokerData(broker_name="b")],
        queue_datas=route().queue_datas,
    )
    other = TopicRouteData(broker_datas=one.broker_datas[::-1], queue_datas=one.queue_datas)
    assert same_route(one, other)
    assert not same_route(one, route())
    assert not same_route(route(perm=6), route(perm=4))


def test_pulls_follow_the_suggested_broker_and_fall_back() -> None:
    both = {0: "master", 1: "slave"}
    assert read_address(both, 0) == ReadAddress("master", is_slave=False)
    assert read_address(both, 1) == ReadAddress("slave", is_slave=True)
    assert read_address({0: "master", 2: "second"}, 1) == ReadAddress("second", is_slave=True)
    assert read_address({0: "master"}, 1) == ReadAddress("master", is_slave=False)
    assert read_address({1: "slave"}, 0) == ReadAddress("slave", is_slave=True)
    assert read_address({}, 0) is None


def test_the_reason_for_no_queue_is_named() -> None:
    assert "no writable queue (a)" in no_queue_cause("T", route(perm=4))
    assert "slaves only" in no_queue_cause("T", route(addresses={1: "h:1"}))
    assert "unknown to the name server" in no_queue_cause("T", TopicRouteData(queue_datas=route().queue_datas))
