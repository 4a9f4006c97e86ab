"""A topic that Java's client filled with 200,000 messages is read as it was written: by a batch, by a stream, and from
the broker's disk. RocketMQ 4.9.7 and orbitmq, the same test for both."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark import sinks
from tests.spark.conftest import QUEUES, System, create_topic, reader
from tests.support.java_rocketmq import run_driver
from tests.support.process import wait_until
from tests.support.streams import finished

COUNT = 200_000
SINGLE = 10_000  # sent one by one, every fiftieth with a body that is compressed; all others in batches
DELAYED = 1000  # of those, delivered a second later
NAME = "many"
COLUMNS = "msgId,tags,keys,flag,body,properties,sysFlag"
# What tests/java's Fill adds up, in Spark's words.
TEXT = "concat_ws('|', msgId, tags, keys, flag, p['run'], p['index'], p['city'], p['note'])"
NUMBER = f"cast(conv(substring(md5(concat(cast({TEXT} AS binary), body)), 1, 15), 16, 10) AS decimal(38, 0))"


@dataclass(frozen=True)
class Content:
    """How many messages, and their digest, which does not depend on their order."""

    count: int
    digest: Decimal


@dataclass(frozen=True)
class Filled:
    system: System
    content: Content


@pytest.fixture(scope="module")
def filled(system: System) -> Filled:
    create_topic(system, NAME)
    numbers = ("--count", COUNT, "--single", SINGLE, "--delayed", DELAYED)
    rows = run_driver("fill", "--namesrv", system.namesrv_address, "--topic", NAME, "--run", "volume", *numbers)
    wait_until(lambda: sinks.length(system.namesrv_address, NAME) >= COUNT, 120, "the delayed messages are delivered")
    return Filled(system, Content(rows[-1]["count"], Decimal(rows[-1]["digest"])))


def content(frame: DataFrame) -> Content:
    digests = frame.withColumnRenamed("properties", "p").selectExpr(f"{NUMBER} AS number")
    row = digests.selectExpr("count(*) AS count", "sum(number) AS digest").first()
    return Content(row["count"], Decimal(row.digest or 0))


def test_a_batch_reads_what_was_written(spark: SparkSession, filled: Filled) -> None:
    frame = reader(spark, filled.system, columns=COLUMNS).load(NAME)
    assert frame.rdd.getNumPartitions() == QUEUES
    assert content(frame) == filled.content


def test_a_stream_reads_what_was_written(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    parts: dict[int, Content] = {}
    options = {"nameServer": filled.system.namesrv_address, "columns": COLUMNS, "startingOffsets": "earliest"}
    frame = spark.readStream.format("orbitmq").options(**options, maxOffsetsPerTrigger=str(COUNT // 3)).load(NAME)
    writer = frame.writeStream.foreachBatch(lambda batch, number: parts.update({number: content(batch)}))
    finished(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start)
    found = [part for part in parts.values() if part.count]
    assert len(found) == 4, "the limit makes three batches and a rest"
    assert Content(sum(part.count for part in found), sum(part.digest for part in found)) == filled.content


def test_the_disk_holds_what_was_written(spark: SparkSession, filled: Filled) -> None:
    scan = spark.read.format("orbitmq-store").options(path=str(filled.system.store_dir), topics=NAME)
    assert content(scan.option("columns", COLUMNS).load()) == filled.content
