"""Spark reads a topic by the schema that is kept with it, at RocketMQ and at orbitmq: `bodySchema=topic`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from orbitmq.client.sync import Producer
from orbitmq.client.typed import Codec, RegistryTopic, Topic, avro_codec, msgspec_codec, protobuf_codec
from orbitmq.client.typed.sync import register
from orbitmq.message.model import Message
from orbitmq.operations.schemas import namespace_of
from orbitmq.schemas.registry_format import head
from tests.spark.conftest import System, create_topic, reader
from tests.support.kv_pairs import put_pair
from tests.support.schema_registry import SchemaRegistry
from tests.support.sparks import FAILURES


class Order(msgspec.Struct):
    id: int
    item: str


ID = {"name": "id", "type": "int"}
ITEM = {"name": "item", "type": "string", "default": "book"}


def record(*fields: dict[str, str]) -> dict[str, object]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


def filled(system: System, name: str, *sent: tuple[Codec[Any], Any]) -> None:
    create_topic(system, name)
    with Producer("typed", system.namesrv_address) as producer:
        for codec, value in sent:
            producer.register_schema(name, codec.schema)
            producer.send(Topic(name, codec).message(value))


def test_bodies_of_every_version_are_read_by_the_latest(spark: SparkSession, system: System) -> None:
    name, new = "schema-avro", avro_codec(record(ID, ITEM))
    filled(system, name, (avro_codec(record(ID)), {"id": 1}), (new, {"id": 2, "item": "pen"}))
    with Producer("typed", system.namesrv_address) as producer:
        unknown = Topic(name, avro_codec(record({"name": "other", "type": "int"})))
        producer.send(unknown.message({"other": 3}))
        plain = Message(name, new.encode({"id": 4, "item": "ink"}))
        producer.send(plain)
    put_pair(system.namesrv_address, namespace_of(name), "000003-x", "damaged")
    read = reader(spark, system, bodyFormat="avro", bodySchema="topic")
    frame = read.load(name)
    assert frame.schema["value"].dataType.simpleString() == "struct<id:int,item:string>"
    rows = frame.select("value", "_rescued").collect()
    values = [tuple(row.value) for row in rows if row.value is not None and row.value.id is not None]
    assert sorted(values) == [(1, "book"), (2, "pen"), (4, "ink")]
    assert len(rows) == 4
    items = read.schema("value STRUCT<item: STRING>").load(name).select("value.item").collect()
    assert sorted(str(row.item) for row in items) == ["None", "book", "ink", "pen"], "one field of older bodies, too"
    failing = reader(spark, system, bodyFormat="avro", bodySchema="topic", bodyMode="failfast").load(name)
    with pytest.raises(FAILURES, match=f"schema {unknown.schema.id}, which is not registered"):
        failing.select("value").collect()


def test_json_and_protobuf_have_the_columns_of_their_schema(spark: SparkSession, system: System) -> None:
    filled(system, "schema-json", (msgspec_codec(Order), Order(1, "pen")))
    filled(system, "schema-proto", (protobuf_codec(FieldMask), FieldMask(paths=["a", "b"])))
    (row,) = reader(spark, system, bodyFormat="json", bodySchema="topic").load("schema-json").select("value").collect()
    assert row.value.asDict() == {"id": 1, "item": "pen"}
    proto = reader(spark, system, bodyFormat="protobuf", bodySchema="topic").load("schema-proto")
    (row,) = proto.select("value").collect()
    assert row.value.paths == ["a", "b"]


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as running:
        yield running


def sent_by_registry(system: System, registry: SchemaRegistry, name: str, *sent: tuple[Codec[Any], Any]) -> None:
    create_topic(system, name)
    with Producer("typed", system.namesrv_address, schema_registry=registry.url) as producer:
        for codec, value in sent:
            topic = RegistryTopic(name, codec)
            register(producer, topic)
            producer.send(topic.message(value))
        producer.send(Message(name, b"none of its bodies"))


def test_bodies_of_a_registry_are_read_by_the_ids_they_begin_with(
    spark: SparkSession, system: System, registry: SchemaRegistry
) -> None:
    first, second = avro_codec(record(ID)), avro_codec(record(ID, ITEM))
    sent_by_registry(system, registry, "registry-avro", (first, {"id": 1}), (second, {"id": 2, "item": "pen"}))
    with Producer("typed", system.namesrv_address) as producer:
        producer.send(Message("registry-avro", head(99) + first.encode({"id": 3})))
    options = {"bodySchema": "topic", "schemaRegistry": registry.url}
    rows = reader(spark, system, bodyFormat="avro", **options).load("registry-avro").select("value", "_rescued")
    values = sorted((row.value.id, row.value.item) for row in rows.collect() if row._rescued is None)
    assert values == [(1, "book"), (2, "pen")]
    assert rows.count() == 4
    failing = reader(spark, system, bodyFormat="avro", bodyMode="failfast", **options).load("registry-avro")
    with pytest.raises(FAILURES, match=r"no body of the registry's format|the schema 99, which the subject does not"):
        failing.select("value").collect()
    named = reader(spark, system, bodyFormat="avro", schemaRegistrySubject="other", **options)
    with pytest.raises(PySparkException, match="subject other of the registry has no schema"):
        named.load("registry-avro")


def test_json_and_protobuf_of_a_registry_have_their_columns(
    spark: SparkSession, system: System, registry: SchemaRegistry
) -> None:
    sent_by_registry(system, registry, "registry-json", (msgspec_codec(Order), Order(1, "pen")))
    sent_by_registry(system, registry, "registry-proto", (protobuf_codec(FieldMask), FieldMask(paths=["a", "b"])))
    options = {"bodySchema": "topic", "schemaRegistry": registry.url, "bodyMode": "dropmalformed"}
    (row,) = reader(spark, system, bodyFormat="json", **options).load("registry-json").select("value").collect()
    assert row.value.asDict() == {"id": 1, "item": "pen"}
    (row,) = reader(spark, system, bodyFormat="protobuf", **options).load("registry-proto").select("value").collect()
    assert row.value.paths == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"schemaRegistry": "http://127.0.0.1:1", "bodySchema": "topic"}, "option schemaRegistry: no schema registry"),
        ({"schemaRegistry": "ftp://127.0.0.1", "bodySchema": "topic"}, "is no URL of a schema registry"),
        ({"schemaRegistry": "http://127.0.0.1:1", "bodySchema": "a INT"}, "needs bodySchema=topic"),
    ],
)
def test_a_registry_that_cannot_be_asked_is_named(
    spark: SparkSession, system: System, options: dict[str, str], text: str
) -> None:
    create_topic(system, "registry-none")
    with pytest.raises(PySparkException, match=text):
        reader(spark, system, bodyFormat="json", **options).load("registry-none")


@pytest.mark.parametrize(
    ("topic", "options", "text"),
    [
        ("schema-none", {"bodyFormat": "json"}, "has no schema"),
        ("schema-damaged", {"bodyFormat": "json"}, r"has no schema that can be read \(x: no version of a schema"),
        ("schema-one", {"bodyFormat": "avro"}, "is of json"),
        ("schema-one,schema-none", {"bodyFormat": "json"}, "one topic"),
        ("schema-one", {"bodyFormat": "protobuf", "bodyMessage": "Order"}, "is of json"),
    ],
)
def test_what_cannot_be_read_is_named(
    spark: SparkSession, system: System, topic: str, options: dict[str, str], text: str
) -> None:
    create_topic(system, "schema-none")
    create_topic(system, "schema-damaged")
    put_pair(system.namesrv_address, namespace_of("schema-damaged"), "x", "damaged")
    filled(system, "schema-one", (msgspec_codec(Order), Order(1, "pen")))
    with pytest.raises(PySparkException, match=text):
        reader(spark, system, bodySchema="topic", **options).load(topic)
