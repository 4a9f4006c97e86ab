"""Messages of the lake are sent again: those wanted, in the order wanted, once under one name; what the log has let go
comes back from the archive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import orbitmq.spark
from orbitmq.client import Message, MessageExt
from orbitmq.client.sync import LitePullConsumer, Producer
from orbitmq.errors import ConfigurationError, SourceError
from orbitmq.pipeline import replay
from orbitmq.testing import Cluster
from tests.support import golden
from tests.support.jobs import run_archive, run_job
from tests.support.process import wait_until

COUNT = 40
FILE_SIZE = 2 << 20  # the sink's requests of a megabyte must fit
SMALL = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "cleanResourceInterval": "20",
    "deleteCommitLogFilesInterval": "1",
    "deleteWhen": ";".join(map(str, range(24))),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[Cluster]:
    with Cluster(home, maxMessageSize=6 << 20) as running:
        yield running


def received(name_server: str, topic: str) -> list[MessageExt]:
    """Everything in a topic, queue by queue in order."""
    found: list[MessageExt] = []
    with LitePullConsumer("readers", name_server, auto_commit=False) as consumer:
        queues = sorted(consumer.fetch_queues(topic))
        consumer.assign(queues)
        for queue in queues:
            consumer.seek(queue, consumer.min_offset(queue))
        missing = sum(consumer.max_offset(queue) - consumer.min_offset(queue) for queue in queues)
        while missing > len(found):
            found += consumer.poll(timeout=5)
    return sorted(found, key=lambda message: (message.queue_id, message.queue_offset))


@pytest.fixture(scope="module")
def lake(spark: SparkSession, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the topic Orders in two queues, keys and tags in turn."""
    folder = tmp_path_factory.mktemp("lake")
    cluster.create_topic("Orders", queues=2)
    with Producer("senders", cluster.namesrv_address) as producer:
        queues = producer.fetch_publish_queues("Orders")
        for number in range(COUNT):
            message = Message("Orders", b"%d" % number, tags=f"T{number % 4}", keys=f"k{number % 5} n{number}")
            message.properties["colour"] = "blue"
            if number % 3 == 0:
                message.properties["__SHARDINGKEY"] = f"customer-{number % 7}"
            producer.send(message, queue=queues[number % 2])
    run_archive(spark, nameServer=cluster.namesrv_address, lake=folder, topics="Orders")
    return folder


def replayed(spark: SparkSession, cluster: Cluster, lake: Path, target: str, **options: object) -> dict[str, int | str]:
    if target not in ("", "Orders"):
        cluster.create_topic(target, queues=2)
    outcome = run_job(
        replay.JOB, spark, nameServer=cluster.namesrv_address, lake=lake, topics="Orders", to=target, tasks=2, **options
    )
    return dict(outcome.counts)


def numbers(cluster: Cluster, topic: str) -> list[int]:
    return [int(message.body) for message in received(cluster.namesrv_address, topic)]


@pytest.mark.parametrize("preserve", ["exact", "queue"])
def test_a_replay_keeps_queues_order_and_properties(
    spark: SparkSession, cluster: Cluster, lake: Path, preserve: str
) -> None:
    target = f"Again-{preserve}"
    counts = replayed(spark, cluster, lake, target, preserve=preserve)
    assert counts == {"messages sent": COUNT, "sent before": 0}
    found = received(cluster.namesrv_address, target)
    original = received(cluster.namesrv_address, "Orders")
    if preserve == "queue":  # each in a queue of the target, maybe in the same one
        found.sort(key=lambda message: int(message.body) % 2)
    assert [int(message.body) for message in found] == [*range(0, COUNT, 2), *range(1, COUNT, 2)]
    for message, before in zip(found, original, strict=True):
        assert message.properties.get("__SHARDINGKEY") == before.properties.get("__SHARDINGKEY")
        assert (message.keys, message.tags, message.properties["colour"]) == (before.keys, before.tags, "blue")
        assert message.properties["ORIGIN_MSG_ID"] == before.msg_id != message.msg_id
        assert message.properties["ORIGIN_QUEUE_OFFSET"].endswith(f"/{before.queue_id}/{before.queue_offset}")


