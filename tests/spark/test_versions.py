"""What a version of Spark lacks is made up for where that is possible, and refused by name where it is not.

`make test-spark-versions` runs this with each version; with the newest one the ways of the others are tested, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas import functions
from pyspark.sql.streaming import DataStreamWriter

import orbitmq.spark
from orbitmq.client.sync import Producer
from orbitmq.errors import SourceError
from orbitmq.message.model import Message
from orbitmq.pipeline import archive
from orbitmq.spark import lag_listener, session, source, versions
from orbitmq.spark.versions import (
    ADMITS,
    HAS_SOURCES,
    PUSHES_FILTERS,
    PositionedStream,
    ReadAllAvailable,
)
from tests.spark import sinks
from tests.spark.conftest import COUNT, Topic, create_topic
from tests.support import golden
from tests.support.jobs import run_job
from tests.support.sparks import FAILURES, with_sources
from tests.support.streams import finished

Offset = dict[str, Any]
LIMIT = 10
WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
AVAILABLE_NOW = rf"ORBITMQ_SPARK_VERSION: the trigger availableNow with {WRAPPER} needs Spark 4\.2"


class Numbers:
    """A stream of the numbers below `end`, in batches of LIMIT."""

    def __init__(self, end: int, initial: int = 0) -> None:
        self.end = end
        self.initial = initial

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names
        return {"at": self.initial}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None: ...  # noqa: N802

    def latestOffset(self, start: Offset, limit: Any) -> Offset:  # noqa: N802
        return {"at": min(self.end, start["at"] + LIMIT)}

    def reportLatestOffset(self) -> None: ...  # noqa: N802

    def partitions(self, start: Offset, end: Offset) -> list[Any]:
        return list(range(start["at"], end["at"]))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        yield from ()


class Query:
    """Calls a reader as Spark 4.0 and 4.1 do. `log` and `commits` are its checkpoint, which outlives it."""

    def __init__(self, numbers: Numbers, log: list[Offset], commits: list[Offset]) -> None:
        self.reader = PositionedStream(numbers)
        self.log = log
        self.commits = commits
        self.read: list[int] = []

    def start(self) -> None:
        if not self.log:
            return
        self.reader.partitions(self.log[-1], self.log[-1])  # setLatestSeenOffset
        if len(self.commits) < len(self.log):
            self._run()

    def trigger(self, *, dies: bool = False) -> None:
        end = self.reader.latestOffset()
        if not self.log or end != self.log[-1]:
            self.log.append(end)
            if not dies:
                self._run()

    def _run(self) -> None:
        start = self.log[-2] if len(self.log) > 1 else self.reader.initialOffset()
        self.read += self.reader.partitions(start, self.log[-1])  # type: ignore[arg-type]
        self.commits.append(self.log[-1])


def test_a_stream_without_admission_control_is_read_in_limited_batches_through_restarts() -> None:
    log: list[Offset] = []
    commits: list[Offset] = []
    found: list[int] = []
    for number in range(8):
        query = Query(Numbers(45, initial=number), log, commits)  # `latest` moves on meanwhile
        query.start()
        query.trigger()
        assert len(query.read) <= 2 * LIMIT
        query.trigger(dies=number % 2 == 0)
        found += query.read
    assert found == list(range(45))
    assert [offset["at"] for offset in commits] == [10, 20, 30, 40, 45]


def test_a_first_batch_without_messages_is_no_reason_to_refuse() -> None:
    query = Query(Numbers(0), [], [])
    query.trigger()
    query.trigger()
    assert (query.read, query.log) == ([], [{"at": 0}])


def test_available_now_is_refused_before_it_can_skip_or_repeat_messages() -> None:
    """Spark asks it for the end of the run before it says what the checkpoint has, and again for its metrics."""
    first = PositionedStream(Numbers(100))
    first.latestOffset()
    with pytest.raises(SourceError, match=AVAILABLE_NOW):
        first.latestOffset()
    again = PositionedStream(Numbers(100))
    again.latestOffset()
    for place in (LIMIT, 70):
        with pytest.raises(SourceError, match=AVAILABLE_NOW):
            again.partitions({"at": place}, {"at": place})


@pytest.fixture(params=["sources", "mapInArrow"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to read and write, where there are two."""
    if request.param == "sources" and not HAS_SOURCES:
        pytest.skip("Spark 3.5 has no Python data sources")
    for module in (versions, session):
        monkeypatch.setattr(module, "HAS_SOURCES", request.param == "sources")
    if HAS_SOURCES:  # 3.5 has pandas; the tests of others would pay for its import
        monkeypatch.setattr(functions, "require_minimum_pandas_version", lambda: None)


