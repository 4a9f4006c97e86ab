"""Schemas of typed messages at a registry: bodies are those of Confluent's serializers, a wrong one is a dead letter,
and no message is one because the registry is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from orbitmq.client import (
    ConcurrentContext,
    ConfigurationError,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    InvalidStateError,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    sync,
)
from orbitmq.client.typed import (
    Codec,
    Compatibility,
    Received,
    RegistryTopic,
    SchemaIllegal,
    SchemaIncompatible,
    SchemasAway,
    SchemaVersion,
    Topic,
    TopicSchemas,
    WrongBody,
    avro_codec,
    listening,
    msgspec_codec,
    protobuf_codec,
    register,
    typed,
    typed_orderly,
    values,
)
from orbitmq.client.typed import sync as typed_sync
from orbitmq.message.properties import DEAD_LETTER_REASON
from orbitmq.message.topics import dlq_topic
from orbitmq.operations import registry as operations
from tests.support.loops import until
from tests.support.orbit_process import OrbitUp
from tests.support.schema_registry import SchemaRegistry

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
ID, ITEM = {"name": "id", "type": "long"}, {"name": "item", "type": "string", "default": "book"}


def record(*fields: dict[str, str]) -> dict[str, object]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


class Order(msgspec.Struct):
    id: int


def message_class() -> Any:
    """`shop.Order.Item`, in the second message of its file."""
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Line")
    item = file.message_type.add(name="Order").nested_type.add(name="Item")
    item.field.add(name="name", number=1, type=9, label=1)
    pool = DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call]
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order.Item"))  # type: ignore[no-untyped-call]


Item = message_class()
BODIES: list[tuple[Codec[Any], Any, str]] = [
    (avro_codec(record(ID, ITEM)), {"id": 1, "item": "pen"}, "00 00000007 02 0670656e"),
    (msgspec_codec(Order), Order(1), "00 00000007 7b226964223a317d"),
    (protobuf_codec(Timestamp), Timestamp(seconds=5), "00 00000007 00 0805"),
    (protobuf_codec(Item), Item(name="pen"), "00 00000007 040200 0a0370656e"),
]
"""What Confluent's serializers write for the schema 7: `AvroSerializer`, `JSONSerializer` and `ProtobufSerializer` of
confluent-kafka 2.16.1.
"""


@pytest.fixture(scope="module")
def up() -> Iterator[OrbitUp]:
    with OrbitUp(messageDelayLevel=" ".join(["1s"] * 18)) as running:
        yield running


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SchemaRegistry]:
    monkeypatch.setattr(operations, "UNKNOWN_AGAIN_S", 0.0)
    with SchemaRegistry() as running:
        yield running


def received(body: bytes) -> MessageExt:
    return MessageExt("orders", body)


@pytest.mark.parametrize(("codec", "value", "body"), BODIES, ids=["avro", "json", "protobuf", "nested"])
def test_bodies_are_those_of_confluents_serializers(codec: Codec[Any], value: Any, body: str) -> None:
    topic = RegistryTopic("orders", codec)
    with pytest.raises(InvalidStateError, match="call register"):
        topic.message(value)
    topic.learn(TopicSchemas(Compatibility.BACKWARD, [SchemaVersion(1, topic.schema, 0, 7)]))
    message = topic.message(value, keys="k")
    assert message.body == bytes.fromhex(body)
    assert message.keys == "k"
    assert topic.read(received(message.body)) == value


def test_the_reason_of_a_wrong_body_says_what_is_wrong() -> None:
    topic = RegistryTopic("orders", avro_codec(record(ID)))
    bare, of_seven = received(b'{"id": 1}'), received(bytes.fromhex("000000000702"))
    assert topic.lacking([bare, of_seven]) == {7}
    with pytest.raises(WrongBody, match="not with 0 and the id of a schema"):
        topic.read(bare)
    topic.learn_ids({7: "which the registry does not have"})
    with pytest.raises(WrongBody, match="the schema 7, which the registry does not have"):
        topic.read(of_seven)
    topic.learn_ids({7: msgspec_codec(Order).schema})
    with pytest.raises(WrongBody, match="the schema 7, which is json"):
        topic.read(of_seven)
    topic.learn_ids({7: topic.schema})
    assert topic.read(of_seven) == {"id": 1}
    assert not topic.lacks([bare, of_seven])


def producer_of(up: OrbitUp, server: SchemaRegistry, **settings: Any) -> Producer:
    return Producer("p", up.namesrv_address, schema_registry=server.url, **settings)


async def sent(up: OrbitUp, server: SchemaRegistry, name: str) -> RegistryTopic[dict[str, object]]:
    """A body of each of two versions, one of an unknown schema, and one without any; the topic of the newer version."""
    old, new = (RegistryTopic(name, avro_codec(record(*fields))) for fields in ([ID], [ID, ITEM]))
    async with producer_of(up, server) as producer:
        await producer.create_topic(name, queues=1)
        for topic, value in ((old, {"id": 1}), (new, {"id": 2, "item": "pen"})):
            await register(producer, topic)
            await producer.send(topic.message(value))
        await producer.send(Message(name, bytes.fromhex("000000004d02")))
        await producer.send(Message(name, b"no"))
    return RegistryTopic(name, avro_codec(record(ID, ITEM)))


@asynccontextmanager
async def consuming(
    up: OrbitUp, server: SchemaRegistry, topic: Topic[Any], *, orderly: bool, kind: str = "function", **settings: Any
) -> AsyncIterator[list[object]]:
    """A consumer; the values it gets."""
    seen: list[object] = []

    def function(got: Sequence[Received[Any]], _context: object) -> Any:
        seen.extend(one.value for one in got)
        return ConsumeOrderlyStatus.SUCCESS if orderly else ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async def coroutine(got: Sequence[Received[Any]], context: object) -> Any:
        return function(got, context)

    consumer = PushConsumer(
        topic.name,
        up.namesrv_address,
        consume_from_where=FIRST,
        schema_registry=server.url,
        consume_threads=1,
        **settings,
    )
    consumer.subscribe(topic.name)
    wrap: Any = typed_orderly if orderly else typed
    listener = wrap(consumer, topic, function if kind == "function" else coroutine)
    consumer.set_listener(listener, orderly=orderly)
    async with consumer:
        yield seen


async def letters(up: OrbitUp, group: str) -> list[str | None]:
    async with LitePullConsumer(f"{group}-reader", up.namesrv_address, consume_from_where=FIRST) as reader:
        reader.subscribe(dlq_topic(group))
        found: list[MessageExt] = []
        async with asyncio.timeout(60):
            while len(found) < 2:
                found += await reader.poll(1)
    return sorted(str(one.properties.get(DEAD_LETTER_REASON)) for one in found)


@pytest.mark.parametrize("kind", ["coroutine", "function"])
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_older_bodies_are_read_and_wrong_ones_are_dead_letters(
    up: OrbitUp, server: SchemaRegistry, kind: str, *, orderly: bool
) -> None:
    topic = await sent(up, server, f"registry-{kind}-{orderly}")
    async with consuming(up, server, topic, orderly=orderly, kind=kind) as seen:
        await until(lambda: len(seen) == 2)
        reasons = await letters(up, topic.name)
    assert seen == [{"id": 1, "item": "book"}, {"id": 2, "item": "pen"}]
    assert reasons == [
        "it was written with the schema 77, which the registry does not have",
        "no body of the registry's format: it begins with 6e 6f, not with 0 and the id of a schema",
    ]
    assert server.requests.count("GET /schemas/ids/1") == 1, "it is known then"


@pytest.mark.parametrize("kind", ["coroutine", "function"])
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_no_message_is_a_dead_letter_because_the_registry_is_away(
    up: OrbitUp, server: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, kind: str, *, orderly: bool
) -> None:
    """Neither when it lasts longer than a listener waits, nor when a message may not fail at all."""
    topic = await sent(up, server, f"away-{kind}-{orderly}")
    monkeypatch.setattr(listening, "PATIENCE_S", 0.0)
    tried: list[int] = []
    look_up = listening._look_up

    async def counted(*arguments: Any) -> None:
        tried.append(1)
        await look_up(*arguments)

    monkeypatch.setattr(listening, "_look_up", counted)
    server.stop()
    settings = {"max_reconsume_times": 1, "suspend_current_queue_ms": 10}
    async with consuming(up, server, topic, orderly=orderly, kind=kind, **settings) as seen:
        await until(lambda: len(tried) > 8)
        assert seen == []
        server.start()
        await until(lambda: len(seen) == 2)
        assert len(await letters(up, topic.name)) == 2, "the wrong ones, now that this is known"


async def test_a_listener_waits_for_the_registry(
    up: OrbitUp, server: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "AGAIN_S", 0.01)
    topic = await sent(up, server, "registry-waits")
    server.answer = 503, b"{}"
    async with consuming(up, server, topic, orderly=False) as seen:
        await until(lambda: caplog.text.count("event=schemas_away") > 2)
        server.answer = None
        await until(lambda: len(seen) == 2)


async def test_consumers_that_poll_learn_that_the_registry_is_away(up: OrbitUp, server: SchemaRegistry) -> None:
    topic = await sent(up, server, "registry-polls")
    settings: Any = {"consume_from_where": FIRST, "schema_registry": server.url}
    async with LitePullConsumer("registry-polls", up.namesrv_address, **settings) as consumer:
        consumer.subscribe(topic.name)
        messages: list[MessageExt] = []
        async with asyncio.timeout(60):
            while len(messages) < 4:
                messages += await consumer.poll(1)
        server.answer = 503, b"{}"
        with pytest.raises(SchemasAway):
            await values(consumer, topic, messages)
        server.answer = None
        assert [one.value for one in await values(consumer, topic, messages)] == [
            {"id": 1, "item": "book"}, {"id": 2, "item": "pen"},
        ]  # fmt: skip


async def test_the_registry_refuses_what_it_finds_incompatible(up: OrbitUp, server: SchemaRegistry) -> None:
    first, wrong = (
        RegistryTopic("registry-refuses", avro_codec(record({"name": "id", "type": kind})))
        for kind in ("long", "string")
    )
    async with producer_of(up, server, schema_registry_subject="shop.{topic}") as producer:
        version = await register(producer, first)
        assert (version.number, version.registry_id) == (1, 1)
        assert list(server.subjects) == ["shop.registry-refuses"]
        assert [one.number for one in (await producer.schemas("registry-refuses")).versions] == [1]
        with pytest.raises(SchemaIncompatible, match="field id is string, and was long"):
            await register(producer, wrong)
        with pytest.raises(ConfigurationError, match="compatibility is set at the schema registry"):
            await register(producer, first, compatibility=Compatibility.NONE)


async def test_schemas_are_only_looked_up_if_the_setting_says_so(up: OrbitUp, server: SchemaRegistry) -> None:
    topic = RegistryTopic("registry-finds", avro_codec(record(ID)))
    async with producer_of(up, server, schema_registry_register=False) as producer:
        with pytest.raises(SchemaIllegal, match="schema_registry_register"):
            await register(producer, topic)
        server.put("registry-finds-value", "AVRO", topic.schema.text)
        assert (await register(producer, topic)).registry_id == 1


async def test_a_topic_and_a_client_of_different_sources_are_refused(up: OrbitUp, server: SchemaRegistry) -> None:
    there, here = RegistryTopic("orders", msgspec_codec(Order)), Topic("orders", msgspec_codec(Order))

    def listen(_received: object, _context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    with pytest.raises(ConfigurationError, match="set schema_registry of the client"):
        typed(PushConsumer("g", up.namesrv_address), there, listen)
    with pytest.raises(ConfigurationError, match="use RegistryTopic"):
        typed(PushConsumer("g", up.namesrv_address, schema_registry=server.url), here, listen)
    async with producer_of(up, server) as producer:
        with pytest.raises(ConfigurationError, match="use RegistryTopic"):
            await register(producer, here)
    with pytest.raises(ConfigurationError, match="no URL of a schema registry"):
        Producer("p", up.namesrv_address, schema_registry="nowhere")


def test_the_synchronous_face_does_the_same(up: OrbitUp, server: SchemaRegistry) -> None:
    topic = RegistryTopic("registry-sync", avro_codec(record(ID)))
    with sync.Producer("p", up.namesrv_address, schema_registry=server.url) as producer:
        producer.create_topic("registry-sync", queues=1)
        assert typed_sync.register(producer, topic).registry_id == 1
        producer.send(topic.message({"id": 1}))
    settings: Any = {"consume_from_where": FIRST, "schema_registry": server.url}
    with sync.LitePullConsumer("registry-sync", up.namesrv_address, **settings) as consumer:
        consumer.subscribe("registry-sync")
        other = RegistryTopic("registry-sync", avro_codec(record(ID, ITEM)))
        got = typed_sync.values(consumer, other, consumer.poll(30))
    assert [one.value for one in got] == [{"id": 1, "item": "book"}]
