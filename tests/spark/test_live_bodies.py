"""Typed bodies of live brokers, RocketMQ 4.9.7 and orbitmq: batch, stream, sink, and the schema of the newest ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it

from orbitmq.client.sync import Producer
from orbitmq.message.model import Message
from orbitmq.spark import create_view
from orbitmq.spark.versions import start_until_now
from tests.spark.conftest import System, create_topic, reader
from tests.support.sparks import FAILURES, with_sources, writing
from tests.support.streams import finished

COUNT = 40
ODD = b'{"id": "seven", "note": "new"}'
DDL = "id BIGINT, name STRING, total DECIMAL(10,2), tags ARRAY<STRING>, at TIMESTAMP"
FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"]},
    {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]
AVRO = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1; string name = 2; repeated string tags = 3; google.protobuf.Timestamp at = 4; uint64 large = 5;
}
"""


def order(number: int) -> dict[str, object]:
    """Every tenth is so large that producers compress it."""
    name = "Zoë 東京" if number % 10 else "x" * 10_000
    return {
        "id": number,
        "name": name,
        "total": f"{number}.25",
        "tags": [str(number)],
        "at": 1_763_720_000_000 + number,
    }


@pytest.fixture(scope="module")
def typed(system: System) -> str:
    """A topic of orders in JSON, and one message that is none."""
    name = "typed-bodies"
    create_topic(system, name)
    with Producer("typed", system.namesrv_address) as producer:
        for number in range(COUNT):
            producer.send(Message(name, json.dumps(order(number)).encode(), tags="order"))
        producer.send(Message(name, ODD, tags="odd"))
    return name


