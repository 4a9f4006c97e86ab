"""Streams of live brokers: RocketMQ 4.9.7 and orbitmq, the same test for both."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import signal
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import DataStreamReader, DataStreamWriter, StreamingQuery

import orbitmq.spark
from orbitmq.client.sync import Producer
from orbitmq.errors import SourceError
from orbitmq.message.model import Message
from orbitmq.spark import Spread
from orbitmq.spark.stream_lag import spread_of
from orbitmq.spark.versions import ADMITS, start_until_now
from tests.spark.conftest import COUNT, QUEUES, System, Topic, create_topic
from tests.support.dashboards import OrbitDashboard
from tests.support.mqadmin import Mqadmin
from tests.support.process import wait_until
from tests.support.sparks import since, with_sources
from tests.support.streams import LATE, STARTS_MAX, finished

pytestmark = with_sources

Place = tuple[str, int, int]
COLUMNS = "topic,brokerName,queueId,queueOffset"
LABELS = ("query", "topic", "stat")


def stream(spark: SparkSession, system: System, **options: object) -> DataStreamReader:
    """A stream that ends with what exists, by the trigger or, where that does not work, by the option."""
    options = {"availableNow": not ADMITS, **options}
    texts = {name.replace("__", "."): str(value) for name, value in options.items()}
    return spark.readStream.format("orbitmq").option("nameServer", system.namesrv_address).options(**texts)


class Table:
    """A Parquet table a query writes into, with the query's checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._rows = folder / "rows"
        self._checkpoint = folder / "checkpoint"

    def run(self, frame: DataFrame) -> list[dict[str, Any]]:
        """Everything available now, in as many batches as the limits make; the progress of those that had rows."""
        query = finished(lambda: start_until_now(self.writer(frame)))
        return [progress for progress in progresses(query) if progress["numInputRows"]]

    def begin_reading(self, frame: DataFrame) -> StreamingQuery:
        """A query that goes on and has made a batch."""
        for _ in range(STARTS_MAX):
            query = self.writer(frame).trigger(processingTime="0 seconds").start()
            wait_until(lambda running=query: running.recentProgress or not running.isActive, 120, "a batch")
            if query.isActive or LATE not in str(query.exception()):
                break
        return query

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        places = frame.select("topic", "brokerName", "queueId", "queueOffset")
        writer = places.writeStream.format("parquet").option("path", str(self._rows))
        return writer.option("checkpointLocation", str(self._checkpoint))

    def begin_failing(self, frame: DataFrame) -> StreamingQuery:
        def fail(batch: DataFrame, number: int) -> None:
            if batch.count():
                raise RuntimeError("this sink cannot")

        writer = frame.writeStream.foreachBatch(fail).option("checkpointLocation", str(self._checkpoint))
        return writer.trigger(processingTime="100 milliseconds").start()

    def places(self, files: str = "") -> list[Place]:
        """Topic, queue and offset of every row written, in order; of `files` whatever the sink's own log says."""
        rows: list[Row] = self._spark.read.parquet(str(self._rows / files)).collect()
        return sorted((row.topic, row.queueId, row.queueOffset) for row in rows)


def progresses(query: StreamingQuery) -> list[dict[str, Any]]:
    return [json.loads(progress.json) for progress in query.recentProgress]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    return Table(spark, tmp_path)


@pytest.fixture(scope="module")
def producer(system: System) -> Iterator[Producer]:
    with Producer("stream-senders", system.namesrv_address) as running:
        yield running


@pytest.fixture(scope="module")
def mqadmin(system: System) -> Iterator[Callable[..., str]]:
    with Mqadmin(system.namesrv_address) as tool:
        yield tool


def send(producer: Producer, topic: str, count: int) -> list[Place]:
    """Where the messages went."""
    results = [producer.send(Message(topic, b"%d" % number)) for number in range(count)]
    return [(topic, result.queue.queue_id, result.queue_offset) for result in results]


def everything(topic: Topic) -> list[Place]:
    return sorted((topic.name, result["queueId"], result["queueOffset"]) for result in topic.sent)


