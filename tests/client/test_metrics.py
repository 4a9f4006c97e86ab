"""Prometheus sees what clients do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from orbitmq.client.metrics import ClientMetrics
from orbitmq.client.outbox import Outbox
from orbitmq.errors import BrokerError, OrbitMQError
from orbitmq.wire.codes import RequestCode, ResponseCode
from tests.support.fake_system import fake_system, refuse, silence
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
