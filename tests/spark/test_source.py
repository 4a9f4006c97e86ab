"""Spark reads topics of live brokers: RocketMQ 4.9.7 and orbitmq, the same test for both."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it

import orbitmq.spark
from orbitmq.client.sync import Producer
from orbitmq.errors import SourceError
from orbitmq.message.model import Message, MessageQueue
from orbitmq.spark.columns import COLUMNS, DEFAULT_COLUMNS
from orbitmq.spark.session import SOURCES, prepare
from tests.spark.conftest import COUNT, QUEUES, RUN, System, Topic, create_topic, reader
from tests.spark.sinks import length
from tests.support import delivery, messages
from tests.support.process import wait_until
from tests.support.sparks import FAILURES, with_sources

EVERYTHING = ",".join(COLUMNS)


def as_delivered(row: Row) -> dict[str, Any]:
    """A row of the DataFrame in the form in which the Java drivers report a consumed message."""
    return {
        "topic": row.topic,
        "broker": row.brokerName,
        "queueId": row.queueId,
        "queueOffset": row.queueOffset,
        "msgId": row.msgId,
        "tags": row.tags,
        "keys": row["keys"],
        "flag": row.flag,
        "bodySize": len(row.body),
        "bodySha256": hashlib.sha256(row.body).hexdigest(),
        "commitLogOffset": row.physOffset,
        "properties": row.properties,
    }


def test_every_message_is_read_once_and_as_it_was_sent(spark: SparkSession, topic: Topic) -> None:
    frame = topic.reader(spark, columns=EVERYTHING).load(topic.name)
    assert frame.rdd.getNumPartitions() == 1, "short queues share a task"
    rows = frame.collect()
    received = [as_delivered(row) for row in rows]
    delivery.assert_each_once(received, RUN, range(COUNT))
    delivery.assert_as_acknowledged(received, topic.sent)
    delivery.assert_queues_without_gaps(received, QUEUES)
    offset_ids = {result["msgId"]: result["offsetMsgId"] for result in topic.sent}
    assert {row.msgId: row.offsetMsgId for row in rows} == offset_ids
    assert {row.storeHost for row in rows} == {topic.system.address}
    assert all(row.bornHost.startswith("127.0.0.1:") and row.bornTimestamp <= row.storeTimestamp for row in rows)


def test_short_queues_share_partitions(spark: SparkSession, system: System) -> None:
    with Producer("many-senders", system.namesrv_address) as producer:
        producer.create_topic("short-queues", queues=MANY)
        for number in range(MANY):
            queue = MessageQueue("short-queues", "broker-a", number)
            producer.send_batch(
                [Message("short-queues", b"%d" % offset) for offset in range(1 + number % 5)], queue=queue
            )
    wanted = [(number, offset, b"%d" % offset) for number in range(MANY) for offset in range(1 + number % 5)]
    await_queued(system, "short-queues", len(wanted))
    columns = "queueId,queueOffset,body"
    for given, count in (
        ({}, 1),
        ({"minPartitions": MANY - 1}, MANY - 1),
        ({"minPartitions": 3, "maxPartitions": 3}, 3),
    ):
        frame = reader(spark, system, columns=columns, **given).load("short-queues")
        rows = [
            [(row.queueId, row.queueOffset, bytes(row.body)) for row in part] for part in frame.rdd.glom().collect()
        ]
        assert sorted(row for part in rows for row in part) == wanted, given
        assert all(part == sorted(part) for part in rows), "within a partition, in the order of its queues"
        assert len(rows) == count, given


def await_queued(system: System, topic: str, count: int) -> None:
    """A RocketMQ broker confirms a message before its queue has it; a busy machine shows that."""
    wait_until(lambda: length(system.namesrv_address, topic) == count, 60, "the messages in their queues")


MANY = 16  # as many as RocketMQ makes for a client


def test_default_columns(spark: SparkSession, topic: Topic) -> None:
    assert topic.reader(spark).load(topic.name).columns == list(DEFAULT_COLUMNS)
    assert "properties" not in topic.reader(spark, includeProperties="none").load(topic.name).columns


def content(frame: DataFrame) -> list[Row]:
    """The rows in a fixed order, with digests for what is long or has no order."""
    digests = frame.select(
        "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "bornTimestamp", "storeTimestamp", "bornHost",
        F.sha2("body", 256).alias("body"),
        F.to_json(F.array_sort(F.map_entries("properties"))).alias("properties"),
    )  # fmt: skip
    return digests.orderBy("queueId", "queueOffset").collect()


def test_a_topic_written_to_parquet_reads_back_equal(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    frame = topic.reader(spark).load(topic.name)
    frame.write.parquet(str(tmp_path / "orders"))
    stored = spark.read.parquet(str(tmp_path / "orders"))
    assert stored.schema == frame.schema
    assert stored.count() == COUNT
    assert content(stored) == content(frame)


def test_a_range_of_offsets_is_read_in_pieces(spark: SparkSession, topic: Topic) -> None:
    starts = json.dumps({topic.name: {"0": 100, "1": -2}})
    ends = json.dumps({topic.name: {"broker-a": {"0": 350, "1": 10, "2": 0, "3": 1}}})
    frame = topic.reader(
        spark, startingOffsets=starts, endingOffsets=ends, maxRecordsPerPartition=100, columns="queueId,queueOffset"
    ).load(topic.name)
    assert frame.rdd.getNumPartitions() == 3, "the eleven messages of two queues share one"
    wanted = [(0, offset) for offset in range(100, 350)] + [(1, offset) for offset in range(10)] + [(3, 0)]
    assert sorted((row.queueId, row.queueOffset) for row in frame.collect()) == wanted


@pytest.mark.parametrize("options", [{"pullBatchSize": 7, "pullPipeline": 3}, {"pullPipeline": 1}])
def test_the_size_and_number_of_pulls_change_nothing(
    spark: SparkSession, topic: Topic, options: dict[str, int]
) -> None:
    frame = topic.reader(spark, columns="properties", **options).load(topic.name)
    numbers = frame.select(F.col("properties")["index"].cast("int").alias("number")).collect()
    assert sorted(row.number for row in numbers) == list(range(COUNT))


def test_tags_are_filtered(spark: SparkSession, topic: Topic) -> None:
    frame = topic.reader(spark, subExpression="TagA || TagC", columns="tags,properties").load(topic.name)
    found = frame.select("tags", F.col("properties")["index"].cast("int").alias("number")).collect()
    assert sorted(row.number for row in found) == [index for index in range(COUNT) if index % 3 != 1]
    assert {row.tags for row in found} == {"TagA", "TagC"}
    assert topic.reader(spark, subExpression="TagZ").load(topic.name).count() == 0


def test_times_bound_the_read(spark: SparkSession, topic: Topic) -> None:
    everything = topic.reader(spark, columns="storeTimestamp,queueId,queueOffset").load(topic.name)
    times = everything.select(F.unix_millis("storeTimestamp").alias("at"), "queueId", "queueOffset").collect()
    begin, end = sorted(row.at for row in times)[COUNT // 3], sorted(row.at for row in times)[2 * COUNT // 3]
    frame = topic.reader(
        spark, startingTimestamp=begin, endingTimestamp=end, startingOffsetsByTimestampStrategy="latest"
    ).load(topic.name)
    found = frame.select("queueId", "queueOffset").collect()
    assert sorted(map(tuple, found)) == sorted((row.queueId, row.queueOffset) for row in times if begin <= row.at < end)


@with_sources
def test_a_schema_of_the_user_chooses_what_is_read(spark: SparkSession, topic: Topic) -> None:
    frame = topic.reader(spark).schema("keys STRING, body BINARY, properties STRING").load(topic.name)
    rows = frame.collect()
    assert len(rows) == COUNT
    by_key = {row["keys"]: row for row in rows}
    for index in (0, 49, COUNT - 1):
        sent = messages.message(RUN, index)
        assert bytes(by_key[sent.keys].body) == sent.body
        assert f"city\x01{sent.properties['city']}" in by_key[sent.keys].properties


def test_compressed_bodies_may_be_left_as_stored(spark: SparkSession, topic: Topic) -> None:
    frame = topic.reader(spark, decompress=False, columns="body,sysFlag,keys").load(topic.name)
    packed = frame.where(F.col("sysFlag").bitwiseAND(1) == 1).collect()
    assert len(packed) == COUNT // 50  # every fiftieth body is long enough for the Java client to pack it
    assert all(row.body[:1] == b"\x78" for row in packed)


def test_sql_reads_a_topic_through_a_view(spark: SparkSession, topic: Topic) -> None:
    prepare(spark, *SOURCES)
    orbitmq.spark.create_view(spark, "orders", nameServer=topic.system.namesrv_address, subscribe=topic.name)
    counts = spark.sql("SELECT tags, count(*) AS count FROM orders GROUP BY tags ORDER BY tags").collect()
    assert [(row.tags, row["count"]) for row in counts] == [
        ("TagA", COUNT // 3),
        ("TagB", COUNT // 3),
        ("TagC", COUNT // 3),
    ]
    spark.catalog.dropTempView("orders")


@pytest.mark.parametrize("shared", [False, True])
def test_sql_reads_all_topics_through_their_names(spark: SparkSession, topic: Topic, shared: bool) -> None:
    prepare(spark, *SOURCES)
    made = orbitmq.spark.tables(
        spark, re.escape(topic.name), shared=shared, nameServer=topic.system.namesrv_address, columns="topic,tags"
    )
    assert made == [topic.name]
    name = f"global_temp.`{topic.name}`" if shared else f"`{topic.name}`"
    counts = spark.sql(f"SELECT topic, count(tags) AS count FROM {name} GROUP BY topic").collect()
    assert counts == [Row(topic=topic.name, count=COUNT)]
    spark.sql(f"DROP VIEW {name}")


def test_no_table_of_no_topic_and_none_with_conditions_pushed(spark: SparkSession, topic: Topic) -> None:
    place = {"nameServer": topic.system.namesrv_address}
    with pytest.raises(SourceError, match=r"ORBITMQ_TOPIC_NOT_FOUND.* no topic matches 'nothing\.\*'"):
        orbitmq.spark.tables(spark, "nothing.*", **place)
    with pytest.raises(SourceError, match="filterPushdown"):
        orbitmq.spark.tables(spark, re.escape(topic.name), filterPushdown=True, **place)


@with_sources
def test_sql_reads_a_topic_through_a_statement(spark: SparkSession, topic: Topic) -> None:
    options = f"nameServer '{topic.system.namesrv_address}', subscribe '{topic.name}', columns 'topic'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW stated USING orbitmq OPTIONS ({options})")
    assert spark.sql("SELECT DISTINCT topic FROM stated").collect() == [Row(topic=topic.name)]


@with_sources
def test_sql_refuses_a_table_and_names_what_works(spark: SparkSession, topic: Topic) -> None:
    """Spark passes the options of a table to its creation only; its queries have those of their own."""
    options = {"nameServer": topic.system.namesrv_address, "subscribe": topic.name}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    remedy = r"ORBITMQ_BAD_OPTION: .*CREATE TABLE: .*create_view or CREATE TEMPORARY VIEW"
    for properties in (f"OPTIONS ({listed})", f"TBLPROPERTIES ({listed})"):
        with pytest.raises(PySparkException, match=remedy):
            spark.sql(f"CREATE TABLE refused USING orbitmq {properties}")
    with pytest.raises(PySparkException, match=remedy):
        spark.catalog.createTable("refused", source="orbitmq", **options)
    assert not spark.catalog.tableExists("refused")
    spark.sql(f"CREATE TABLE bare (body BINARY) USING orbitmq OPTIONS ({listed})")  # Spark asks nobody then
    try:
        for statement in ("SELECT * FROM bare", "INSERT INTO bare VALUES (X'00')"):
            with pytest.raises(PySparkException, match=r"option nameServer is missing.*For a table of CREATE TABLE"):
                spark.sql(statement).collect()
        assert spark.sql(f"SELECT count(*) AS count FROM bare WITH ({listed})").collect() == [Row(count=COUNT)]
    finally:
        spark.sql("DROP TABLE bare")


def test_executors_import_what_is_shipped(spark: SparkSession) -> None:
    archive = orbitmq.spark.ship(spark)
    assert orbitmq.spark.ship(spark).name == archive.name  # shipping twice is no error
    paths = spark.sparkContext.range(1).map(lambda _: [path.rpartition("/")[2] for path in sys.path]).first()
    assert archive.name in paths


def test_an_empty_topic_has_no_rows(spark: SparkSession, topic: Topic) -> None:
    create_topic(topic.system, "empty")
    frame = topic.reader(spark).load("empty")
    assert frame.collect() == []
    assert frame.columns == list(DEFAULT_COLUMNS)
    assert topic.reader(spark, subscribe=f"empty,{topic.name}", columns="topic").load().count() == COUNT


def test_large_messages_are_read(spark: SparkSession, system: System) -> None:
    create_topic(system, "large")
    sizes = [3_900_000, 10, 1_000_000, 300_000, 262_144, 0, 70_000]
    with Producer("large-senders", system.namesrv_address) as producer:
        for size in sizes:
            producer.send(Message("large", bytes([size % 251]) * size or b"-", keys=str(size)))
    await_queued(system, "large", len(sizes))
    rows = reader(spark, system).load("large").collect()
    assert sorted(len(row.body) for row in rows) == sorted(size or 1 for size in sizes)
    assert all(
        bytes(row.body) == bytes([int(row["keys"]) % 251]) * len(row.body) or not int(row["keys"]) for row in rows
    )


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"kafka__bootstrap__servers": "localhost:9092"}, "ORBITMQ_BAD_OPTION: option kafka.bootstrap.servers"),
        (
            {"startingOffset": "earliest"},
            "ORBITMQ_BAD_OPTION: option startingoffset is unknown; did you mean startingOff",
        ),
        ({"columns": "offset"}, "ORBITMQ_BAD_OPTION: option columns: no column offset"),
        ({"startingOffsets": '{"orders":{"0":1000000}}'}, "ORBITMQ_DATA_LOSS: "),
        ({"subscribe": "nothing"}, "ORBITMQ_TOPIC_NOT_FOUND: topic nothing"),
        ({"nameServer": "127.0.0.1:1", "fetchOffset__numRetries": 0}, "ORBITMQ_NAMESERVER_UNAVAILABLE: topic orders"),
    ],
)
def test_mistakes_are_told_by_name(spark: SparkSession, topic: Topic, options: dict[str, Any], name: str) -> None:
    load = {"subscribe": topic.name, **options}
    with pytest.raises(FAILURES) as caught:
        topic.reader(spark, **load).load().count()
    assert name in str(caught.value)


@with_sources
def test_a_column_that_does_not_exist_is_told_by_name(spark: SparkSession, topic: Topic) -> None:
    with pytest.raises(AnalysisException, match="ORBITMQ_BAD_SCHEMA: no column value; the columns are topic"):
        topic.reader(spark).schema("value BINARY").load(topic.name).count()