@pytest.mark.usefixtures("_way")
def test_topics_are_read_and_written_by_functions(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    server = topic.system.namesrv_address
    options = {"nameServer": server, "columns": "topic,body,keys,tags,properties,queueId,queueOffset,storeTimestamp"}
    rows = orbitmq.spark.read_topics(spark, subscribe=topic.name, maxRecordsPerPartition=500, **options)
    assert rows.rdd.getNumPartitions() >= COUNT // 500
    copy = f"copied-{len(list(tmp_path.parent.iterdir()))}-{tmp_path.parent.name}"
    create_topic(topic.system, copy)
    orbitmq.spark.create_view(spark, "originals", subscribe=topic.name, **options)
    half = spark.sql("SELECT body, keys, tags, properties FROM originals WHERE queueId % 2 = 0")
    report = tmp_path / "report"
    orbitmq.spark.write_topics(half.repartition(3), nameServer=server, topic=copy, reportPath=str(report))
    read = orbitmq.spark.read_topics(spark, subscribe=copy, **options)
    wanted = rows.where("queueId % 2 = 0")
    assert wanted.count() == read.count() == json.loads(report.read_text())["messages"] > 0
    columns = ("keys", "tags", "sha2(body, 256)", "properties['city']")
    assert sorted(read.selectExpr(*columns).collect()) == sorted(wanted.selectExpr(*columns).collect())
    spark.catalog.dropTempView("originals")


@pytest.mark.usefixtures("_way")
def test_a_store_is_read_by_a_function(spark: SparkSession, tmp_path: Path) -> None:
    root = golden.unpack("plain", tmp_path)
    frame = orbitmq.spark.read_store(spark, path=str(root), columns="physOffset", splitBytes=1 << 20)
    messages = golden.manifest("plain")["messages"]
    assert sorted(row.physOffset for row in frame.collect()) == [message["physicalOffset"] for message in messages]


@pytest.mark.usefixtures("_way")
def test_a_write_that_fails_says_why_and_reports_it(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    report = tmp_path / "report"
    with pytest.raises(FAILURES, match=r"ORBITMQ_BAD_ROW: row 0 of a batch of 1 has no body"):
        orbitmq.spark.write_topics(
            spark.sql("SELECT CAST(NULL AS BINARY) AS body"),
            nameServer=topic.system.namesrv_address, topic=topic.name, reportPath=str(report),
        )  # fmt: skip
    assert json.loads(report.read_text())["event"] == "abort"


def test_without_data_sources_register_names_what_works(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.setattr(session, "HAS_SOURCES", False)
    with pytest.raises(SourceError, match=r"ORBITMQ_SPARK_VERSION: .*needs Spark 4\.0, this is .*read_topics"):
        orbitmq.spark.register(spark)


def test_without_data_sources_the_archive_says_at_once_that_it_cannot_run(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, tmp_path: Path
) -> None:
    monkeypatch.setattr(archive, "HAS_SOURCES", False)
    with pytest.raises(SourceError, match=r"ORBITMQ_SPARK_VERSION: the archive.* needs Spark 4\.0"):
        run_job(archive.JOB, spark, nameServer="127.0.0.1:1", lake=tmp_path / "lake")
    assert not (tmp_path / "lake").exists()


def test_conditions_that_cannot_be_pushed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "PUSHES_FILTERS", False)
    made = source.TopicSource({"nameserver": "127.0.0.1:1", "subscribe": "orders", "filterpushdown": "true"})
    schema = made.schema()
    with pytest.raises(SourceError, match=r"ORBITMQ_SPARK_VERSION: option filterPushdown needs Spark 4\.1"):
        made.reader(schema)


def test_a_lag_that_spark_does_not_ask_for_is_refused(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.setattr(lag_listener, "ADMITS", False)
    with pytest.raises(SourceError, match=r"ORBITMQ_SPARK_VERSION: the lag of streams on the driver needs Spark 4\.2"):
        orbitmq.spark.listen(spark)


@with_sources
@pytest.mark.skipif(PUSHES_FILTERS, reason="this version pushes conditions: test_live_filters")
def test_spark_tells_that_conditions_cannot_be_pushed(spark: SparkSession, topic: Topic) -> None:
    with pytest.raises(FAILURES, match="ORBITMQ_SPARK_VERSION: option filterPushdown"):
        topic.reader(spark, filterPushdown=True).load(topic.name).count()


@with_sources
@pytest.mark.skipif(ADMITS, reason="this version has admission control: test_live_stream")
def test_the_trigger_available_now_makes_one_batch_or_is_refused(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """It is refused where Spark would repeat messages, and the checkpoint stays good."""
    name = f"triggered-{tmp_path.parent.name}"
    create_topic(topic.system, name)
    options = {"nameServer": topic.system.namesrv_address, "startingOffsets": "earliest"}

    def writer(**more: str) -> DataStreamWriter:
        frame = spark.readStream.format("orbitmq").options(**options, **more).load(name).select("body")
        made = frame.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        return made.option("checkpointLocation", str(tmp_path / "checkpoint"))

    def numbers() -> list[int]:
        return sorted(int(row.body) for row in spark.read.parquet(str(tmp_path / "rows")).collect())

    def refused() -> None:
        spark.conf.set(WRAPPER, "true")
        try:
            with pytest.raises(FAILURES, match=AVAILABLE_NOW):
                writer(maxOffsetsPerTrigger="15").trigger(availableNow=True).start().awaitTermination()
        finally:
            spark.conf.unset(WRAPPER)

    with Producer("triggered", topic.system.namesrv_address) as producer:
        for number in range(60):
            producer.send(Message(name, b"%d" % number))
    refused()
    for count in (15, 30):
        finished(writer(maxOffsetsPerTrigger="15").trigger(availableNow=True).start)
        assert len(set(numbers())) == len(numbers()) == count
        refused()
    finished(writer().trigger(availableNow=True).start)
    assert numbers() == list(range(60)) == sinks.bodies(options["nameServer"], name)