def test_under_one_name_nothing_is_sent_twice(spark: SparkSession, cluster: Cluster, lake: Path) -> None:
    assert replayed(spark, cluster, lake, "Named", name="friday", tags="T1")["messages sent"] == COUNT // 4
    counts = replayed(spark, cluster, lake, "Named", name="friday", tags="T1")
    assert (counts["messages sent"], counts["sent before"]) == (0, COUNT // 4)
    assert sorted(numbers(cluster, "Named")) == list(range(1, COUNT, 4))
    assert replayed(spark, cluster, lake, "Named", name="monday", tags="T1")["messages sent"] == COUNT // 4


def drop_half(frame: DataFrame) -> DataFrame:
    return frame.where("queueOffset < 10").withColumn("body", f.concat(f.lit("9"), f.col("body")).cast("binary"))


def test_messages_are_chosen_and_changed(spark: SparkSession, cluster: Cluster, lake: Path) -> None:
    options = {"keys": "k2,k3", "where": "queueId = 0", "transform": f"{__name__}:drop_half", "preserve": "key"}
    replayed(spark, cluster, lake, "Chosen", **options)
    expected = [int(f"9{number}") for number in range(0, 20, 2) if number % 5 in (2, 3)]
    assert sorted(numbers(cluster, "Chosen")) == sorted(expected)
    tomorrow = datetime.now(UTC).timestamp() + 86_400
    outcome = run_job(
        replay.JOB, spark, nameServer=cluster.namesrv_address, lake=lake, topics="Orders", dryRun="true",
        **{"from": str(round(tomorrow * 1000))},
    )  # fmt: skip
    assert outcome.counts == {"messages": 0}


@pytest.mark.parametrize(("where", "text"), [("keyz = 'k'", ".*keyz.*keys"), ("keys = ", ".*end of input")])
def test_a_condition_that_spark_cannot_read_is_named(
    spark: SparkSession, cluster: Cluster, lake: Path, where: str, text: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"option where: {text}"):
        replayed(spark, cluster, lake, "Orders", where=where)


def test_a_dry_run_tells_the_counts_of_each_queue(spark: SparkSession, cluster: Cluster, lake: Path) -> None:
    outcome = run_job(
        replay.JOB, spark, nameServer=cluster.namesrv_address, lake=lake, topics="Orders", dryRun="true", tags="T0,T1"
    )
    assert [(row["queue"], row["messages"]) for row in outcome.table] == [(0, COUNT // 4), (1, COUNT // 4)]


def test_a_target_that_is_missing_is_told_before_anything_is_read(
    spark: SparkSession, cluster: Cluster, lake: Path
) -> None:
    with pytest.raises(SourceError, match="ORBITMQ_TOPIC_NOT_FOUND: topic Nowhere"):
        run_job(
            replay.JOB, spark, nameServer=cluster.namesrv_address, lake=lake, topics="Orders", to="Nowhere",
            where="raise_error('read') IS NULL",
        )  # fmt: skip


def test_a_message_as_large_as_its_broker_takes_is_replayed(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("Large")
    cluster.create_topic("LargeAgain")
    with Producer("senders", cluster.namesrv_address, max_message_size=6 << 20) as producer:
        producer.send(Message("Large", b"x" * (5 << 20)))  # compressed on the wire and in the log
    run_archive(spark, nameServer=cluster.namesrv_address, lake=tmp_path / "lake", topics="Large")
    outcome = run_job(
        replay.JOB, spark, nameServer=cluster.namesrv_address, lake=tmp_path / "lake", topics="Large", to="LargeAgain"
    )
    assert outcome.counts["messages sent"] == 1
    assert len(received(cluster.namesrv_address, "LargeAgain")[0].body) == 5 << 20


def test_a_store_is_replayed_without_a_lake(spark: SparkSession, cluster: Cluster, lake: Path, home: Path) -> None:
    cluster.create_topic("FromStore", queues=2)
    outcome = run_job(
        replay.JOB, spark, nameServer=cluster.namesrv_address, input="store", path=home / "store", topics="Orders",
        to="FromStore", brokerName="broker-a",
    )  # fmt: skip
    assert outcome.counts["messages sent"] == COUNT
    places = {message.properties["ORIGIN_QUEUE_OFFSET"] for message in received(cluster.namesrv_address, "FromStore")}
    assert places == {f"Orders/broker-a/{queue}/{offset}" for queue in range(2) for offset in range(COUNT // 2)}
    assert sorted(numbers(cluster, "FromStore")) == list(range(COUNT))


def test_what_the_log_lets_go_comes_back_from_the_archive(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The guard keeps the log until the archive has it; then retention takes it, and a replay brings all back, once."""
    with Cluster(tmp_path / "data", options=SMALL, archiveGuard=True) as cluster:
        server = cluster.namesrv_address
        cluster.create_topic("Kept", queues=2)
        with Producer("senders", server) as producer:
            sent = {producer.send(Message("Kept", os.urandom(200_000))).msg_id for _ in range(60)}
        log = tmp_path / "data" / "store" / "commitlog"
        full = [log / f"{start:020d}" for start in range(0, 5 * FILE_SIZE, FILE_SIZE)]  # the sixth is in use
        assert all(file.exists() for file in full)
        cluster.advance(73 * 3600)
        wait_until(lambda: "event=log_file_kept" in caplog.text, 60, "the guard keeps what has expired")
        before = {message.msg_id: message.body for message in received(server, "Kept")}
        assert len(before) == 60
        run_archive(spark, nameServer=server, lake=tmp_path / "lake", topics="Kept")
        wait_until(lambda: not any(file.exists() for file in full), 60, "the log has let go what is archived")
        assert len(received(server, "Kept")) == 10, "those of the last file"
        with Producer("senders", server) as producer:
            newer = {producer.send(Message("Kept", b"new")).msg_id for _ in range(3)}
        whole = orbitmq.spark.history(spark, "Kept", str(tmp_path / "lake"), nameServer=server, columns="msgId")
        assert sorted(row.msgId for row in whole.collect()) == sorted(sent | newer)
        cluster.create_topic("Back")
        outcome = run_job(
            replay.JOB, spark, nameServer=server, lake=tmp_path / "lake", topics="Kept", to="Back", name="back",
        )  # fmt: skip
        assert outcome.counts["messages sent"] == 60
        back = received(server, "Back")
        assert {message.properties["ORIGIN_MSG_ID"]: message.body for message in back} == before
        assert len(back) == 60
        assert set(before) == sent


def test_a_damaged_store_is_replayed_without_what_is_damaged(spark: SparkSession, tmp_path: Path) -> None:
    root, manifest = golden.unpack("crash_crc", tmp_path), golden.manifest("crash_crc")
    topics = ",".join({message["topic"] for message in manifest["messages"]})
    told = {"input": "store", "path": str(root), "brokerName": "broker-a", "topics": topics}
    with pytest.raises(PySparkException, match="ORBITMQ_CORRUPT_RECORD"):
        replay.selected(spark, replay.ReplayJob.parse(told)).collect()
    options = replay.ReplayJob.parse({**told, "onCorruptRecord": "skip"})
    rows = replay.selected(spark, options).select("brokerName", "topic", "queueId", "queueOffset").collect()
    assert {tuple(row) for row in rows} >= {
        ("broker-a", message["topic"], message["queueId"], message["queueOffset"]) for message in manifest["messages"]
    }


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topics": "T"}, "option nameServer is missing"),
        ({"nameServer": "x:1"}, "option topics is missing"),
        ({"nameServer": "x:1", "topics": "T", "input": "store"}, "option path is missing"),
        ({"nameServer": "x:1", "topics": "T", "input": "store", "path": "p", "name": "n"}, "brokerName is missing"),
        ({"nameServer": "x:1", "topics": "T", "lake": "x", "from": "noon"}, "option from: use a time"),
        ({"nameServer": "x:1", "topics": "T", "transform": "nowhere:f"}, "option transform: nowhere:f"),
        ({"nameServer": "x:1", "topics": "T"}, "option lake is missing"),
        (
            {"nameServer": "x:1", "topics": "T", "rate": "3"},
            "option rate: 3 messages a second cannot be divided among 4",
        ),
    ],
)
def test_a_wrong_option_is_named(spark: SparkSession, options: dict[str, str], text: str, tmp_path: Path) -> None:
    if "transform" in options:
        options = options | {"lake": str(tmp_path)}
    with pytest.raises(ConfigurationError, match=text):
        run_job(replay.JOB, spark, **options)


def test_a_rate_is_never_more_than_was_asked_for() -> None:
    for rate, tasks in ((1, 1), (7, 4), (100, 4)):
        told = replay.sink_options(replay.ReplayJob.parse({"rate": str(rate), "tasks": str(tasks)}))
        assert 0 < int(told["maxRowsPerSecond"]) * tasks <= rate
