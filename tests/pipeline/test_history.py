"""The history of a topic has each message once: what the lake has, and from there on what the brokers have; while the
archive runs, files are merged, and messages arrive.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import orbitmq.spark
from orbitmq.client import Message
from orbitmq.client.sync import Producer
from orbitmq.errors import SourceError
from orbitmq.lake.formats import FORMATS
from orbitmq.pipeline import compact
from orbitmq.pipeline.archive_stream import MESSAGES
from orbitmq.spark.versions import ADMITS, start_until_now
from orbitmq.testing import Cluster
from tests.support.jobs import run_archive, run_job
from tests.support.sparks import FAILURES, reading, with_sources
from tests.support.streams import finished

Place = tuple[str, str, int, int]
Sent = dict[Place, bytes]
COLUMNS = "topic,brokerName,queueId,queueOffset,body"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        yield running


def send(producer: Producer, topic: str, number: int) -> Sent:
    """One message, with its place."""
    result = producer.send(Message(topic, b'{"id": %d}' % number, keys=f"k{number}"))
    queue = result.queue
    return {(topic, queue.broker_name, queue.queue_id, result.queue_offset): b'{"id": %d}' % number}


def send_all(cluster: Cluster, topic: str, numbers: range) -> Sent:
    sent: Sent = {}
    with Producer("senders", cluster.namesrv_address) as producer:
        for number in numbers:
            sent |= send(producer, topic, number)
    assert len(sent) == len(numbers)
    return sent


@contextmanager
def sending(cluster: Cluster, topic: str) -> Iterator[Sent]:
    """Sends all the time; what was sent so far."""
    sent: Sent = {}
    done = threading.Event()

    def work() -> None:
        with Producer("busy-senders", cluster.namesrv_address) as producer:
            number = 10_000
            while not done.wait(0.01):
                sent.update(send(producer, topic, number))
                number += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield sent
    finally:
        done.set()
        thread.join()


def archive_now(spark: SparkSession, cluster: Cluster, lake: Path, topic: str, **options: object) -> int:
    told = {"lake": lake, "topics": topic, "archiveGroup": f"A-{topic}", **options}
    outcome = run_archive(spark, nameServer=cluster.namesrv_address, **told)
    assert not outcome.failed
    return int(outcome.counts["messages"])


def held(frame: DataFrame) -> Sent:
    """The rows; none is there twice."""
    rows = [(row.topic, row.brokerName, row.queueId, row.queueOffset, bytes(row.body)) for row in frame.collect()]
    found = {row[:4]: row[4] for row in rows}
    assert len(found) == len(rows), "a message is there twice"
    return found


@with_sources
@pytest.mark.parametrize("kind", FORMATS)
def test_each_message_is_there_once_whatever_happens_meanwhile(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, kind: str
) -> None:
    """The moment of a history is the version of the lake: then the archive goes on, and files are merged."""
    topic, lake = f"History-{kind}", tmp_path / "lake"
    cluster.create_topic(topic, queues=2)
    name = cluster.namesrv_address
    first = send_all(cluster, topic, range(30))
    archiving = partial(archive_now, spark, cluster, lake, topic, lakeFormat=kind)
    assert archiving() == 30
    between = send_all(cluster, topic, range(30, 40))
    frame = orbitmq.spark.history(spark, topic, str(lake), nameServer=name, columns=COLUMNS)
    with sending(cluster, topic) as busy:
        assert archiving() >= 10
        assert not run_job(compact.JOB, spark, lake=lake, lakeFormat=kind).failed
        archive_again = threading.Thread(target=archiving)
        archive_again.start()
        before = dict(busy)
        found = held(frame)
        second = held(orbitmq.spark.history(spark, topic, str(lake), nameServer=name, columns=COLUMNS))
        archive_again.join()
    assert before
    for read in (found, second):
        assert read.items() >= (first | between | before).items(), "nothing is missing"
        assert read.items() <= (first | between | busy).items()
    every = first | between | busy
    assert held(orbitmq.spark.history(spark, topic, str(lake), nameServer=name, columns=COLUMNS)) == every
    assert archiving() > 0
    assert held(spark.read.format("orbitmq-lake").option("columns", COLUMNS).load(str(lake))) == every


@pytest.fixture(scope="module")
def lake(spark: SparkSession, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sent]:
    """A lake with 20 messages of the topic Orders, and 10 more that only the brokers have."""
    folder = tmp_path_factory.mktemp("lake")
    cluster.create_topic("Orders", queues=1)
    sent = send_all(cluster, "Orders", range(20))
    archive_now(spark, cluster, folder, "Orders")
    return folder, sent | send_all(cluster, "Orders", range(20, 30))


def test_an_archived_message_is_the_row_that_it_was(
    spark: SparkSession, cluster: Cluster, lake: tuple[Path, Sent]
) -> None:
    folder, sent = lake
    order = "brokerName", "queueId", "queueOffset"
    server = cluster.namesrv_address
    topic = reading(spark).option("nameServer", server).load("Orders").schema
    archived = reading(spark, "orbitmq-lake").schema(MESSAGES).load(str(folder)).orderBy(*order).collect()
    live = {
        row[1:4]: row for row in reading(spark).option("nameServer", server).schema(MESSAGES).load("Orders").collect()
    }
    assert len(archived) == 20
    assert [live[row[1:4]] for row in archived] == archived
    assert reading(spark, "orbitmq-lake").load(str(folder)).schema == topic
    whole = orbitmq.spark.history(spark, "Orders", str(folder), nameServer=server)
    assert whole.schema == topic
    assert held(whole) == sent


def test_bodies_are_columns_of_both_parts(spark: SparkSession, cluster: Cluster, lake: tuple[Path, Sent]) -> None:
    how = {"nameServer": cluster.namesrv_address, "bodyFormat": "json", "bodyMode": "failfast"}
    frame = orbitmq.spark.history(spark, "Orders", str(lake[0]), **how)
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint>", "inferred from the newest"
    assert sorted(row.id for row in frame.select("value.id").collect()) == list(range(30))


def test_a_period_is_that_of_both_parts(spark: SparkSession, cluster: Cluster, lake: tuple[Path, Sent]) -> None:
    read = partial(orbitmq.spark.history, spark, "Orders", str(lake[0]), nameServer=cluster.namesrv_address)
    times = sorted(
        row.t for row in read(columns="storeTimestamp").selectExpr("unix_millis(storeTimestamp) t").collect()
    )
    for begin, end in ((times[3], times[25]), (times[25], times[28])):
        expected = sum(begin <= time < end for time in times)
        assert read(columns="topic", startingTimestamp=begin, endingTimestamp=end).count() == expected


def test_views_have_the_names_of_the_topics(spark: SparkSession, lake: tuple[Path, Sent]) -> None:
    assert orbitmq.spark.tables(spark, "Ord.*", lake=str(lake[0]), prefix="archived_") == ["archived_Orders"]
    assert spark.sql("SELECT count(*) AS number FROM archived_Orders").collect()[0].number == 20
    spark.catalog.dropTempView("archived_Orders")
    with pytest.raises(SourceError, match="ORBITMQ_TOPIC_NOT_FOUND: no topic matches 'Pay"):
        orbitmq.spark.tables(spark, "Pay.*", lake=str(lake[0]))
    with pytest.raises(SourceError, match=r"option nameServer is unknown; .* use orbitmq\.spark\.history"):
        orbitmq.spark.tables(spark, lake=str(lake[0]), nameServer="x:1")


@with_sources
def test_a_history_goes_on_as_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """One broker is down when the stream starts: its archived messages are not read again when it comes back."""
    with Cluster(tmp_path / "data", brokers=2) as cluster:
        topic, lake = "Going", tmp_path / "lake"
        cluster.create_topic(topic, queues=1)
        sent = send_all(cluster, topic, range(20))
        assert {place[1] for place in sent} == {"broker-a", "broker-b"}
        archive_now(spark, cluster, lake, topic)
        sent |= send_all(cluster, topic, range(20, 30))
        split = partial(orbitmq.spark.split_history, spark, topic, str(lake), nameServer=cluster.namesrv_address)
        parts = split(columns=COLUMNS, availableNow=not ADMITS)
        cluster.kill("broker-b")
        past = held(parts.archived)
        assert len(past) == 20
        assert read_on(spark, tmp_path, parts.live) == {
            place: body for place, body in (sent.items() - past.items()) if place[1] == "broker-a"
        }
        cluster.restart("broker-b")
        archive_now(spark, cluster, lake, topic)  # which changes nothing for the stream
        sent |= send_all(cluster, topic, range(30, 36))
        again = split(columns=COLUMNS, version=parts.version, availableNow=not ADMITS)
        assert held(again.archived) == past
        assert read_on(spark, tmp_path, again.live) | past == sent
        assert not read_on(spark, tmp_path, again.live).keys() & past.keys()


def read_on(spark: SparkSession, folder: Path, live: DataFrame) -> Sent:
    """What the stream has written, once it has read everything."""
    writer = live.writeStream.format("parquet").option("path", str(folder / "rows"))
    finished(lambda: start_until_now(writer.option("checkpointLocation", str(folder / "checkpoint"))))
    return held(spark.read.parquet(str(folder / "rows")))


def test_what_was_deleted_before_it_was_archived_is_told(spark: SparkSession, lake: tuple[Path, Sent]) -> None:
    """The cluster has other messages in the place of the archived ones."""
    with Cluster(brokers=2) as other:
        other.create_topic("Orders", queues=1)
        how = {"nameServer": other.namesrv_address, "columns": COLUMNS}
        with pytest.raises(FAILURES, match=r"ORBITMQ_DATA_LOSS: queue 0 of topic Orders .*cannot start at"):
            orbitmq.spark.history(spark, "Orders", str(lake[0]), **how).collect()


@pytest.mark.parametrize(
    ("topics", "options", "told"),
    [
        ("Payments", {}, "ORBITMQ_TOPIC_NOT_FOUND: nothing of topic Payments is archived"),
        ("Ord*", {}, "ORBITMQ_BAD_OPTION: a history has topics by name"),
        ("Orders", {"startingOffsets": "latest"}, "option startingOffsets: a history begins with the first message"),
        ("Orders", {"subExpression": "a"}, r"option subExpression: select rows of the history with where\(\)"),
        ("Orders", {"maxRowsPerTriger": 5}, "option maxRowsPerTriger is unknown"),
        ("Orders", {"version": "99999"}, "ORBITMQ_LAKE_UNREADABLE: the Delta table .* at version 99999"),
    ],
)
def test_what_a_history_cannot_be_is_told(
    spark: SparkSession, lake: tuple[Path, Sent], topics: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(SourceError, match=told):
        orbitmq.spark.history(spark, topics, str(lake[0]), nameServer="127.0.0.1:1", **options)
