"""A consumer in a namespace: brokers see wrapped names, the application its own."""

from __future__ import annotations

import pytest

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    LitePullConsumer,
    MessageExt,
    MessageQueue,
    OrderlyContext,
    PushConsumer,
)
from orbitmq.message.properties import RETRY_TOPIC, encode_properties
from tests.support.fake_system import BROKER, fake_system
from tests.support.loops import run, until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
SUCCESS, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
PLAIN, INSIDE = MessageQueue("T", BROKER, 0), MessageQueue("NS%T", BROKER, 0)


def test_a_push_consumer_lives_in_its_namespace() -> None:
    seen: list[tuple[str, str, MessageQueue]] = []

    async def listen(messages: list[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        (message,) = messages
        seen.append((message.topic, message.body.decode(), context.message_queue))
        return LATER if message.body == b"bad" else SUCCESS

    async def scenario() -> None:
        async with fake_system() as system:
            system.topics |= {"NS%T": 1, "%RETRY%NS%g": 1}
            system.put("NS%T", 0, b"good")
            system.put("NS%T", 0, b"bad")
            system.put("%RETRY%NS%g", 0, b"again", encode_properties({RETRY_TOPIC: "NS%T"}))
            consumer = PushConsumer("g", system.address, namespace="NS", consume_from_where=FIRST)
            consumer.subscribe("T")
            consumer.set_listener(listen)
            async with consumer:
                await until(lambda: len(seen) == 3 and bool(system.sent_back))
                assert {(topic, body) for topic, body, _ in seen} == {("T", "good"), ("T", "bad"), ("T", "again")}
                assert {queue for _, _, queue in seen} == {PLAIN, MessageQueue("%RETRY%g", BROKER, 0)}
                (back,) = system.sent_back
                assert (back.group, back.origin_topic) == ("NS%g", "NS%T")
                (data,) = system.heartbeats[-1].consumer_data_set
                assert data.group_name == "NS%g"
                assert {one.topic for one in data.subscription_data_set} == {"NS%T", "%RETRY%NS%g"}
                assert PLAIN in consumer.assignment()
                assert await consumer.fetch_queues("T") == [PLAIN]
                assert {lag.queue for lag in await consumer.lag("T")} == {PLAIN}
                consumer.unsubscribe("T")
                await until(lambda: PLAIN not in consumer.assignment())
            assert system.offsets["NS%g", "NS%T", 0] == 2

    run(scenario())


def test_order_is_kept_in_a_namespace() -> None:
    seen: list[tuple[str, MessageQueue]] = []

    async def listen(messages: list[MessageExt], context: OrderlyContext) -> ConsumeOrderlyStatus:
        seen.extend((message.topic, context.message_queue) for message in messages)
        return ConsumeOrderlyStatus.SUCCESS

    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["NS%T"] = 1
            system.put("NS%T", 0, b"x")
            consumer = PushConsumer("g", system.address, namespace="NS", consume_from_where=FIRST)
            consumer.subscribe("T")
            consumer.set_listener(listen, orderly=True)
            async with consumer:
                await until(lambda: seen == [("T", PLAIN)])
                assert ("NS%g", INSIDE) in system.locks

    run(scenario())


@pytest.mark.parametrize("assigned", [False, True])
def test_a_pull_consumer_lives_in_its_namespace(assigned: bool) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["NS%T"] = 1
            for body in (b"0", b"1", b"2"):
                system.put("NS%T", 0, body)
            consumer = LitePullConsumer(
                "g", system.address, namespace="NS", consume_from_where=FIRST, auto_commit=False
            )
            if assigned:
                consumer.assign([PLAIN])
            else:
                consumer.subscribe("T")
            async with consumer:
                messages = await consumer.poll(5)
                assert [(message.topic, message.body) for message in messages] == [
                    ("T", b"0"), ("T", b"1"), ("T", b"2"),
                ]  # fmt: skip
                assert consumer.assignment() == {PLAIN}
                await consumer.commit({PLAIN: 1}, wait=True)
                assert await consumer.committed(PLAIN) == system.offsets["NS%g", "NS%T", 0] == 1
                await consumer.seek(PLAIN, 2)
                assert [message.body for message in await consumer.poll(5)] == [b"2"]
                await consumer.commit(queues=[PLAIN], wait=True)
                assert system.offsets["NS%g", "NS%T", 0] == 3
                consumer.pause([PLAIN])
                await consumer.seek_to_begin(PLAIN)
                assert await consumer.poll(0.1) == []
                consumer.resume([PLAIN])
                assert len(await consumer.poll(5)) == 3

    run(scenario())
