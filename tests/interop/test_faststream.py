"""What the FastStream broker promises, at RocketMQ 4, RocketMQ 5 and orbitmq."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from faststream import AckPolicy

from orbitmq.client import PullConsumer
from orbitmq.integrations.faststream import RocketMQBroker, RocketMQMessage
from orbitmq.message.model import MessageQueue
from tests.integrations.faststream_support import live, quiet
from tests.interop.conftest import System
from tests.support.loops import until

pytestmark = pytest.mark.with_five


@pytest.fixture
def broker(system: System) -> RocketMQBroker:
    return quiet(system.namesrv_address)


@pytest.fixture
def topic(label: str) -> str:
    return label.lower()


async def test_messages_are_handled_and_results_published(broker: RocketMQBroker, topic: str) -> None:
    got: list[Any] = []

    @broker.subscriber(topic, expression="paid || sent")
    @broker.publisher(f"{topic}-end")
    async def handle(order: dict[str, int], message: RocketMQMessage) -> int:
        assert (message.keys, message.headers["h"]) == (["k"], "v")
        return order["number"] + 1

    @broker.subscriber(f"{topic}-end")
    async def end(number: int) -> None:
        got.append(number)

    async with live(broker):
        for number, tags in enumerate(("paid", "lost", "sent")):
            await broker.publish({"number": number}, topic, tags=tags, keys="k", headers={"h": "v"})
        await until(lambda: len(got) == 2)
    assert sorted(got) == [1, 3]


@pytest.mark.parametrize("policy", [AckPolicy.NACK_ON_ERROR, AckPolicy.REJECT_ON_ERROR, AckPolicy.ACK])
@pytest.mark.parametrize("ordered", [False, True])
async def test_the_policy_decides_about_a_message_whose_handler_fails(
    broker: RocketMQBroker, topic: str, policy: AckPolicy, ordered: bool
) -> None:
    times: list[int] = []

    @broker.subscriber(topic, ack_policy=policy, ordered=ordered)
    async def handle(text: str, message: RocketMQMessage) -> None:
        if text == "bad":
            times.append(message.reconsume_times)
            if not message.reconsume_times:
                raise ValueError(text)
        elif policy is not AckPolicy.NACK_ON_ERROR:
            times.append(-1)

    again = policy is AckPolicy.NACK_ON_ERROR
    async with live(broker):
        await broker.publish("bad", topic, sharding_key="k")
        await broker.publish("good", topic, sharding_key="k")
        await until(lambda: len(times) == 2)
        if policy is AckPolicy.REJECT_ON_ERROR:
            async with PullConsumer("dead", broker.config.name_servers) as consumer:
                await _has_dead_letter(consumer, topic)
    assert sorted(times) == ([0, 1] if again else [-1, 0])


async def _has_dead_letter(consumer: PullConsumer, topic: str) -> None:
    broker_name = (await consumer.fetch_queues(topic))[0].broker_name
    dead = MessageQueue(f"%DLQ%faststream-{topic}", broker_name, 0)
    async with asyncio.timeout(30):
        while not await consumer.max_offset(dead):  # noqa: ASYNC110 - a broker has no event for it
            await asyncio.sleep(0.05)


async def test_requests_return_the_reply(broker: RocketMQBroker, topic: str) -> None:
    @broker.subscriber(topic)
    async def handle(number: int) -> int:
        return number * 2

    async with live(broker):
        reply = await broker.request(21, topic, timeout=20, correlation_id="c")
    assert (await reply.decode(), reply.correlation_id) == (42, "c")


async def test_messages_of_a_key_are_handled_in_order(broker: RocketMQBroker, topic: str) -> None:
    got: list[int] = []

    @broker.subscriber(topic, ordered=True, max_workers=4)
    async def handle(number: int) -> None:
        got.append(number)

    async with live(broker):
        for number in range(20):
            await broker.publish(number, topic, sharding_key="k")
        await until(lambda: len(got) == 20)
    assert got == list(range(20))


async def test_batches_and_empty_messages_arrive(broker: RocketMQBroker, topic: str) -> None:
    got: list[str] = []

    @broker.subscriber(topic, batch=True)
    async def handle(messages: list[str]) -> None:
        got.extend(messages)

    async with live(broker):
        await broker.publish_batch("a", "", topic=topic)
        await broker.publish(None, topic)
        await until(lambda: len(got) == 3)
    assert sorted(got) == ["", "", "a"]


async def test_a_delay_level_delays(broker: RocketMQBroker, topic: str) -> None:
    got: list[float] = []
    loop = asyncio.get_running_loop()

    @broker.subscriber(topic)
    async def handle() -> None:
        got.append(loop.time())

    async with live(broker):
        begun = loop.time()
        await broker.publish("x", topic, delay_level=1)
        await until(lambda: got)
    assert got[0] - begun > 0.5


async def test_what_was_consumed_before_a_stop_does_not_come_again(system: System, topic: str) -> None:
    got: list[int] = []
    for start in (0, 5):
        broker = quiet(system.namesrv_address)

        @broker.subscriber(topic)
        async def handle(number: int) -> None:
            got.append(number)

        async with live(broker):
            for number in range(start, start + 5):
                await broker.publish(number, topic)
            await until(lambda: len(got) == start + 5)  # noqa: B023
    assert sorted(got) == list(range(10))
