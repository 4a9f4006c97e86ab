"""Spark writes into topics of live brokers: RocketMQ 4.9.7 and orbitmq, the same test for both."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it

from orbitmq.client.core.selection import queue_of_key
from orbitmq.client.sync import PushConsumer
from orbitmq.spark.sink_keys import IDEMPOTENCY_KEY
from orbitmq.spark.versions import SPARK
from orbitmq.wire.bodies import ConsumeFromWhere
from tests.spark import sinks
from tests.spark.conftest import QUEUES, System, create_topic, reader
from tests.spark.sinks import ONCE, batches, run_task
from tests.support.process import wait_until
from tests.support.sparks import FAILURES, with_sources, writing


@pytest.fixture
def topic(request: pytest.FixtureRequest, system: System) -> str:
    name = re.sub(r"\W+", "-", request.node.originalname.removeprefix("test_"))[:60]
    create_topic(system, name)
    return name


FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
Write = Callable[..., DataFrameWriter]


@pytest.fixture
def write(spark: SparkSession, system: System) -> Write:
    def begin(frame: DataFrame, **options: object) -> DataFrameWriter:
        # A write looks for its source in the session of the JVM's thread, and processes forked by tests end that
        # thread; this gives the next one its session.
        spark.createDataFrame([], "x INT")
        texts = {name: str(value) for name, value in options.items()}
        made: DataFrameWriter = writing(frame).option("nameServer", system.namesrv_address).options(**texts)
        return made

    return begin


def test_a_frame_is_read_back_as_it_was_written(
    spark: SparkSession, system: System, topic: str, write: Write, tmp_path: Path
) -> None:
    count = 2000
    frame = spark.range(count, numPartitions=2).select(
        F.concat(F.lit("body "), "id").alias("body"),
        F.concat(F.lit("key"), "id").alias("keys"),
        F.when(F.col("id") % 2 == 0, "even").alias("tags"),
        F.create_map(F.lit("city"), F.concat(F.lit("Köln "), "id"), F.lit("UNIQ_KEY"), F.lit("forged")).alias(
            "properties"
        ),
        F.col("id").cast("int").alias("flag"),
    )
    report = tmp_path / "report"
    write(frame, reportPath=report).save(topic)
    rows = (
        reader(spark, system, columns="msgId,tags,keys,body,properties,flag,queueId,queueOffset").load(topic).collect()
    )
    assert sorted(row.flag for row in rows) == list(range(count))
    assert len({row.msgId for row in rows} - {"forged"}) == count
    assert len({row.properties[IDEMPOTENCY_KEY] for row in rows}) == count
    for row in rows:
        assert (bytes(row.body).decode(), row["keys"]) == (f"body {row.flag}", f"key{row.flag}")
        assert row.tags == ("even" if row.flag % 2 == 0 else None)
        assert row.properties["city"] == f"Köln {row.flag}"
    (line,) = map(json.loads, report.read_text().splitlines())
    assert (line["event"], line["messages"], line["skipped"]) == ("commit", count, 0)
    told = {queue["queueId"]: (queue["count"], queue["first"], queue["last"]) for queue in line["queues"]}
    offsets = {number: [row.queueOffset for row in rows if row.queueId == number] for number in told}
    assert told == {number: (len(found), min(found), max(found)) for number, found in offsets.items()}


def test_a_topic_is_copied_once_however_often_the_copy_runs(
    spark: SparkSession, system: System, topic: str, write: Write
) -> None:
    run_task(sinks.options(nameServer=system.namesrv_address, topic=topic), batches(300))
    copy = f"{topic}-copy"
    create_topic(system, copy)
    for _ in range(2):
        frame = reader(spark, system).load(topic)  # its columns tell where each message was
        write(frame, topic=copy, jobId="copy", **ONCE).save()
    assert sinks.bodies(system.namesrv_address, copy) == list(range(300))
    assert set(sinks.copies(system.namesrv_address, copy).values()) == {1}


def test_rows_made_of_one_message_are_all_written_however_often_the_write_runs(
    spark: SparkSession, system: System, topic: str, write: Write
) -> None:
    run_task(sinks.options(nameServer=system.namesrv_address, topic=topic), batches(20))
    lines = f"{topic}-lines"
    create_topic(system, lines)
    for shuffled in (False, False, True):
        frame = reader(spark, system).load(topic)
        frame = frame.withColumn("added", F.explode(F.array(F.lit(100), F.lit(200), F.lit(200))))
        number = F.col("body").cast("string").cast("int") + F.col("added")
        frame = frame.withColumn("body", number.cast("string")).drop("added")
        frame = frame.repartition(1).sortWithinPartitions(F.desc("body")) if shuffled else frame.coalesce(1)
        write(frame, topic=lines, jobId="lines", **ONCE).save()
    expected = sorted(number + added for number in range(20) for added in (100, 200, 200))
    assert sinks.bodies(system.namesrv_address, lines) == expected
    assert set(sinks.copies(system.namesrv_address, lines).values()) == {1}


@with_sources
def test_sql_inserts_into_a_view_and_reads_it(spark: SparkSession, system: System, topic: str) -> None:
    options = f"nameServer '{system.namesrv_address}', path '{topic}'"
    columns = "body BINARY, keys STRING, topic STRING"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW inserted ({columns}) USING orbitmq OPTIONS ({options})")
    some, rest = ("body, keys", "") if SPARK >= (4, 1) else ("body, keys, topic", f", '{topic}'")  # 4.0 wants them all
    values = ", ".join(f"(CAST('{number}' AS BINARY), '{key}'{rest})" for number, key in enumerate("ab", 1))
    spark.sql(f"INSERT INTO inserted ({some}) VALUES {values}")
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        spark.sql(f"INSERT OVERWRITE inserted ({some}) VALUES {values}")
    rows = spark.sql("SELECT keys, CAST(body AS STRING) AS body, topic FROM inserted ORDER BY keys").collect()
    assert [tuple(row) for row in rows] == [("a", "1", topic), ("b", "2", topic)]


def test_a_task_that_died_is_repeated_without_copies(
    spark: SparkSession, system: System, topic: str, write: Write
) -> None:
    options = sinks.options(nameServer=system.namesrv_address, topic=topic, batchBytes=2048, **ONCE)
    with pytest.raises(ConnectionError):
        run_task(options, batches(70, 30, fails=True))
    written = run_task(options, batches(70, 50, 50))
    assert (written.skipped, written.messages) == (100, 70)
    assert set(sinks.copies(system.namesrv_address, topic).values()) == {1}
    assert sinks.bodies(system.namesrv_address, topic) == list(range(170))


def test_a_key_goes_to_the_queue_javas_selector_takes(system: System, topic: str) -> None:
    keys = [f"customer-{number % 23}-ключ" for number in range(500)]
    options = sinks.options(nameServer=system.namesrv_address, topic=topic, queueSelector="keyHash", batchBytes=1024)
    run_task(options, [sinks.rows(range(500), shardingKey=pa.array(keys))])
    queues = sinks.stored(system.namesrv_address, topic)
    assert len(queues) == QUEUES
    for queue, messages in queues.items():
        numbers = [int(message.body) for message in messages]
        assert numbers == sorted(numbers)
        assert all(queue_of_key(sorted(queues), keys[number]) == queue for number in numbers)


def test_an_ordinary_consumer_takes_what_was_written(system: System, topic: str) -> None:
    options = sinks.options(nameServer=system.namesrv_address, topic=topic)
    run_task(options, [sinks.rows(range(50), tags=pa.array(["odd" if n % 2 else "even" for n in range(50)]))])
    seen: set[int] = set()
    consumer = PushConsumer("sink-readers", system.namesrv_address, consume_from_where=FIRST)
    consumer.subscribe(topic, "odd")
    consumer.set_listener(lambda messages, _context: seen.update(int(message.body) for message in messages))
    with consumer:
        wait_until(lambda: len(seen) == 25, 60, "the odd messages are consumed")
    assert seen == set(range(1, 50, 2))


def test_a_delayed_message_comes_later(system: System, topic: str) -> None:
    options = sinks.options(nameServer=system.namesrv_address, topic=topic)
    levels = pa.array([0, 1, None], pa.int32())
    assert run_task(options, [sinks.rows(range(3), delayLevel=levels)]).messages == 3
    assert 1 not in sinks.bodies(system.namesrv_address, topic)
    wait_until(lambda: 1 in sinks.bodies(system.namesrv_address, topic), 60, "the delayed message is delivered")


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        (
            "id AS amount, 'x' AS body",
            {"topic": "t"},
            "ORBITMQ_BAD_SCHEMA: a message has no amount; the columns are body",
        ),
        ("id", {"topic": "t"}, "ORBITMQ_BAD_SCHEMA: a message has no id"),
        ("'x' AS body", {}, "ORBITMQ_BAD_SCHEMA: there is neither option topic nor a column topic"),
        (
            "'x' AS body",
            {"topic": "t", "batchSize": 1},
            "ORBITMQ_BAD_OPTION: option batchsize is unknown; did you mean batchBytes",
        ),
        ("'x' AS body", {"topic": "nowhere"}, "ORBITMQ_TOPIC_NOT_FOUND: topic nowhere does not exist; create it first"),
    ],
)
def test_mistakes_are_told_with_a_hint(
    spark: SparkSession, write: Write, columns: str, options: dict[str, object], text: str
) -> None:
    with pytest.raises(FAILURES) as caught:
        write(spark.range(1).selectExpr(*columns.split(", ")), **options).save()
    assert text in str(caught.value)


@with_sources
def test_other_modes_than_append_are_refused(spark: SparkSession, write: Write) -> None:
    frame = spark.range(1).selectExpr("'x' AS body")
    with pytest.raises(PySparkException, match='Please use either the "Append" or'):
        write(frame, topic="t").mode("error").save()
    with pytest.raises(PySparkException, match=r"a topic cannot be overwritten; use \.mode"):
        write(frame, topic="t").mode("overwrite").save()