def test_a_stream_reads_each_message_once_in_limited_batches(spark: SparkSession, topic: Topic, table: Table) -> None:
    def frame(**options: object) -> DataFrame:
        return stream(spark, topic.system, maxOffsetsPerTrigger=COUNT // 3, columns=COLUMNS, **options).load(topic.name)

    batches = table.run(frame(startingOffsets="earliest"))
    assert [batch["numInputRows"] for batch in batches] == [COUNT // 3] * 3
    assert table.places() == everything(topic)
    last = batches[-1]["sources"][0]["endOffset"]
    assert sum(last["q"][topic.name]["broker-a"].values()) == COUNT
    assert table.run(frame()) == []


def test_a_first_batch_that_fails_is_repeated_from_where_it_began(
    spark: SparkSession, system: System, producer: Producer, table: Table
) -> None:
    """With startingOffsets=latest the beginning moves on while the batch is repeated; nothing in between is lost."""
    send(producer, "repeated", 5)
    failing = table.begin_failing(stream(spark, system, availableNow=False).load("repeated"))
    wait_until(lambda: len(failing.recentProgress) > 0, 60, "the empty first batch")
    sent = send(producer, "repeated", 20)
    with pytest.raises(StreamingQueryException, match="this sink cannot"):
        failing.awaitTermination(60)
    sent += send(producer, "repeated", 10)
    table.run(stream(spark, system).load("repeated"))
    assert table.places("*.parquet") == sorted(sent)


def test_killed_workers_cost_no_message_and_double_none(
    spark: SparkSession, system: System, producer: Producer, table: Table
) -> None:
    """Spark's Python processes are killed (-9), the one that plans and those that read, while messages come."""
    sent = send(producer, "killed", 40)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 20, "columns": COLUMNS}
    chance = random.Random(5)
    for _ in range(2):
        query = table.begin_reading(stream(spark, system, **options, availableNow=False).load("killed"))
        sent += send(producer, "killed", chance.randrange(1, 200))
        kill_workers(spark)
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(60)
    table.run(stream(spark, system, **options).load("killed"))
    assert table.places() == sorted(sent)


def kill_workers(spark: SparkSession) -> None:
    """Kill the Python processes that read and plan for this session, but not the daemons that fork readers."""
    driver = spark.sparkContext._gateway.proc.pid
    parents = {int(path.parent.name): parent_of(path) for path in Path("/proc").glob("[0-9]*/stat")}
    readers = {pid for pid, daemon in parents.items() if parents.get(daemon) == driver}
    planners = {pid for pid, parent in parents.items() if parent == driver and is_planner(pid)}
    assert planners
    for pid in planners | readers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_planner(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return b"python_streaming_source_runner" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def parent_of(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def test_tools_show_the_lag_of_a_stream(
    spark: SparkSession, topic: Topic, table: Table, mqadmin: Callable[..., str]
) -> None:
    options = {"groupId": "spark-archive", "commitOffsets": True, "startingOffsets": "earliest", "columns": COLUMNS}
    table.run(stream(spark, topic.system, **options).load(topic.name))
    printed = mqadmin("consumerProgress", "-g", "spark-archive")
    assert "Diff Total: 0" in printed
    assert sum(line.startswith(topic.name) for line in printed.splitlines()) == QUEUES


def test_the_page_draws_how_far_a_stream_is_behind(
    spark: SparkSession, system: System, producer: Producer, table: Table
) -> None:
    create_topic(system, "drawn")
    send(producer, "drawn", 8)
    options = {"groupId": "drawn-readers", "commitOffsets": True, "startingOffsets": "earliest", "columns": COLUMNS}
    table.run(stream(spark, system, **options).load("drawn"))
    behind = Counter(queue for _, queue, _ in send(producer, "drawn", QUEUES + 2))
    least, most = min(behind[queue] for queue in range(QUEUES)), max(behind.values())
    with OrbitDashboard(system.namesrv_address, "--sample", 0) as dashboard:
        page = dashboard.visitor().get("groups/drawn-readers")
        (row,) = page.table("Topics")
    assert row["Lag of a queue: min / mean / max"].endswith(f" {least} / {1 + 2 / QUEUES:g} / {most}")
    assert row["Lag"] == str(QUEUES + 2)
    assert f'aria-label="lag of a queue: {least} to {most}, mean {1 + 2 / QUEUES:g}"' in page.text
    assert 'aria-label="lag of a queue in time: ' in page.text
    assert "no client of drawn-readers is online" in page.words


@since((4, 2), "asks no stream for its lag")
def test_the_driver_tells_how_far_its_streams_are_behind(
    spark: SparkSession,
    topic: Topic,
    table: Table,
    producer: Producer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two queries at once: one with a limit, which stops after its first batch, and one that reads everything."""
    send(producer, "followed", 8)
    everything = stream(spark, topic.system, startingOffsets="earliest", columns=COLUMNS).load("followed")
    limited = stream(spark, topic.system, startingOffsets="earliest", columns=COLUMNS, maxOffsetsPerTrigger=COUNT // 2)
    caplog.set_level(logging.INFO, "orbitmq.spark")
    with orbitmq.spark.listen(spark, port=0) as listener:
        assert listener.url is not None
        queries = [
            frame.writeStream.format("noop").queryName(name).option("checkpointLocation", str(tmp_path / name))
            for name, frame in (("whole", everything), ("half", limited.load(topic.name)))
        ]
        running = [query.trigger(processingTime="1 hour").start() for query in queries]
        wait_until(lambda: len(listener.queries()) == 2, 120, "both queries have made a batch")
        found = {lag.query: lag for lag in listener.queries()}
        assert found["whole"].sources == [f"orbitmq topic followed, from {topic.system.namesrv_address}"]
        (half,), (whole,) = found["half"].topics, found["whole"].topics
        assert (half.queues, half.messages.avg) == (QUEUES, COUNT / 2 / QUEUES)
        assert whole.messages == whole.seconds == Spread(0, 0, 0)
        assert half.seconds == spread_of(ages(spark, topic, running[1], found["half"].looked_at_ms))

        series = {
            (sample.name, *(sample.labels[name] for name in LABELS if name in sample.labels)): sample.value
            for family in text_string_to_metric_families(scraped(listener.url))
            for sample in family.samples
        }
        assert series["orbitmq_spark_behind_messages", "half", topic.name, "avg"] == COUNT / 2 / QUEUES
        assert series["orbitmq_spark_behind_messages", "whole", "followed", "max"] == 0
        assert series["orbitmq_spark_behind_seconds", "half", topic.name, "max"] == half.seconds.max
        assert series["orbitmq_spark_last_look_timestamp_seconds", "half"] == found["half"].looked_at_ms / 1000
        line = f"event=stream_lag query=half batch=0 topic={topic.name} queues={QUEUES} behind_messages="
        assert any(record.getMessage().startswith(line) for record in caplog.records)

        running[0].stop()
        wait_until(lambda: [lag.query for lag in listener.queries()] == ["half"], 60, "a query that is over is gone")
        url = listener.url
    running[1].stop()
    with pytest.raises(OSError, match="refused"):
        scraped(url)
    with orbitmq.spark.listen(spark, port=port_of(url)) as again:
        with pytest.raises(SourceError, match=f"ORBITMQ_BAD_OPTION: port {port_of(url)}: cannot listen on 127.0.0.1"):
            orbitmq.spark.listen(spark, port=port_of(url))
        assert again.queries() == []


def ages(spark: SparkSession, topic: Topic, query: StreamingQuery, now_ms: int) -> list[float]:
    """For how many seconds the next message of each queue had been stored, by a read of the topic."""
    ends = json.loads(query.lastProgress.json)["sources"][0]["endOffset"]["q"][topic.name]["broker-a"]
    read = topic.reader(spark, columns="queueId,queueOffset,storeTimestamp").load(topic.name)
    rows = read.where(" OR ".join(f"queueId = {queue} AND queueOffset = {end}" for queue, end in ends.items()))
    stored = rows.selectExpr("unix_millis(storeTimestamp) AS ms").collect()
    assert len(stored) == QUEUES
    return [(now_ms - row.ms) / 1000 for row in stored]


def scraped(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        return str(response.read(), "utf-8")


def port_of(url: str) -> int:
    port = urllib.parse.urlsplit(url).port
    assert port is not None
    return port


def test_a_stream_begins_where_a_group_stands(
    spark: SparkSession, system: System, producer: Producer, table: Table
) -> None:
    send(producer, "grouped", 12)
    first = stream(spark, system, groupId="grouped-readers", commitOffsets=True, startingOffsets="earliest")
    table.run(first.load("grouped"))
    sent = send(producer, "grouped", 8)
    rows = (
        spark.read.format("orbitmq")
        .options(nameServer=system.namesrv_address, groupId="grouped-readers", startingOffsets="group")
        .load("grouped")
        .collect()
    )
    assert sorted(("grouped", row.queueId, row.queueOffset) for row in rows) == sorted(sent)


def test_topics_that_appear_join_a_stream(
    spark: SparkSession, system: System, producer: Producer, table: Table
) -> None:
    sent = send(producer, "joined-1", 6)
    frame = stream(spark, system, subscribePattern="joined-[0-9]", startingOffsets="earliest").load()
    table.run(frame)
    sent += send(producer, "joined-2", 6)
    table.run(frame)
    assert table.places() == sorted(sent)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"endingOffsets": '{"orders":{"0":5}}'}, "ORBITMQ_BAD_OPTION: option endingOffsets: a stream has no end"),
        ({"commitOffsets": "true"}, "ORBITMQ_BAD_OPTION: option commitOffsets needs groupId"),
        ({"maxTriggerDelay": "soon"}, "ORBITMQ_BAD_OPTION: option maxTriggerDelay: value 'soon' is not allowed"),
        ({"startingOffsets": "first"}, "ORBITMQ_BAD_OPTION: option startingOffsets: 'first' is neither"),
    ],
)
def test_mistakes_of_streams_are_told_by_name(
    spark: SparkSession, topic: Topic, table: Table, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        table.run(stream(spark, topic.system, **options).load(topic.name))
    assert text in str(caught.value)
