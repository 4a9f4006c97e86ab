"""`orbitmq gateway` in front of orbitmq and of RocketMQ: everything at 5.3.3, at 4.9.7 what that can do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from orbitmq.client.sync import Producer
from tests.interop.conftest import System, is_five
from tests.support.gateways import Caller, OrbitGateway
from tests.support.java_rocketmq import JavaSystem
from tests.support.process import wait_until

BACK_S = 20  # RocketMQ looks every few seconds for what is to be redelivered


@pytest.fixture(scope="module")
def caller(system: System) -> Iterator[Caller]:
    with OrbitGateway(system.namesrv_address) as gateway:
        yield gateway.caller()


@pytest.fixture(scope="module")
def of_five(five: System) -> Iterator[Caller]:
    with OrbitGateway(five.namesrv_address) as gateway:
        yield gateway.caller()


def with_topic(system: System, name: str) -> str:
    with Producer("gateway-interop", system.namesrv_address) as producer:
        producer.create_topic(name, queues=2)
    return name


def received(caller: Caller, topic: str, group: str, **given: Any) -> list[dict[str, Any]]:
    reply = caller.post(f"/v1/topics/{topic}/groups/{group}/receive", {"waitSeconds": 0, **given})
    assert reply.status == 200, reply
    return list(reply.body["messages"])


def test_messages_are_sent_and_followed(system: System, caller: Caller, label: str) -> None:
    topic = with_topic(system, label)
    one = {"body": "héllo", "tag": "a", "keys": ["k"], "properties": {"color": "red"}, "shardingKey": "x"}
    sent = caller.post(f"/v1/topics/{topic}/messages", one)
    assert (sent.status, sent.body["status"]) == (200, "SEND_OK")
    batch = {"messages": [{"bodyBase64": "/w8A"}, {"body": "second"}]}
    assert caller.post(f"/v1/topics/{topic}/batches", batch).status == 200
    delayed = caller.post(f"/v1/topics/{topic}/messages", {"body": "later", "delayLevel": 1})
    assert delayed.status == 200
    path = f"/v1/topics/{topic}/events?start=begin"
    found = list(itertools.islice(caller.events(path), 4))
    assert {event.data.get("body") or event.data["bodyBase64"] for event in found} == {
        "héllo", "/w8A", "second", "later",
    }  # fmt: skip
    first = next(event.data for event in found if event.data.get("body") == "héllo")
    assert {name: first[name] for name in ("tag", "keys", "properties")} == {
        "tag": "a", "keys": ["k"], "properties": {"color": "red"},
    }  # fmt: skip
    assert first["messageId"] == sent.body["messageId"]
    rest = list(itertools.islice(caller.events(path, Last_Event_ID=str(found[1].id)), 2))
    assert {one.data["messageId"] for one in rest} == {one.data["messageId"] for one in found[2:]}


def test_the_lag_is_that_of_the_group(system: System, caller: Caller, label: str) -> None:
    topic = with_topic(system, label)
    for _ in range(3):
        assert caller.post(f"/v1/topics/{topic}/messages", {"body": "x"}).status == 200
    path = f"/v1/topics/{topic}/groups/{label}/lag"
    wait_until(lambda: caller.get(path).body["lag"] == 3, BACK_S, "the entries in the queues")
    found = caller.get(path)
    assert (found.status, found.body["backlog"]) == (200, 3)
    assert (found.body["inFlight"] is None) == isinstance(system, JavaSystem)


def test_what_brokers_cannot_do_is_said(system: System, caller: Caller, label: str) -> None:
    if not isinstance(system, JavaSystem) or is_five(system):
        pytest.skip("it delivers by POP")
    topic = with_topic(system, label)
    for reply in (
        caller.post(f"/v1/topics/{topic}/groups/{label}/receive"),
        caller.get(f"/v1/topics/{topic}/groups/{label}/events"),
    ):
        assert (reply.status, reply.body["type"]) == (501, "urn:orbitmq:problem:not-supported")
        assert "RocketMQ 5" in reply.body["hint"]


def test_an_unknown_topic_is_not_found(caller: Caller, label: str) -> None:
    for path in (f"/v1/topics/No{label}/groups/g/lag", f"/v1/topics/No{label}/events"):
        reply = caller.get(path)
        assert (reply.status, f"No{label}" in reply.body["detail"]) == (404, True), reply


def test_a_delivery_is_acknowledged_renewed_given_back_or_rejected(five: System, of_five: Caller, label: str) -> None:
    topic, group = with_topic(five, label[-60:]), f"g-{label[-40:]}"
    base = f"/v1/topics/{topic}/groups/{group}"
    for number in range(3):
        assert of_five.post(f"/v1/topics/{topic}/messages", {"body": str(number)}).status == 200
    found: dict[str, dict[str, Any]] = {}

    def all_there() -> bool:
        for one in received(of_five, topic, group, invisibleSeconds=60):
            found[one["body"]] = one
        return len(found) == 3

    wait_until(all_there, BACK_S, "the messages")
    acknowledged = of_five.post(f"{base}/acknowledge", {"handles": [found["0"]["handle"]]})
    assert acknowledged.body == {"settled": 1, "failures": []}
    assert of_five.post(f"{base}/reject", {"handles": [found["1"]["handle"]]}).body["settled"] == 1
    given_back = of_five.post(f"{base}/visibility", {"handle": found["2"]["handle"], "invisibleSeconds": 0})
    assert given_back.status == 200
    again: list[dict[str, Any]] = []

    def is_back() -> bool:
        again.extend(received(of_five, topic, group, invisibleSeconds=60, waitSeconds=2))
        return bool(again)

    wait_until(is_back, BACK_S, "what was given back")
    assert [(one["body"], one["attempt"]) for one in again] == [("2", 2)]
    renewed = of_five.post(f"{base}/visibility", {"handle": again[0]["handle"], "invisibleSeconds": 90})
    assert of_five.post(f"{base}/acknowledge", {"handles": [renewed.body["handle"]]}).body["settled"] == 1
    assert received(of_five, topic, group) == []


def test_a_stream_delivers_to_a_group(five: System, of_five: Caller, label: str) -> None:
    topic, group = with_topic(five, label[-60:]), f"g-{label[-40:]}"
    for number in range(4):
        assert of_five.post(f"/v1/topics/{topic}/messages", {"body": str(number), "tag": "a"}).status == 200
    seen = set()
    for event in of_five.events(f"/v1/topics/{topic}/groups/{group}/events?prefetch=2&filter=a"):
        assert event.kind == "message", event
        seen.add(event.data["body"])
        handles = {"handles": [event.data["handle"]]}
        assert of_five.post(f"/v1/topics/{topic}/groups/{group}/acknowledge", handles).body["settled"] == 1
        if len(seen) == 4:
            break
    assert seen == set("0123")


def test_a_message_is_delivered_at_its_time(five: System, of_five: Caller, label: str) -> None:
    topic = with_topic(five, label[-60:])
    assert of_five.post(f"/v1/topics/{topic}/messages", {"body": "later", "delaySeconds": 2}).status == 200
    assert received(of_five, topic, "timed") == []
    found: list[dict[str, Any]] = []

    def has_come() -> bool:
        found.extend(received(of_five, topic, "timed", waitSeconds=5))
        return bool(found)

    wait_until(has_come, BACK_S, "its time")
    assert found[0]["body"] == "later"
