"""Messages are chosen at the broker, in the task and by the conditions of a query: the same rows each time."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it

from orbitmq.client.sync import Producer
from orbitmq.errors import SourceError
from orbitmq.message.model import Message
from orbitmq.spark import create_view
from tests.spark.conftest import COUNT, QUEUES, Topic
from tests.support.sparks import since

CONDITION = "TAGS = 'TagB' AND city IN ('München', '東京') OR index = '5'"
WANTED = [n for n in range(COUNT) if (n % 3 == 1 and n % 5 < 2) or n == 5]
pushes = since((4, 1), "pushes no conditions to Python data sources")
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.mark.parametrize("side", ["broker", "task"])
def test_sql_conditions_choose_messages(spark: SparkSession, topic: Topic, side: str) -> None:
    frame = topic.reader(spark, subExpression=CONDITION, filterType="SQL92", filterSide=side, columns="properties")
    rows = frame.load(topic.name).select(F.col("properties")["index"].cast("int").alias("number")).collect()
    assert sorted(row.number for row in rows) == WANTED


def test_tags_are_filtered_in_tasks(spark: SparkSession, topic: Topic) -> None:
    frame = topic.reader(spark, subExpression="TagA", filterSide="task", columns="tags").load(topic.name)
    assert [row.tags for row in frame.distinct().collect()] == ["TagA"]
    assert frame.count() == COUNT // 3


@pushes
def test_conditions_of_a_query_narrow_the_reading_and_change_no_row(spark: SparkSession, topic: Topic) -> None:
    columns = "topic,brokerName,queueId,queueOffset,storeTimestamp,tags,keys"
    everything = topic.reader(spark, columns=columns).load(topic.name).cache()
    middle = everything.agg(F.expr("percentile_approx(storeTimestamp, 0.5)")).first()[0]
    conditions: list[tuple[Column, int]] = [
        (F.col("queueId") == 1, 1),
        ((F.col("queueId") < 2) & (F.col("queueOffset") >= 100) & (F.col("queueOffset") < 150), 2),
        ((F.col("storeTimestamp") > middle) & F.col("tags").isin("TagA", "TagC"), QUEUES),
        (F.col("storeTimestamp") <= middle, QUEUES),
        (F.col("keys") == "order-17 customer-17", QUEUES),
        ((F.col("topic") == "payments") | (F.col("queueId") == 0), QUEUES),
        (F.col("topic") == "payments", 0),
    ]
    spark.conf.set(PUSHDOWN, "true")
    try:
        for condition, tasks in conditions:
            found = topic.reader(spark, columns=columns, filterPushdown=True).load(topic.name).where(condition)
            assert sorted(found.collect()) == sorted(everything.where(condition).collect()), condition
            assert found.rdd.getNumPartitions() <= max(tasks, 1), condition
    finally:
        spark.conf.set(PUSHDOWN, "false")
        everything.unpersist()


@pushes
def test_a_session_that_does_not_push_conditions_says_how_to_allow_it(spark: SparkSession, topic: Topic) -> None:
    with pytest.raises(PySparkException, match=rf"'{PUSHDOWN}' is false. Set it to true"):
        topic.reader(spark, filterPushdown=True).load(topic.name).where("queueId = 1").count()


def test_a_view_pushes_no_conditions(spark: SparkSession, topic: Topic) -> None:
    with pytest.raises(SourceError, match=r"^ORBITMQ_BAD_OPTION: option filterPushdown: Spark would apply"):
        create_view(spark, "pushed", nameServer=topic.system.namesrv_address, subscribe=topic.name, filterPushdown=True)


def test_a_topic_reads_like_one_of_kafka(spark: SparkSession, topic: Topic) -> None:
    rows = topic.reader(spark, schema="kafka", subExpression="TagB").load(topic.name).collect()
    assert len(rows) == COUNT // 3
    headers = {header.key: bytes(header.value).decode() for header in rows[0].headers}
    assert bytes(rows[0].key).decode() == f"order-{headers['index']}"
    assert (rows[0].topic, rows[0].timestampType) == (topic.name, 1)


def test_a_topic_reads_as_with_rocketmq_spark(spark: SparkSession, topic: Topic) -> None:
    row = topic.reader(spark, schema="rocketmq-spark").load(topic.name).where("queueId = 0").first()
    properties = json.loads(row.properties)
    assert properties["TAGS"] == "Tag" + "ABC"[int(properties["index"]) % 3]


def test_a_namespace_is_neither_given_nor_shown_with_topics(spark: SparkSession, topic: Topic) -> None:
    with Producer("tenants", topic.system.namesrv_address, namespace="shop") as producer:
        sent = {producer.send(Message("receipts", b"%d" % number)).queue_offset for number in range(6)}
    offsets = json.dumps({"receipts": {str(queue_id): -2 for queue_id in range(4)}})
    options = {"namespace": "shop", "startingOffsets": offsets, "columns": "topic,queueOffset"}
    rows = topic.reader(spark, **options).load("receipts").collect()
    assert {(row.topic, row.queueOffset) for row in rows} == {("receipts", offset) for offset in sent}
    assert len(rows) == 6


def test_single_queues_are_read(spark: SparkSession, topic: Topic) -> None:
    assigned = topic.reader(spark, assign=json.dumps({topic.name: [0, 2]}), columns="queueId").load()
    assert sorted(row.queueId for row in assigned.distinct().collect()) == [0, 2]
