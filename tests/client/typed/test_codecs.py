"""A codec reads what it wrote, and what an earlier version wrote; it says what is wrong with any other body."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, SourceCodeInfo
from google.protobuf.timestamp_pb2 import Timestamp

from orbitmq.client import ConfigurationError, MessageExt, MessageIllegal
from orbitmq.client.typed import (
    SCHEMA_ID,
    Codec,
    Schema,
    SchemaIllegal,
    SchemaKind,
    SchemaVersion,
    Topic,
    TopicSchemas,
    WrongBody,
    avro_codec,
    msgspec_codec,
    protobuf_codec,
    pydantic_codec,
)
from orbitmq.schemas.compatibility import check
from orbitmq.schemas.model import Compatibility


class Order(msgspec.Struct):
    id: int
    item: str = "book"


@dataclass
class OrderData:
    id: int
    item: str = "book"


class OrderDict(TypedDict):
    id: int
    item: str


class OrderModel(pydantic.BaseModel):
    id: int
    item: str = "book"


AVRO: dict[str, object] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string", "default": "book"}],
}
OLD_AVRO: dict[str, object] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
TIMES: dict[str, object] = {
    "type": "record",
    "name": "Times",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "raw", "type": "bytes"},
    ],
}


@dataclass
class Times:
    at: datetime
    price: Decimal
    raw: bytes


CODECS: list[tuple[Codec[Any], object]] = [
    (msgspec_codec(Order), Order(1, "pen")),
    (msgspec_codec(OrderData), OrderData(1, "pen")),
    (msgspec_codec(OrderDict), OrderDict(id=1, item="pen")),
    (pydantic_codec(OrderModel), OrderModel(id=1, item="pen")),
    (avro_codec(AVRO), {"id": 1, "item": "pen"}),
    (avro_codec(AVRO, Order), Order(1, "pen")),
    (avro_codec(AVRO, OrderData), OrderData(1, "pen")),
    (avro_codec(TIMES, Times), Times(datetime(2026, 1, 2, tzinfo=UTC), Decimal("1.25"), b"\xff")),
    (protobuf_codec(Timestamp), Timestamp(seconds=5)),
]


def received(body: bytes, **properties: str) -> MessageExt:
    return MessageExt("orders", body, properties=properties)


@pytest.mark.parametrize(("codec", "value"), CODECS)
def test_a_value_is_what_was_sent(codec: Codec[Any], value: object) -> None:
    topic = Topic("orders", codec)
    message = topic.message(value, keys="k", tags="t")
    check(topic.schema)
    assert (message.topic, message.keys, message.tags) == ("orders", "k", "t")
    assert message.properties[SCHEMA_ID] == topic.schema.id
    assert topic.read(received(message.body, **message.properties)) == value
    assert topic.read(received(message.body)) == value, "also of a program that names no schema"


@pytest.mark.parametrize(("codec", "value"), CODECS)
@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"{", b'{"id": "x"}', b"[" * 10_000, b"\x02" * 50])
def test_any_other_body_is_wrong_and_nothing_else_is_raised(codec: Codec[Any], value: object, body: bytes) -> None:
    topic = Topic("orders", codec)
    try:
        topic.read(received(body))
    except WrongBody:
        return
    assert topic.schema.kind is SchemaKind.PROTOBUF, "whose bodies may be anything that is well-formed"


@pytest.mark.parametrize(
    ("codec", "body", "text"),
    [
        (msgspec_codec(Order), b'{"id": "x"}', "no Order: Expected `int`, got `str` - at `$.id`"),
        (pydantic_codec(OrderModel), b'{"id": "x"}', "no OrderModel: field id: Input should be a valid integer"),
        (avro_codec(AVRO), b"\x02\x06pen!", "no data of the schema: 1 bytes too many"),
        (avro_codec(AVRO), b"", "no data of the schema: EOFError"),
        (protobuf_codec(Timestamp), b"\xff", "no Timestamp: "),
    ],
)
def test_the_reason_names_the_field(codec: Codec[Any], body: bytes, text: str) -> None:
    with pytest.raises(WrongBody) as caught:
        Topic("orders", codec).read(received(body))
    assert str(caught.value).startswith(text)


def test_a_body_may_be_nested_but_not_without_end() -> None:
    node: dict[str, object] = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "next", "type": ["null", "Node"]}],
    }
    topic = Topic("orders", avro_codec(node))
    value: dict[str, object] = {"next": None}
    for _ in range(100):
        value = {"next": value}
    assert topic.read(received(topic.message(value).body)) == value
    with pytest.raises(WrongBody, match="RecursionError"):
        topic.read(received(b"\x02" * 1_000_000 + b"\x00"))


def test_a_body_of_an_older_schema_is_read_with_the_schema_that_wrote_it() -> None:
    old, new = Topic("orders", avro_codec(OLD_AVRO)), Topic("orders", avro_codec(AVRO, Order))
    sent = old.message({"id": 7})
    message = received(sent.body, **sent.properties)
    assert new.lacks([message])
    with pytest.raises(WrongBody, match=f"schema {old.schema.id}, which is not registered"):
        new.read(message)
    other = Schema(SchemaKind.JSON, "{}")
    new.learn(TopicSchemas(Compatibility.BACKWARD, [SchemaVersion(1, old.schema, 0), SchemaVersion(2, other, 0)]))
    assert not new.lacks([message])
    assert new.read(message) == Order(7, "book")
    json = Topic("orders", msgspec_codec(Order))
    assert not json.lacks([received(b"", SCHEMA_ID="other")]), "JSON needs no schema of the writer"


class Positive(pydantic.BaseModel):
    count: int = pydantic.Field(gt=0)


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (msgspec_codec(Order), Order(object())),  # type: ignore[arg-type]
        (msgspec_codec(Order), Order("1")),  # type: ignore[arg-type]
        (msgspec_codec(float), math.nan),
        (pydantic_codec(float), math.nan),
        (pydantic_codec(Positive), Positive.model_construct(count=-1)),
        (avro_codec(AVRO), {"id": "x", "item": "pen"}),
        (avro_codec(AVRO), {"id": 1, "other": 2}),
        (protobuf_codec(Timestamp), Order(1)),
    ],
)
def test_a_value_that_has_no_body_is_refused(codec: Codec[Any], value: object) -> None:
    with pytest.raises(MessageIllegal):
        Topic("orders", codec).message(value)


def test_pydantic_refuses_values_of_other_types() -> None:
    with pytest.raises(MessageIllegal, match="no OrderModel"):
        Topic("orders", pydantic_codec(OrderModel)).message(OrderModel.model_construct(id="x"))


@pytest.mark.parametrize("make", [lambda: msgspec_codec(Callable), lambda: avro_codec("no"), lambda: avro_codec("{}")])
def test_a_codec_without_a_schema_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises((ConfigurationError, SchemaIllegal)):
        make()


def test_a_message_of_another_topic_is_the_mistake_of_the_program() -> None:
    topic = Topic("orders", msgspec_codec(Order))
    with pytest.raises(ConfigurationError, match="topic bills"):
        topic.read(MessageExt("bills", b"{}"))


def test_a_topic_needs_a_name() -> None:
    with pytest.raises(MessageIllegal):
        Topic("no topic", msgspec_codec(Order))


def test_protobuf_keeps_the_file_with_all_it_imports() -> None:
    schema = protobuf_codec(SourceCodeInfo).schema
    assert schema.message == "google.protobuf.SourceCodeInfo"
    assert protobuf_codec(FileDescriptorProto).schema.text == schema.text