def values(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(map(tuple, frame.select("value.id", "value.name", "value.total", "value.at").collect()))


def test_bodies_are_read_by_a_schema_and_by_one_that_is_inferred(
    spark: SparkSession, system: System, typed: str
) -> None:
    given = reader(spark, system, bodyFormat="json", bodySchema=DDL).load(typed)
    assert "body" not in given.columns
    rows = given.select("value", "_rescued").collect()
    assert sorted(row.value.id for row in rows if row.value.id is not None) == list(range(COUNT))
    assert {row._rescued for row in rows} == {None, '{"id": "seven", "note": "new"}'}
    (tenth,) = [row.value for row in rows if row.value.id == 10]
    assert (tenth.name, str(tenth.total), tenth.tags) == ("x" * 10_000, "10.25", ["10"])
    inferred = reader(spark, system, bodyFormat="json", subExpression="order").load(typed)
    assert inferred.schema["value"].dataType.simpleString() == (
        "struct<at:bigint,id:bigint,name:string,tags:array<string>,total:string>"
    ), "of the messages that are read"
    assert inferred.where("value.id >= 10 AND value.tags[0] = '11'").count() == 1


@with_sources
def test_the_users_schema_is_that_of_the_bodies(spark: SparkSession, system: System, typed: str) -> None:
    pruned = reader(spark, system, bodyFormat="json").schema("tags STRING, value STRUCT<id: BIGINT>").load(typed)
    assert pruned.agg(F.sum("value.id")).first()[0] == sum(range(COUNT))
    wrong = reader(spark, system, bodyFormat="json", bodySchema=DDL).schema("value STRUCT<id: STRING>")
    with pytest.raises(PySparkException, match=r"ORBITMQ_BAD_SCHEMA: column value\.id is bigint, not string"):
        wrong.load(typed).collect()


def test_sql_reads_fields_of_bodies_through_a_view(spark: SparkSession, system: System, typed: str) -> None:
    told = {"nameServer": system.namesrv_address, "subscribe": typed, "bodyFormat": "json", "bodySchema": DDL}
    create_view(spark, "typed", **told)
    counted = spark.sql("SELECT count(value.id), max(value.total) FROM typed WHERE value.id % 2 = 0").first()
    assert tuple(map(str, counted)) == (str(COUNT // 2), f"{COUNT - 2}.25")
    spark.catalog.dropTempView("typed")


def test_a_body_that_does_not_fit_fails_by_its_place_or_is_left_out(
    spark: SparkSession, system: System, typed: str
) -> None:
    strict = reader(spark, system, bodyFormat="json", bodySchema=DDL, bodyMode="failfast").load(typed)
    place = r"queue \d of topic typed-bodies on [\w-]+ at offset \d+"
    text = rf'ORBITMQ_BAD_BODY: the body of {place} does not fit the schema: id: "seven" is no int64'
    with pytest.raises(PySparkException, match=text):
        strict.collect()
    assert (
        reader(spark, system, bodyFormat="json", bodySchema=DDL, bodyMode="dropmalformed").load(typed).count() == COUNT
    )


@with_sources
def test_orders_go_through_a_stream_and_topics_of_every_format(
    spark: SparkSession, system: System, typed: str, tmp_path: Path
) -> None:
    """JSON is streamed into a topic of Avro; its batch is written in Protobuf, and that as JSON again."""
    (tmp_path / "order.proto").write_text(PROTO)
    formats = {
        "json": {"bodyFormat": "json", "bodySchema": DDL},
        "avro": {"bodyFormat": "avro", "bodySchema": AVRO},
        "protobuf": {"bodyFormat": "protobuf", "bodySchema": str(tmp_path / "order.proto")},
    }
    for name in formats:
        create_topic(system, f"typed-{name}")
    server = ("nameServer", system.namesrv_address)
    source = spark.readStream.format("orbitmq").option(*server).options(**formats["json"], bodyMode="dropmalformed")
    source = source.options(startingOffsets="earliest", availableNow="true")
    stream = source.load(typed).select("value", "keys")
    spark.createDataFrame([], "x INT")  # makes it this thread's session; a write looks for its sink there
    sink = stream.writeStream.format("orbitmq").option(*server).options(**formats["avro"], topic="typed-avro")
    finished(lambda: start_until_now(sink.option("checkpointLocation", str(tmp_path / "c"))))
    original = values(reader(spark, system, **formats["json"], bodyMode="dropmalformed").load(typed))
    avro = reader(spark, system, **formats["avro"], bodyMode="failfast").load("typed-avro")
    assert len(original) == COUNT
    assert values(avro) == original

    def write(frame: DataFrame, name: str) -> None:
        to = frame.write.format("orbitmq").mode("append").option(*server).options(**formats[name])
        to.save(f"typed-{name}")

    write(avro.select(F.struct("value.id", "value.name", "value.at").alias("value")), "protobuf")
    protobuf = reader(spark, system, **formats["protobuf"], bodyMode="failfast").load("typed-protobuf")
    fields = ("id", "name", "at")
    assert values(protobuf.withColumn("value", F.col("value").withField("total", F.lit(None)))) == [
        (number, name, None, at) for number, name, _, at in original
    ]
    write(protobuf.select(F.struct(*[f"value.{name}" for name in fields]).alias("body")), "json")
    read = reader(spark, system, **formats["json"], bodyMode="failfast").load("typed-json")
    assert [(number, at) for number, _, _, at in values(read)] == [(number, at) for number, _, _, at in original]


def test_a_write_refuses_what_would_be_lost(spark: SparkSession, system: System, typed: str) -> None:
    frame = reader(spark, system, bodyFormat="json", bodySchema=DDL).load(typed)
    spark.createDataFrame([], "x INT")

    def write(rows: DataFrame, **options: str) -> None:
        writing(rows).option("nameServer", system.namesrv_address).options(**options).save(typed)

    with pytest.raises(FAILURES, match="column _rescued cannot be written"):
        write(frame, bodyFormat="json")
    with pytest.raises(FAILURES, match="column value is a struct; set option bodyFormat"):
        write(frame.select("value"))
    with pytest.raises(FAILURES, match="column value has no field name by bodySchema"):
        write(frame.select("value"), bodyFormat="json", bodySchema="id BIGINT")
    with pytest.raises(FAILURES, match=r"column value\.id is bigint, but int by bodySchema; cast it"):
        write(frame.select("value"), bodyFormat="json", bodySchema=DDL.replace("id BIGINT", "id INT"))
