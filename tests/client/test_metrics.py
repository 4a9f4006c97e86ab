"""Prometheus sees what clients do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PullContext,
    PullSchedule,
    PushConsumer,
    sync,
)
from orbitmq.client.metrics import ClientMetrics
from orbitmq.client.outbox import Outbox
from orbitmq.errors import BrokerError, InvalidStateError, OrbitMQError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, fake_system, refuse, silence
from tests.support.loops import run, until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def test_attempts_pulls_and_calls_are_counted_and_timed() -> None:
    registry = CollectorRegistry()
    metrics = ClientMetrics(registry)

    async def listen(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        if messages[0].body == b"bad":
            return ConsumeConcurrentlyStatus.RECONSUME_LATER
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            producer = Producer("p", system.address, retry_times=0)
            metrics.watch(producer)
            async with producer:
                for body in (b"good", b"bad", b"good"):
                    await producer.send(Message("T", body))
                await producer.send_oneway(Message("U", b"x"))
                await until(lambda: system.count(RequestCode.SEND_MESSAGE_V2) == 4)
                system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SYSTEM_BUSY, times=1)
                with pytest.raises(BrokerError):
                    await producer.send(Message("T", b"x"))
                system.answers[RequestCode.SEND_MESSAGE_V2] = silence()
                with pytest.raises(OrbitMQError):
                    await producer.send(Message("T", b"x"), timeout=0.05)
            push = PushConsumer("g", system.address, consume_from_where=FIRST)
            push.subscribe("T")
            push.set_listener(listen)
            metrics.watch(push)
            async with push:
                await until(lambda: value("consumed_messages_total", group="g", outcome="done") == 2)
            pull = LitePullConsumer("h", system.address, consume_from_where=FIRST)
            pull.subscribe("T")
            metrics.watch(pull)
            async with pull:
                assert await pull.poll(timeout=20)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"orbitmq_client_{name}", {"topic": "T", **labels})

    run(scenario())
    outcomes = {"send_ok": 3, "code_2": 1, "RemotingTimeout": 1}
    assert {name: value("send_attempts_total", group="p", outcome=name) for name in outcomes} == outcomes
    assert value("send_attempts_total", group="p", outcome="oneway", topic="U") == 1
    assert value("send_attempt_seconds_count", group="p") == 5
    assert value("consumed_messages_total", group="g", outcome="failed") == 1
    assert value("listener_seconds_count", group="g") == 3
    assert value("delivery_delay_seconds_count", group="g") == 3
    assert [value("received_messages_total", group=group) for group in "gh"] == [3, 3]
    assert all(value("pull_seconds_count", group=group) for group in "gh")
    assert value("delivery_delay_seconds_count", group="h") == 3


def test_consumers_that_are_told_what_to_pull_are_counted_as_well() -> None:
    registry = CollectorRegistry()
    metrics = ClientMetrics(registry)
    queue, got = MessageQueue("T", BROKER, 0), list[bytes]()

    async def turn(queue: MessageQueue, context: PullContext[PullSchedule]) -> None:
        offset = max(0, await context.consumer.fetch_offset(queue))
        result = await context.consumer.pull(queue, "*", offset, 2)
        got.extend(message.body for message in result.messages)
        context.consumer.update_offset(queue, result.next_begin_offset)
        context.next_delay_ms = 0

    def blocking(address: str) -> None:
        consumer = sync.PullConsumer("s", address)
        metrics.watch(consumer)
        with consumer:
            assert len(consumer.pull(queue, "*", 4, 32).messages) == 1

    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            for number in range(5):
                system.put("T", 0, b"%d" % number)
            consumer = PullConsumer("g", system.address)
            metrics.watch(consumer)
            async with consumer:
                assert len((await consumer.pull(queue, "*", 0, 4)).messages) == 4
                assert not (await consumer.pull(queue, "*", 5, 4)).messages
                with pytest.raises(InvalidStateError):
                    metrics.watch(consumer)
            schedule = PullSchedule("h", system.address)
            metrics.watch(schedule)
            schedule.register("T", turn)
            async with schedule:
                await until(lambda: len(got) == 5)
            await asyncio.to_thread(blocking, system.address)
            metrics.watch(sync.PullSchedule("i", system.address))

    def counts(name: str) -> list[float | None]:
        labels = ({"topic": "T", "group": group} for group in "ghs")
        return [registry.get_sample_value(f"orbitmq_client_{name}", one) for one in labels]

    run(scenario())
    assert counts("received_messages_total") == [4, 5, 1]
    assert counts("pull_seconds_count") == [1, 3, 1], "pulls that brought messages"
    assert counts("delivery_delay_seconds_count") == [4, 5, 1]


def test_what_has_no_figures_is_refused(tmp_path: Path) -> None:
    outbox: Any = Outbox(tmp_path / "outbox")
    with pytest.raises(TypeError, match="Outbox has no such metrics; pass a producer or a consumer"):
        ClientMetrics(CollectorRegistry()).watch(outbox)


def test_an_outbox_shows_what_waits_and_what_was_lost(tmp_path: Path) -> None:
    registry = CollectorRegistry()

    async def scenario() -> None:
        outbox = Outbox(tmp_path / "outbox", should_store=lambda message, error: message.body != b"no")
        ClientMetrics(registry).watch_outbox(outbox, "orders")
        async with fake_system() as system, Producer("p", system.address, outbox=outbox, retry_times=0) as producer:
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
            for body in (b"1", b"2", b"no"):
                with pytest.raises(OrbitMQError):
                    await producer.send(Message("T", body))
            text = generate_latest(registry).decode()
            assert 'orbitmq_outbox_messages{outbox="orders"} 2.0' in text
            assert 'orbitmq_outbox_stored_total{outbox="orders"} 2.0' in text
            assert 'orbitmq_outbox_lost_total{outbox="orders",reason="rule_rejected"} 1.0' in text
            assert f'orbitmq_outbox_bytes{{outbox="orders"}} {float(outbox.size)}' in text

    run(scenario())
