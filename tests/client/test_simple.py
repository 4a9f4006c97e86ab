"""The simple consumer against a live broker of orbitmq; RocketMQ 5.3.3 serves it in `tests/interop/test_pop.py`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client import Message, Producer, SimpleConsumer
from orbitmq.client.core.retry import BROKER_MISSING
from orbitmq.client.routes import Routes
from orbitmq.client.sync import SimpleConsumer as BlockingConsumer
from orbitmq.errors import ClientError, ConfigurationError, InvalidStateError, MessageIllegal, RemotingError
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.topics import dlq_topic
from orbitmq.operations import pops
from orbitmq.testing import Cluster
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import fake_system_beside
from tests.support.loops import LoopFactory, until
from tests.support.orbit_process import OrbitUp
from tests.support.popping import renewed


@pytest.fixture(scope="module")
def up() -> object:
    with OrbitUp() as running:
        yield running


async def filled(up: OrbitUp | Cluster, topic: str, messages: int, *, queues: int = 4) -> None:
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


async def test_a_rejected_message_is_a_dead_letter_at_once(up: OrbitUp) -> None:
    await filled(up, "Rejected", 1)
    async with SimpleConsumer("rejecting", up.namesrv_address) as consumer:
        consumer.subscribe("Rejected")
        (message,) = await consumer.receive(timeout=5)
        await consumer.reject(message)
        dead = MessageQueue(dlq_topic("rejecting"), message.broker_name, 0)
        assert await consumer.max_offset(dead) == 1
        assert await consumer.receive(invisible=0.001, timeout=0.5) == []


async def test_waiting_ends_when_there_are_messages_and_receives_none(up: OrbitUp) -> None:
    await filled(up, "Awaited", 0)
    async with SimpleConsumer("awaiting", up.namesrv_address) as consumer:
        consumer.subscribe("Awaited")
        waiting = asyncio.create_task(consumer.wait(4))
        await asyncio.sleep(0)
        assert not waiting.done()
        await filled(up, "Awaited", 1)
        async with asyncio.timeout(3):
            await waiting
        assert bodies(await consumer.receive(timeout=0)) == [b"0"]


async def test_a_receive_that_is_cancelled_gives_its_messages_back(
    up: OrbitUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after the invisible time, which is longer than the test."""
    await filled(up, "Cancelled", 1)
    requested, pop = asyncio.Event(), pops.pop

    async def noted(*given: Any, **more: Any) -> list[MessageExt]:
        requested.set()
        return await pop(*given, **more)

    monkeypatch.setattr(pops, "pop", noted)
    async with SimpleConsumer("cancelled", up.namesrv_address) as consumer:
        consumer.subscribe("Cancelled")
        receiving = asyncio.create_task(consumer.receive(invisible=3600))
        await requested.wait()
        receiving.cancel()
        assert bodies(await consumer.receive(timeout=20)) == [b"0"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


async def test_a_receive_that_is_cancelled_by_the_end_gives_its_messages_back(cluster: Cluster) -> None:
    """The broker delivers them when the consumer is about to leave."""
    await filled(cluster, "Left", 1)
    fault = cluster.delay(RequestCode.POP_MESSAGE, 1.0)
    async with SimpleConsumer("left", cluster.namesrv_address, api_timeout_ms=60_000) as consumer:
        consumer.subscribe("Left")
        receiving = asyncio.create_task(consumer.receive(invisible=3600))
        await until(lambda: fault.hits)
        receiving.cancel()
        await asyncio.wait([receiving])
    async with SimpleConsumer("left", cluster.namesrv_address) as consumer:
        consumer.subscribe("Left")
        assert bodies(await consumer.receive(timeout=10)) == [b"0"]


@pytest.mark.parametrize("reason", ["", "wrong"])
async def test_a_message_is_one_dead_letter_however_often_its_acknowledgement_fails(
    cluster: Cluster, reason: str
) -> None:
    topic = f"Dead{reason}"
    await filled(cluster, topic, 1)
    async with SimpleConsumer(topic, cluster.namesrv_address) as consumer:
        consumer.subscribe(topic)
        (message,) = await consumer.receive(timeout=10)
        cluster.disconnect(RequestCode.ACK_MESSAGE, times=2)
        for _ in range(2):
            with pytest.raises(RemotingError):
                await consumer.reject(message, reason)
        await consumer.reject(message, reason)
        assert cluster.message_count(dlq_topic(topic)) == 1


async def test_what_has_expired_holds_up_nothing_when_it_cannot_be_acknowledged(cluster: Cluster) -> None:
    await filled(cluster, "Mixed", 0, queues=1)
    async with (
        SimpleConsumer("mixed", cluster.namesrv_address) as consumer,
        Producer("p", cluster.namesrv_address) as producer,
    ):
        await producer.send(Message("Mixed", b"old", expires_after=0.001))
        await producer.send(Message("Mixed", b"new"))
        consumer.subscribe("Mixed")
        cluster.disconnect(RequestCode.ACK_MESSAGE)
        assert bodies(await consumer.receive(timeout=10)) == [b"new"]


async def test_messages_are_received_while_a_broker_has_no_master(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slave is there, so its queues are in the route."""
    with Cluster(brokers=2) as cluster:
        headless, living = cluster.broker_names
        cluster.create_topic("Headless", 1)
        master = Routes.master

        async def of_the_living(routes: Routes, queue: MessageQueue) -> str:
            if queue.broker_name == headless:
                raise ClientError(BROKER_MISSING, f"broker {headless} has no master")
            return await master(routes, queue)

        monkeypatch.setattr(Routes, "master", of_the_living)
        async with (
            Producer("p", cluster.namesrv_address) as producer,
            SimpleConsumer("headless", cluster.namesrv_address) as consumer,
        ):
            consumer.subscribe("Headless")
            for number in range(4):
                await producer.send(Message("Headless", b"%d" % number), queue=MessageQueue("Headless", living, 0))
            assert [len(await consumer.receive(1, timeout=0)) for _ in range(4)] == [1, 1, 1, 1]
            assert await consumer.receive(timeout=0) == []


async def test_messages_are_received_while_another_topic_does_not_exist(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create_topic("Present", 1)
    async with (
        Producer("p", cluster.namesrv_address) as producer,
        SimpleConsumer("partly", cluster.namesrv_address) as consumer,
    ):
        consumer.subscribe("Absent")
        with pytest.raises(ClientError, match="Absent"):
            await consumer.receive(timeout=0)
        consumer.subscribe("Present")
        await producer.send(Message("Present", b"x"))
        assert bodies(await consumer.receive(timeout=20)) == [b"x"]
    assert caplog.text.count("event=topic_passed_over topic=Absent") == 1, "not at each receive"


async def test_messages_of_a_broker_are_received_while_another_one_is_away() -> None:
    with Cluster(brokers=2) as cluster:
        away, living = cluster.broker_names
        cluster.create_topic("Half", 1)
        async with (
            Producer("p", cluster.namesrv_address) as producer,
            SimpleConsumer("half", cluster.namesrv_address) as consumer,
        ):
            consumer.subscribe("Half")
            assert await consumer.receive(timeout=0) == []
            cluster.disconnect(RequestCode.POP_MESSAGE, times=None, broker=away)
            for number in range(4):
                await producer.send(Message("Half", b"%d" % number), queue=MessageQueue("Half", living, 0))
            assert [len(await consumer.receive(1, timeout=0)) for _ in range(4)] == [1, 1, 1, 1]
            cluster.disconnect(RequestCode.POP_MESSAGE, times=None, broker=living)
            with pytest.raises(RemotingError):
                await consumer.receive(timeout=0)


async def test_what_is_not_acknowledged_comes_again(up: OrbitUp) -> None:
    await filled(up, "Again", 2)
    async with SimpleConsumer("again", up.namesrv_address) as consumer:
        consumer.subscribe("Again")
        (done,) = await consumer.receive(1)
        (late,) = await consumer.receive(1, invisible=0.3)
        await consumer.ack(done)
        (message,) = await consumer.receive(timeout=10)
        assert (message.body, message.topic, message.reconsume_times) == (late.body, "Again", 1)
        await consumer.change_invisible(message, 0.2)
        (message,) = await consumer.receive(timeout=10)
        assert (message.body, message.reconsume_times) == (late.body, 2)
        await consumer.change_invisible(message, 30)
        await consumer.ack(message)
        assert await consumer.receive(timeout=0) == []


async def test_a_message_that_is_renewed_comes_to_nobody_else_until_it_is_given_back(turned_clock: LoopFactory) -> None:
    with Cluster() as own:
        await filled(own, "Renewed", 2)
        async with (
            SimpleConsumer("renewed", own.namesrv_address, instance_name="holder") as holder,
            SimpleConsumer("renewed", own.namesrv_address, instance_name="other") as other,
        ):
            holder.subscribe("Renewed")
            other.subscribe("Renewed")
            held = [message for _ in range(2) for message in await holder.receive(1, invisible=3600, renew=True)]
            for _ in range(2):
                await renewed(own, held, 2000)
            assert await other.receive(timeout=1.0) == []
            await holder.ack(held[0])
            await holder.change_invisible(held[1], 0.001)
            (message,) = await other.receive(timeout=10)
            assert (message.body, message.reconsume_times) == (held[1].body, 1)
            assert await other.receive(timeout=1.0) == []


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
