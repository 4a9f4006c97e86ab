"""Typed listeners get values; a wrong body is a dead letter with its reason and does not hold up its queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageModel,
    OrderlyContext,
    Producer,
    PushConsumer,
    SimpleConsumer,
    concurrent_delivery,
    sync,
)
from orbitmq.client.core.consume import first_failed
from orbitmq.client.typed import (
    SCHEMA_ID,
    Compatibility,
    Received,
    SchemaIllegal,
    SchemaIncompatible,
    Topic,
    TopicSchemas,
    WrongBody,
    avro_codec,
    listening,
    msgspec_codec,
    register,
    typed,
    typed_orderly,
    values,
)
from orbitmq.client.typed import sync as typed_sync
from orbitmq.errors import ConnectError, RemotingTimeout
from orbitmq.message.properties import DEAD_LETTER_REASON
from orbitmq.message.topics import dlq_topic, retry_topic
from tests.support.loops import until
from tests.support.orbit_process import OrbitUp
from tests.support.process import wait_until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
REASON = "no Order: Expected `int`, got `str` - at `$.id`"
WRONG = b'{"id": "x"}'


class Order(msgspec.Struct):
    id: int


def record(*fields: dict[str, object]) -> dict[str, object]:
    return {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, *fields]}


@pytest.fixture(scope="module")
def up() -> Iterator[OrbitUp]:
    with OrbitUp(messageDelayLevel=" ".join(["1s"] * 18)) as running:
        yield running


async def filled(up: OrbitUp, name: str, *bodies: bytes | int, groups: Sequence[str] = ()) -> Topic[Order]:
    """A broker that makes the topics of a group later waits for its disk, and a client that waits less sends twice."""
    topic = Topic(name, msgspec_codec(Order))
    async with Producer("p", up.namesrv_address) as producer:
        for made in (name, *(kind(group) for group in groups or (name,) for kind in (retry_topic, dlq_topic))):
            await producer.create_topic(made, queues=1)
        for body in bodies:
            await producer.send(topic.message(Order(body)) if isinstance(body, int) else Message(name, body))
    return topic


async def reasons(up: OrbitUp, group: str) -> list[str | None]:
    async with LitePullConsumer(f"{group}-reader", up.namesrv_address, consume_from_where=FIRST) as reader:
        reader.subscribe(dlq_topic(group))
        letters = await reader.poll(30)
        letters += await reader.poll(0.2)
    return [letter.properties.get(DEAD_LETTER_REASON) for letter in letters]


def consumer_of(up: OrbitUp, group: str, **settings: Any) -> PushConsumer:
    consumer = PushConsumer(group, up.namesrv_address, consume_from_where=FIRST, **settings)
    consumer.subscribe(group)
    return consumer


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_a_listener_gets_values_and_wrong_bodies_are_dead_letters(up: OrbitUp, kind: str) -> None:
    group = f"typed-{kind}"
    topic = await filled(up, group, 1, WRONG, 2)
    seen: list[int] = []

    def function(received: Sequence[Received[Order]], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        seen.extend(one.value.id for one in received)
        return SUCCESS

    async def coroutine(received: Sequence[Received[Order]], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        return function(received, context)

    consumer = consumer_of(up, group)
    consumer.set_listener(typed(consumer, topic, function if kind == "function" else coroutine))
    async with consumer:
        assert await reasons(up, group) == [REASON]
        await until(lambda: sorted(seen) == [1, 2])


async def test_an_orderly_queue_goes_on_after_a_wrong_body(up: OrbitUp) -> None:
    topic = await filled(up, "typed-orderly", 1, WRONG, 2)
    seen: list[int] = []

    def listen(received: Sequence[Received[Order]], context: OrderlyContext) -> ConsumeOrderlyStatus:
        seen.extend(one.value.id for one in received)
        return ConsumeOrderlyStatus.SUCCESS

    consumer = consumer_of(up, "typed-orderly")
    consumer.set_listener(typed_orderly(consumer, topic, listen), orderly=True)
    async with consumer:
        await until(lambda: seen == [1, 2])
    assert await reasons(up, "typed-orderly") == [REASON]


async def test_the_index_of_a_listener_counts_values() -> None:
    topic = Topic("orders", msgspec_codec(Order))
    consumer = PushConsumer("g", "127.0.0.1:1")

    def listen(received: Sequence[Received[Order]], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        context.ack_index = len(received) - 2
        return SUCCESS

    listener: Any = typed(consumer, topic, listen)
    messages = [MessageExt("orders", body) for body in (b'{"id": 1}', WRONG, b'{"id": 2}', b'{"id": 3}')]
    context = ConcurrentContext(messages[0].queue)
    assert listener(messages, context) is SUCCESS
    assert context.ack_index == 2, "the last message failed, and no other"
    assert [one.message for one in context.rejections] == [messages[1]]


async def test_values_that_succeeded_are_not_delivered_again() -> None:
    topic = Topic("orders", msgspec_codec(Order))

    def listen(received: Sequence[Received[Order]], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        context.ack_index = len(received) - 1
        return SUCCESS

    listener: Any = typed(PushConsumer("g", "127.0.0.1:1"), topic, listen)
    messages = [MessageExt("orders", body) for body in (b'{"id": 1}', WRONG, b'{"id": 2}')]
    context = ConcurrentContext(messages[0].queue)
    assert listener(messages, context) is SUCCESS
    assert first_failed(SUCCESS, context, len(messages)) == len(messages)


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_a_body_of_an_older_schema_is_read(up: OrbitUp, kind: str) -> None:
    group = f"older-{kind}"
    old = Topic(group, avro_codec(record()))
    new = Topic(group, avro_codec(record({"name": "item", "type": "string", "default": "book"})))
    async with Producer("p", up.namesrv_address) as producer:
        await producer.create_topic(group, queues=1)
        await producer.register_schema(group, old.schema)
        await producer.send(old.message({"id": 1}))
        await producer.register_schema(group, new.schema)
        await producer.send(new.message({"id": 2, "item": "pen"}))
        unknown = Topic(group, avro_codec(record({"name": "n", "type": "int"})))
        await producer.send(unknown.message({"id": 3, "n": 4}))
    seen: list[object] = []

    def function(received: Sequence[Received[dict[str, object]]], context: ConcurrentContext) -> Any:
        seen.extend(one.value for one in received)
        return SUCCESS

    async def coroutine(received: Sequence[Received[dict[str, object]]], context: ConcurrentContext) -> Any:
        return function(received, context)

    consumer = consumer_of(up, group, consume_threads=1)
    consumer.set_listener(typed(consumer, new, function if kind == "function" else coroutine))
    async with consumer:
        await until(lambda: len(seen) == 2)
        assert await reasons(up, group) == [
            f"it was written with the schema {unknown.schema.id}, which is not registered"
        ]
    assert seen == [{"id": 1, "item": "book"}, {"id": 2, "item": "pen"}]


@pytest.mark.parametrize("way", ["concurrent", "orderly", "broadcasting"])
async def test_no_message_is_lost_because_no_name_server_responds(
    up: OrbitUp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    """It is no dead letter, and a broadcasting consumer, which drops what fails, does not drop it."""
    group, orderly = f"away-{way}", way == "orderly"
    old = Topic(group, avro_codec(record()))
    new = Topic(group, avro_codec(record({"name": "item", "type": "string", "default": "book"})))
    async with Producer("p", up.namesrv_address) as producer:
        await producer.create_topic(group, queues=1)
        await register(producer, old)
        await producer.send(old.message({"id": 1}))
    failures = [RemotingTimeout("no response"), ConnectError("no connection")] * 3
    look_up = listening._look_up

    async def failing(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        await look_up(*arguments)

    monkeypatch.setattr(listening, "_look_up", failing)
    monkeypatch.setattr(listening, "PATIENCE_S", 0.0)
    monkeypatch.setattr(concurrent_delivery, "RESUBMIT_S", 0.01)
    seen: list[object] = []

    def listen(received: Sequence[Received[dict[str, object]]], _context: object) -> Any:
        seen.extend(one.value for one in received)
        return ConsumeOrderlyStatus.SUCCESS if orderly else SUCCESS

    settings = {"max_reconsume_times": 1, "suspend_current_queue_ms": 10, "local_offset_dir": str(tmp_path)}
    model = MessageModel.BROADCASTING if way == "broadcasting" else MessageModel.CLUSTERING
    consumer = consumer_of(up, group, message_model=model, **settings)
    wrap: Any = typed_orderly if orderly else typed
    consumer.set_listener(wrap(consumer, new, listen), orderly=orderly)
    async with consumer:
        await until(lambda: seen == [{"id": 1, "item": "book"}])
    assert failures == []


def test_a_body_is_delivered_again_while_its_schema_may_be_one_that_cannot_be_read() -> None:
    topic = Topic("orders", avro_codec(record()))
    unreadable = {"000002-x": "no version of a schema"}
    topic.learn(TopicSchemas(Compatibility.BACKWARD, [], unreadable))
    message = MessageExt("orders", b"\x02", properties={SCHEMA_ID: "0123456789abcdef"})
    with pytest.raises(SchemaIllegal, match=r"cannot be read \(000002-x: no version of a schema\).*--unreadable"):
        topic.read(message)
    assert topic.read(MessageExt("orders", b"\x02")) == {"id": 1}, "one that is known is read"
    topic.learn(TopicSchemas(Compatibility.BACKWARD, []))
    with pytest.raises(WrongBody, match="not registered"):
        topic.read(message)


async def test_consumers_that_receive_or_poll_get_values(up: OrbitUp) -> None:
    topic = await filled(up, "typed-pulls", 1, WRONG, groups=["typed-polled", "typed-received"])
    async with LitePullConsumer("typed-polled", up.namesrv_address, consume_from_where=FIRST) as polling:
        polling.subscribe("typed-pulls")
        found: list[Received[Order]] = []
        async with asyncio.timeout(30):
            while not found:
                found += await values(polling, topic, await polling.poll(1))
        assert [one.value.id for one in found] == [1]
        assert await reasons(up, "typed-polled") == [REASON]
    async with SimpleConsumer("typed-received", up.namesrv_address) as simple:
        simple.subscribe("typed-pulls")
        messages = await simple.receive(timeout=5)
        got = await values(simple, topic, messages)
        assert [one.value.id for one in got] == [1]
        await simple.ack(got[0].message)
    assert await reasons(up, "typed-received") == [REASON]


def test_the_synchronous_face_does_the_same(up: OrbitUp) -> None:
    topic: Topic[Order] = asyncio.run(
        filled(up, "typed-sync", 1, WRONG, groups=["typed-sync", "typed-sync-orderly", "typed-sync-simple"])
    )
    with sync.Producer("p", up.namesrv_address) as producer:
        assert producer.register_schema("typed-sync", topic.schema).number == 1
        assert producer.schemas("typed-sync").by_id(topic.schema.id) is not None
        with pytest.raises(SchemaIncompatible, match="field id is string, and was integer"):
            producer.register_schema("typed-sync", msgspec_codec(OtherOrder).schema)
    seen: list[int] = []

    def listen(received: Sequence[Received[Order]], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        seen.extend(one.value.id for one in received)
        return SUCCESS

    for group, orderly in (("typed-sync", False), ("typed-sync-orderly", True)):
        consumer = sync.PushConsumer(group, up.namesrv_address, consume_from_where=FIRST)
        consumer.subscribe("typed-sync")
        if orderly:
            consumer.set_listener(typed_sync.typed_orderly(consumer, topic, partial(in_order, seen)), orderly=True)
        else:
            consumer.set_listener(typed_sync.typed(consumer, topic, listen))
        with consumer:
            wait_until(lambda: seen == [1], 30, "the value")
            assert asyncio.run(reasons(up, group)) == [REASON]
        seen.clear()
    with sync.SimpleConsumer("typed-sync-simple", up.namesrv_address) as simple:
        simple.subscribe("typed-sync")
        assert [one.value.id for one in typed_sync.values(simple, topic, simple.receive(timeout=5))] == [1]


def in_order(seen: list[int], received: Sequence[Received[Order]], context: OrderlyContext) -> ConsumeOrderlyStatus:
    seen.extend(one.value.id for one in received)
    return ConsumeOrderlyStatus.SUCCESS


class OtherOrder(msgspec.Struct):
    id: str
