"""Spark reads a topic by the schema that is kept with it, at RocketMQ and at orbitmq: `bodySchema=topic`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from orbitmq.client.sync import Producer
from orbitmq.client.typed import Codec, Topic, avro_codec, msgspec_codec, protobuf_codec
from orbitmq.message.model import Message
from orbitmq.operations.schemas import namespace_of
from tests.spark.conftest import System, create_topic, reader
from tests.support.kv_pairs import put_pair
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
