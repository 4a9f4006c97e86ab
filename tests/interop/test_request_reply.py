"""Requests that wait for a reply: a Java requester and a Java consumer that replies."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    RequestTimeout,
    create_reply_message,
    sync,
)
from tests.interop.conftest import System
from tests.support.java_rocketmq import Driver, run_driver
from tests.support.python_client import FIRST, SUCCESS

COUNT = 20


def test_every_request_gets_its_reply_and_an_ignored_one_times_out(system: System, label: str) -> None:
    topic = ("--namesrv", system.namesrv_address, "--topic", label)
    run_driver("admin", "--do", "create", *topic, "--queues", 4, "--broker", system.address)
    rows = run_driver("requestreply", *topic, "--group", label, "--count", COUNT)
    replies = [row for row in rows if row["event"] == "reply"]
    assert sorted(int(row["body"].removesuffix("!")) for row in replies) == list(range(COUNT))
    for row in replies:
        index = int(row["body"].removesuffix("!"))
        assert row["how"] == ("async" if index % 2 else "sync")
        assert row["size"] == (10_000 if index % 3 == 0 else len(row["body"])), "compressed ones arrive unpacked"
        assert (row["topic"], row["type"]) == ("DefaultCluster_REPLY_TOPIC", "reply")
        assert row["pushed"]
    answered = [row for row in rows if row["event"] == "answered"]
    assert {row["status"] for row in answered} == {"SEND_OK"}
    assert [row for row in rows if row["event"] in ("timeout", "failed")] == [{"event": "timeout"}]


def test_replies_are_stored_in_the_reply_topic(system: System, label: str) -> None:
    """They are the only messages there, whatever test made them."""
    topic = ("--namesrv", system.namesrv_address, "--topic", label)
    run_driver("admin", "--do", "create", *topic, "--queues", 4, "--broker", system.address)
    place = ("--namesrv", system.namesrv_address, "--topic", "DefaultCluster_REPLY_TOPIC")
    (before,) = run_driver("admin", "--do", "bounds", *place)
    run_driver("requestreply", *topic, "--group", label, "--count", 4)
    (after,) = run_driver("admin", "--do", "bounds", *place)
    assert after["maxOffset"] - before["maxOffset"] == 4


class Replier:
    """Replies as the Java driver does, with orbitmq's client."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer

    async def __call__(self, messages: list[MessageExt], _: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        for message in messages:
            if message.tags != "Ignored":
                body = message.body + b"!"
                await self.producer.send(create_reply_message(message, body.ljust(10_000) if body == b"0!" else body))
        return SUCCESS


@pytest.mark.with_five
async def test_orbitmqs_client_asks_and_replies(system: System, label: str) -> None:
    run_driver("admin", "--do", "create", *_topic(system, label), "--queues", 4, "--broker", system.address)
    async with Producer(f"{label}-producers", system.namesrv_address, send_timeout_ms=20_000) as producer:
        consumer = PushConsumer(label, system.namesrv_address, consume_from_where=FIRST)
        consumer.subscribe(label)
        consumer.set_listener(Replier(producer))
        async with consumer:
            asked = (Message(label, b"%d" % number, tags="Asked") for number in range(COUNT))
            replies = await asyncio.gather(*(producer.request(message, timeout=20) for message in asked))
            assert [reply.body.rstrip() for reply in replies] == [b"%d!" % number for number in range(COUNT)]
            assert len(replies[0].body) == 10_000
            assert {reply.topic for reply in replies} == {"DefaultCluster_REPLY_TOPIC"}
            with pytest.raises(RequestTimeout):
                await producer.request(Message(label, b"-1", tags="Ignored"), timeout=1)


@pytest.mark.with_five
def test_orbitmqs_client_asks_a_java_consumer(system: System, label: str) -> None:
    run_driver("admin", "--do", "create", *_topic(system, label), "--queues", 4, "--broker", system.address)
    with (
        Driver("requestreply", *_topic(system, label), "--group", label, "--roles", "answer") as replier,
        sync.Producer(f"{label}-asks", system.namesrv_address, send_timeout_ms=20_000) as producer,
    ):
        replier.wait_for_event("started")
        for number in range(2):
            reply = producer.request(Message(label, b"%d" % number, tags="Asked"), timeout=20)
            assert reply.body.rstrip() == b"%d!" % number
        asked = [producer.request_async(Message(label, b"%d" % number, tags="Asked"), timeout=20) for number in (3, 4)]
        assert [future.result(30).body.rstrip() for future in asked] == [b"3!", b"4!"]


@pytest.mark.with_five
async def test_a_java_producer_asks_a_consumer_of_orbitmq(system: System, label: str) -> None:
    run_driver("admin", "--do", "create", *_topic(system, label), "--queues", 4, "--broker", system.address)
    async with Producer(f"{label}-producers", system.namesrv_address, send_timeout_ms=20_000) as producer:
        consumer = PushConsumer(label, system.namesrv_address, consume_from_where=FIRST)
        consumer.subscribe(label)
        consumer.set_listener(Replier(producer))
        async with consumer:
            asks = ("requestreply", *_topic(system, label), "--group", label, "--roles", "ask", "--count", 4)
            rows = await asyncio.to_thread(run_driver, *asks)
    # A request is a message, which may come twice; RocketMQ's producer may hand over both answers when they meet.
    assert {row["body"] for row in rows if row["event"] == "reply"} == {"0!", "1!", "2!", "3!"}
    assert [row["event"] for row in rows if row["event"] in ("failed", "timeout")] == ["timeout"]


def _topic(system: System, label: str) -> tuple[object, ...]:
    return "--namesrv", system.namesrv_address, "--topic", label
