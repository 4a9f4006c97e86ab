"""The simple consumer against a live broker of orbitmq; RocketMQ 5.3.3 serves it in `tests/interop/test_pop.py`."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from orbitmq.client import Message, Producer, SimpleConsumer
from orbitmq.client.sync import SimpleConsumer as BlockingConsumer
from orbitmq.errors import ClientError, ConfigurationError, InvalidStateError, MessageIllegal
from orbitmq.message.model import MessageExt
from orbitmq.message.topics import dlq_topic
from tests.support.fake_system import fake_system_beside
from tests.support.orbit_process import OrbitUp


@pytest.fixture(scope="module")
def up() -> object:
    with OrbitUp() as running:
        yield running


async def filled(up: OrbitUp, topic: str, messages: int, *, queues: int = 4) -> None:
    async with Producer("p", up.namesrv_address) as producer:
        await producer.create_topic(topic, queues=queues)
        for number in range(messages):
            await producer.send(Message(topic, b"%d" % number, tags="odd" if number % 2 else "even"))


def bodies(messages: list[MessageExt]) -> list[bytes]:
    return sorted(message.body for message in messages)


async def test_members_share_messages_whatever_the_number_of_queues(up: OrbitUp) -> None:
    await filled(up, "Shared", 60, queues=1)
    seen: Counter[bytes] = Counter()

    async def work(number: int) -> int:
        async with SimpleConsumer("shared", up.namesrv_address, instance_name=f"member{number}") as consumer:
            consumer.subscribe("Shared")
            count = 0
            while messages := await consumer.receive(4, timeout=1.0):
                for message in messages:
                    seen[message.body] += 1
                    await consumer.ack(message)
                count += len(messages)
            return count

    counts = await asyncio.gather(*(work(number) for number in range(4)))
    assert sum(counts) == 60
    assert set(seen.values()) == {1}
    assert sum(count > 0 for count in counts) > 1, "one queue, and more than one member at work"


async def test_what_is_not_acknowledged_comes_again(up: OrbitUp) -> None:
    await filled(up, "Again", 2)
    async with SimpleConsumer("again", up.namesrv_address) as consumer:
        consumer.subscribe("Again")
        first = [message for _ in range(2) for message in await consumer.receive(1, invisible=0.3)]
        await consumer.ack(next(message for message in first if message.body == b"0"))
        (message,) = await consumer.receive(timeout=10)
        assert (message.body, message.topic, message.reconsume_times) == (b"1", "Again", 1)
        await consumer.change_invisible(message, 0.2)
        (message,) = await consumer.receive(timeout=10)
        assert (message.body, message.reconsume_times) == (b"1", 2)
        await consumer.change_invisible(message, 30)
        await consumer.ack(message)
        assert await consumer.receive(timeout=0) == []


async def test_a_message_nobody_can_consume_is_a_dead_letter(up: OrbitUp) -> None:
    await filled(up, "Hopeless", 1)
    async with SimpleConsumer("hopeless", up.namesrv_address, max_reconsume_times=1) as consumer:
        consumer.subscribe("Hopeless")
        for times in (0, 1):
            (message,) = await consumer.receive(1, invisible=0.1, timeout=10)
            assert message.reconsume_times == times
        assert await consumer.receive(1, timeout=1) == []
    async with SimpleConsumer("undertaker", up.namesrv_address) as consumer:
        consumer.subscribe(dlq_topic("hopeless"))
        (message,) = await consumer.receive(1, timeout=10)
        assert message.body == b"0"


async def test_only_what_is_subscribed_is_received(up: OrbitUp) -> None:
    await filled(up, "Tagged", 6)
    await filled(up, "Other", 1)
    async with SimpleConsumer("tagged", up.namesrv_address) as consumer:
        consumer.subscribe("Tagged", "odd")
        consumer.subscribe("Other")
        found: list[MessageExt] = []
        while messages := await consumer.receive(timeout=0.3):
            found += messages
        assert bodies(found) == [b"0", b"1", b"3", b"5"]
        assert {message.topic for message in found if message.body == b"0"} == {"Other"}


async def test_what_has_expired_is_not_received(up: OrbitUp) -> None:
    async with (
        SimpleConsumer("expiring", up.namesrv_address) as consumer,
        Producer("p", up.namesrv_address) as producer,
    ):
        await producer.send(Message("Expiring", b"old", expires_after=0.001))
        await producer.send(Message("Expiring", b"new", expires_after=600))
        consumer.subscribe("Expiring")
        found: list[MessageExt] = []
        while messages := await consumer.receive(timeout=0.5):
            found += messages
        assert (bodies(found), dict(consumer.expired)) == ([b"new"], {"Expiring": 1})


async def test_a_call_waits_for_a_message_and_may_be_cancelled(up: OrbitUp) -> None:
    await filled(up, "Waited", 0)
    async with SimpleConsumer("waited", up.namesrv_address) as consumer, Producer("p", up.namesrv_address) as producer:
        consumer.subscribe("Waited")
        given_up = asyncio.ensure_future(consumer.receive(timeout=60))
        await asyncio.sleep(0.2)
        given_up.cancel()
        await asyncio.wait([given_up])
        waiting = asyncio.ensure_future(consumer.receive(timeout=60))
        await producer.send(Message("Waited", b"x"))
        assert bodies(await waiting) == [b"x"]


def test_threads_have_it_too(up: OrbitUp) -> None:
    asyncio.run(filled(up, "Threads", 3))
    with BlockingConsumer("threads", up.namesrv_address) as consumer:
        consumer.subscribe("Threads")
        found = []
        while messages := consumer.receive(timeout=0.3):
            found += messages
            for message in messages:
                consumer.change_invisible(message, 60.0)
                consumer.ack(message)
        assert bodies(found) == [b"0", b"1", b"2"]


async def test_wrong_calls_say_what_is_wrong(up: OrbitUp, tmp_path: Path) -> None:
    async with SimpleConsumer("wrong", up.namesrv_address) as consumer:
        with pytest.raises(InvalidStateError, match="subscribed no topic"):
            await consumer.receive()
        for wrong in ({"max_messages": 0}, {"max_messages": 33}, {"invisible": 0.0}):
            with pytest.raises(ConfigurationError, match="use 1 to 32"):
                await consumer.receive(**wrong)
        with pytest.raises(MessageIllegal, match="was not received by a SimpleConsumer"):
            await consumer.ack(MessageExt("T", b"x", msg_id="1"))


async def test_an_old_broker_is_named() -> None:
    with fake_system_beside() as system:
        system.topics["T"] = 1
        async with SimpleConsumer("old", system.address) as consumer:
            consumer.subscribe("T")
            with pytest.raises(ClientError, match="older than RocketMQ 5"):
                await consumer.receive()
