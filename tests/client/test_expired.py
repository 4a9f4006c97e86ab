"""No consumer hands out a message that has expired: it counts as consumed, and comes no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    LitePullConsumer,
    Message,
    MessageExt,
    OrderlyContext,
    Producer,
    PushConsumer,
)
from orbitmq.client.expired import LOG_MS, ExpiredMessages
from orbitmq.client.lite_pull import poll, take_back
from orbitmq.client.metrics import ClientMetrics
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.bodies import ConsumeResult
from orbitmq.wire.headers import SendMessageV2Header
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import FakeSystem, fake_system
from tests.support.loops import TurnedLoop, run, turned_loop, until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
SUCCESS, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
ORDERLY = ConsumeOrderlyStatus
SENT_BACK = (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2)
NOW_MS = 1_700_000_000_000
PAST, FUTURE = NOW_MS - 1, NOW_MS + 1000


def put(system: FakeSystem, *bodies: str) -> None:
    """Bodies that begin with `x` have expired, those with `s` expire soon."""
    system.topics.setdefault("T", 1)
    for body in bodies:
        at = {"x": PAST, "s": FUTURE}.get(body[0])
        system.put("T", 0, body.encode(), "" if at is None else encode_properties({"EXPIRES_AT_MS": str(at)}))


def push(system: FakeSystem, listener: Any, *, orderly: bool = False, **settings: Any) -> PushConsumer:
    consumer = PushConsumer(
        "g", system.address, consume_from_where=FIRST, persist_offset_interval_ms=10, suspend_current_queue_ms=10,
        **settings,
    )  # fmt: skip
    consumer.subscribe("T")
    consumer.set_listener(listener, orderly=orderly)
    consumer._clock = ManualClock(NOW_MS)
    return consumer


def stored(system: FakeSystem) -> int:
    return system.offsets.get(("g", "T", 0), 0)


@pytest.mark.parametrize("kind", ["coroutine", "function"])
@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("size", [1, 4])
def test_a_listener_gets_the_others(kind: str, orderly: bool, size: int) -> None:
    got: list[bytes] = []

    def listen(messages: Sequence[MessageExt], context: Any) -> Any:
        assert messages
        got.extend(message.body for message in messages)
        return ORDERLY.SUCCESS if orderly else SUCCESS

    async def listen_async(messages: Sequence[MessageExt], context: Any) -> Any:
        return listen(messages, context)

    async def scenario() -> None:
        async with fake_system() as system:
            put(system, "x1", "2", "x3", "s4", "x5")
            listener = listen if kind == "function" else listen_async
            async with push(system, listener, orderly=orderly, consume_batch_max_size=size) as consumer:
                await until(lambda: stored(system) == 5)
                assert consumer.expired == {"T": 3}
            assert sorted(got) == [b"2", b"s4"]
            assert not any(system.count(code) for code in SENT_BACK)

    run(scenario())


def test_a_message_that_expires_while_it_fails_is_not_sent_back() -> None:
    got: list[bytes] = []

    async def scenario() -> None:
        async with fake_system() as system:
            put(system, "s1", "2")

            async def listen(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
                got.extend(message.body for message in messages)
                if messages[0].body == b"s1":
                    clock.advance(2000)
                    return LATER
                return SUCCESS

            consumer = push(system, listen)
            clock = consumer._clock = ManualClock(NOW_MS)
            async with consumer:
                await until(lambda: stored(system) == 2)
            assert sorted(got) == [b"2", b"s1"]
            assert not any(system.count(code) for code in SENT_BACK)

    run(scenario())


def test_an_overdue_message_that_has_expired_is_not_sent_back() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            put(system, "s1")
            begun: list[bytes] = []

            async def hang(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
                begun.append(messages[0].body)
                await asyncio.Event().wait()
                return SUCCESS

            consumer = push(system, hang, consume_timeout_min=1, await_termination_ms=0)
            clock = consumer._clock = ManualClock(NOW_MS)
            async with consumer:
                await until(lambda: begun)
                clock.advance(61_000)
                await turned_loop().turn(60.5)
                await until(lambda: not any(len(held.cached) for held in consumer._held.values()))
            assert stored(system) == 1
            assert not system.sent_back

    run(scenario(), TurnedLoop)


def test_in_order_a_message_that_has_expired_is_neither_repeated_nor_a_dead_letter() -> None:
    got: list[bytes] = []

    async def scenario() -> None:
        async with fake_system() as system:
            put(system, "s1", "2")

            async def listen(messages: Sequence[MessageExt], context: OrderlyContext) -> ConsumeOrderlyStatus:
                got.extend(message.body for message in messages)
                if messages[0].body == b"s1":
                    clock.advance(2000)
                    return ORDERLY.SUSPEND_CURRENT_QUEUE_A_MOMENT
                return ORDERLY.SUCCESS

            consumer = push(system, listen, orderly=True, max_reconsume_times=0)
            clock = consumer._clock = ManualClock(NOW_MS)
            async with consumer:
                await until(lambda: stored(system) == 2)
                assert consumer.expired == {"T": 1}
            assert got == [b"s1", b"2"]
            assert not any(system.count(code) for code in SENT_BACK)

    run(scenario())


def test_an_expired_message_commits_nothing_that_its_listener_has_not_committed() -> None:
    got: list[bytes] = []

    async def listen(messages: Sequence[MessageExt], context: OrderlyContext) -> ConsumeOrderlyStatus:
        context.auto_commit = False
        got.extend(message.body for message in messages)
        return ORDERLY.COMMIT if got[-1] == b"3" else ORDERLY.SUCCESS

    async def scenario() -> None:
        async with fake_system() as system:
            put(system, "1", "x2")
            async with push(system, listen, orderly=True) as consumer:
                await until(lambda: consumer.expired == {"T": 1})
                await asyncio.sleep(0.1)
                assert stored(system) == 0
                put(system, "3")
                await until(lambda: stored(system) == 3)

    run(scenario())


def test_poll_returns_the_others_and_commits_all() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            put(system, "x1", "2", "x3", "s4", "x5", "x6")
            consumer = LitePullConsumer("g", system.address, consume_from_where=FIRST, auto_commit=False)
            consumer.subscribe("T")
            consumer._clock = ManualClock(NOW_MS)
            async with consumer:
                assert [one.body for one in await consumer.poll(5, max_messages=2)] == [b"2"]
                await consumer.commit(wait=True)
                assert stored(system) == 2
                assert [one.body for one in await consumer.poll(5)] == [b"s4"]
                put(system, "x7")
                assert await consumer.poll(5) == []
                await consumer.commit(wait=True)
                assert stored(system) == 7
                assert consumer.expired == {"T": 5}

    run(scenario())


def test_an_interrupted_poll_loses_nothing() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            put(system, "x1", "2", "3")
            consumer = LitePullConsumer("g", system.address, consume_from_where=FIRST)
            consumer.subscribe("T")
            async with consumer:
                given = await poll(consumer, 5, None)
                assert given is not None
                take_back(consumer, given)
                assert [one.body for one in await consumer.poll(5)] == [b"2", b"3"]
            assert consumer.expired == {"T": 1}
            assert stored(system) == 3

    run(scenario())


def test_an_operator_is_told_why_the_listener_was_not_called() -> None:
    async def listen(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        raise AssertionError

    async def scenario() -> None:
        async with fake_system() as system:
            put(system)
            async with push(system, listen) as consumer:
                late = MessageExt("T", b"x", properties={"EXPIRES_AT_MS": str(PAST)})
                result = await consumer.consume_directly(late)
                assert result.consume_result is ConsumeResult.CR_SUCCESS
                assert result.remark is not None
                assert "expired" in result.remark

    run(scenario())


def test_a_producer_says_when_the_message_expires() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            producer = Producer("p", system.address)
            producer._clock = ManualClock(NOW_MS)
            async with producer:
                await producer.send(Message("T", b"1", expires_after=5, deliver_after=2))
                await producer.send_batch([Message("T", b"2", expires_after=1)] * 2)
            first = next(one for one in system.asked if one.code == RequestCode.SEND_MESSAGE_V2)
            properties = decode_properties(first.header(SendMessageV2Header).properties)
            assert properties["EXPIRES_AT_MS"] == str(NOW_MS + 7000)
            assert "EXPIRES_AFTER_MS" not in properties
            batch = next(one for one in system.asked if one.code == RequestCode.SEND_BATCH_MESSAGE)
            assert batch.body.count(b"EXPIRES_AT_MS\x01%d" % (NOW_MS + 1000)) == 2

    run(scenario())


def test_metrics_count_expired_messages() -> None:
    registry = CollectorRegistry()
    metrics = ClientMetrics(registry)

    async def listen(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        return SUCCESS

    async def scenario() -> None:
        async with fake_system() as system:
            put(system, "x1", "2", "x3")
            consumer = push(system, listen)
            metrics.watch(consumer)
            async with consumer:
                await until(lambda: stored(system) == 3)

    run(scenario())
    labels = {"group": "g", "topic": "T"}
    assert registry.get_sample_value("orbitmq_client_expired_messages_total", labels) == 2


def test_the_log_says_it_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    expired = ExpiredMessages("g", clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            expired.skipped([MessageExt("T", b"", msg_id="ID")] * 2)
        clock.advance(LOG_MS)
        expired.skipped([MessageExt("U", b"", msg_id="LAST")])
    first, second = caplog.messages
    assert "topic=T message=ID since_start=2" in first
    assert "topic=U message=LAST since_start=7" in second
    assert expired.counts == {"T": 6, "U": 1}
