"""Topics go into the lake, each message once, whatever dies on the way; the brokers know how far it is."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from orbitmq.client import Message, SendResult
from orbitmq.client.sync import LitePullConsumer, Producer
from orbitmq.lake.formats import FORMATS, open_lake
from orbitmq.lake.lakes import Lake
from orbitmq.lake.storage import StorageLocation
from orbitmq.pipeline import archive, compact, replay
from orbitmq.runtime.clock import SystemClock
from orbitmq.testing import Cluster
from tests.spark.conftest import System
from tests.spark.stores.scanning import rows as scanned
from tests.support.jobs import run_archive, run_job
from tests.support.lakes import read_messages, rewritten
from tests.support.sparks import with_sources

Sent = dict[str, tuple[str, bytes, str, str]]  # unique id -> topic, body, tags, keys


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[Cluster]:
    with Cluster(home) as running:
        yield running


def send(name_server: str, topic: str, count: int, size: int = 1) -> Sent:
    sent: Sent = {}
    with Producer("senders", name_server) as producer:
        for number in range(count):
            message = Message(topic, b"%d " % number * size, tags=f"T{number % 3}", keys=f"{topic}-{number}")
            result: SendResult = producer.send(message)
            sent[result.msg_id] = topic, message.body, f"T{number % 3}", f"{topic}-{number}"
    return sent


def opened(path: Path, kind: str = "delta") -> Lake:
    return open_lake(kind, StorageLocation(str(path)), SystemClock().now_ms)


def table(lake: Lake) -> pa.Table:
    return pa.concat_tables([read_messages(lake.place, file.path) for file in lake.files()])


def archived(lake: Lake) -> Sent:
    """What the lake holds; every message is there once."""
    rows = table(lake).to_pylist()
    found = {row["msgId"]: (row["topic"], row["body"], row["tags"], row["keys"]) for row in rows}
    assert len(found) == len(rows), "a message is there twice"
    places = {(row["topic"], row["brokerName"], row["queueId"], row["queueOffset"]) for row in rows}
    assert len(places) == len(rows)
    return found


def queues_of(rows: list[dict[str, Any]]) -> Counter[tuple[str, int]]:
    """How many rows each queue has."""
    return Counter((row["topic"], row["queueId"]) for row in rows)


def archive_now(spark: SparkSession, name_server: str, lake: Path, **options: object) -> dict[str, int | str]:
    outcome = run_archive(spark, nameServer=name_server, lake=lake, **options)
    assert not outcome.failed
    return dict(outcome.counts)


@with_sources
def test_each_message_is_archived_once_and_the_brokers_know(
    spark: SparkSession, system: System, tmp_path: Path
) -> None:
    server, lake = system.namesrv_address, opened(tmp_path / "lake")
    topics, folder, group = "ArchiveOne,ArchiveTwo", tmp_path / "lake", "ArchiveProgress"
    sent = send(server, "ArchiveOne", 60) | send(server, "ArchiveTwo", 5, size=2000)
    counts = archive_now(spark, server, folder, topics=topics, archiveGroup=group)
    assert (counts["messages"], archived(lake)) == (65, sent)
    more = send(server, "ArchiveTwo", 7)
    counts = archive_now(spark, server, folder, topics=topics, archiveGroup=group)
    assert (counts["messages"], archived(lake)) == (7, sent | more)
    after = send(server, "ArchiveTwo", 3)
    lost = {"checkpoint": tmp_path / "new", "startingOffsets": "group"}  # what Spark knew is gone
    plan = run_job(
        archive.JOB, spark, nameServer=server, lake=folder, topics=topics, archiveGroup=group, dryRun="true", **lost
    )
    assert plan.counts["messages"] == 3
    assert archive_now(spark, server, folder, topics=topics, archiveGroup=group, **lost)["messages"] == 3
    assert archived(lake) == sent | more | after
    with LitePullConsumer(group, server, auto_commit=False) as consumer:  # it looks and says nothing
        queues = [queue for topic in topics.split(",") for queue in consumer.fetch_queues(topic)]
        consumer.assign(queues)
        for queue in queues:
            assert consumer.committed(queue) == consumer.max_offset(queue) or not consumer.max_offset(queue)


@with_sources
@pytest.mark.parametrize("kind", FORMATS)
def test_a_batch_that_is_repeated_after_a_crash_is_there_once(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, kind: str
) -> None:
    """Between publishing a batch and Spark's note that it is done there is a moment to die in."""
    topic, folder = f"Crash-{kind}", tmp_path / "lake"
    options = {"topics": topic, "lakeFormat": kind, "archiveGroup": f"Crash-{kind}"}
    sent = send(cluster.namesrv_address, topic, 20)
    archive_now(spark, cluster.namesrv_address, folder, **options)
    for note in (folder / "_checkpoint" / "commits").glob("*0*"):
        note.unlink()
    sent |= send(cluster.namesrv_address, topic, 10)
    archive_now(spark, cluster.namesrv_address, folder, **options)
    assert archived(opened(folder, kind)) == sent


@with_sources
def test_a_batch_that_was_not_published_is_archived_again(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    sent = send(cluster.namesrv_address, "Unpublished", 20)
    options = {"topics": "Unpublished", "archiveGroup": "Unpublished"}
    archive_now(spark, cluster.namesrv_address, tmp_path, **options)
    shutil.rmtree(tmp_path / "_delta_log")
    for note in (tmp_path / "_checkpoint" / "commits").glob("*0*"):
        note.unlink()
    assert archive_now(spark, cluster.namesrv_address, tmp_path, **options)["messages"] == 20
    assert archived(opened(tmp_path)) == sent


def test_a_store_directory_is_archived_and_compacted(
    spark: SparkSession, cluster: Cluster, home: Path, tmp_path: Path
) -> None:
    lake, server, group = tmp_path / "lake", cluster.namesrv_address, "ArchiveStored"
    told = {"input": "store", "path": home / "store", "brokerName": cluster.broker_names[0], "archiveGroup": group}
    before = archive_now(spark, server, lake, **told)
    sent = send(server, "Stored", 30) | send(server, "Stored2", 10)
    assert archive_now(spark, server, lake, **told)["messages"] == 40
    with LitePullConsumer(group, server, auto_commit=False) as consumer:
        queues = consumer.fetch_queues("Stored")
        assert sum(consumer.committed(queue) or 0 for queue in queues) == 30, "the guard lets go"
    found = archived(opened(lake))
    assert {name: row for name, row in found.items() if row[0].startswith("Stored")} == sent
    assert int(before["messages"]) + 40 == len(found)
    entries = queues_of(scanned(home / "store", scan="consumequeue", topics="*"))
    assert entries == queues_of(table(opened(lake)).to_pylist()), "as many of each queue as its broker knows"
    assert {file.topic for file in opened(lake).files()} == {row[0] for row in found.values()}
    plan = run_job(compact.JOB, spark, lake=lake, dryRun="true")
    outcome = run_job(compact.JOB, spark, lake=lake)
    assert outcome.counts["files replaced"] == plan.counts["files to replace"]
    assert outcome.lineage is not None
    (old,), (new,) = outcome.lineage.inputs, outcome.lineage.outputs
    assert (old.namespace, old.name) == (new.namespace, new.name) == ("file", str(lake))
    assert (old.rows, old.files) == (new.rows, outcome.counts["files replaced"])
    assert (new.rows, new.files) == (outcome.counts["messages"], outcome.counts["files made"])
    assert archived(opened(lake)) == found
    assert entries == queues_of(table(opened(lake)).to_pylist())


@with_sources
@pytest.mark.parametrize("kind", FORMATS)
def test_jobs_live_with_what_other_engines_do_to_the_table(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, kind: str
) -> None:
    """They rewrite its files under names of their own, and remove the old ones."""
    server, folder, format_ = cluster.namesrv_address, tmp_path / "lake", {"lakeFormat": kind}
    topics = [f"Ours-{kind}", f"Too-{kind}"]
    options = {"topics": ",".join(topics), "archiveGroup": f"Ours-{kind}", **format_}
    for _ in range(2):
        sent = [send(server, topic, 10) for topic in topics]
        archive_now(spark, server, folder, **options)
    before = {file.path for file in opened(folder, kind).files()}
    rewritten(opened(folder, kind))
    sent = [send(server, topic, 5) for topic in topics]
    assert archive_now(spark, server, folder, **options)["messages"] == sum(map(len, sent))
    for _ in range(2):
        for topic in topics:
            chosen = {"nameServer": server, "lake": folder, "topics": topic, "dryRun": "true", **format_}
            plan = run_job(replay.JOB, spark, **chosen)
            assert (plan.counts["messages"], {row["topic"] for row in plan.table}) == (25, {topic})
        outcome = run_job(compact.JOB, spark, lake=folder, **format_)
        assert not outcome.failed
    files = opened(folder, kind).files()
    assert sorted((file.topic, file.rows) for file in files) == [(topic, 25) for topic in sorted(topics)]
    assert not before & {file.path for file in files}


@with_sources
def test_what_would_be_archived_is_told_without_doing_it(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    send(cluster.namesrv_address, "DryRun", 9)
    outcome = run_job(
        archive.JOB, spark, nameServer=cluster.namesrv_address, lake=tmp_path, topics="DryRun", dryRun="true",
        archiveGroup="DryRun",
    )  # fmt: skip
    assert outcome.counts == {"messages": 9, "lost already": 0}
    assert sum(int(row["messages"]) for row in outcome.table) == 9
    assert not opened(tmp_path).files()


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"lake": "~/lake/"}, "/home/me/lake/_checkpoint"),
        ({"lake": "s3://bucket/~", "checkpoint": "~/progress"}, "/home/me/progress"),
        ({"lake": "./lake"}, "./lake/_checkpoint"),
        ({"lake": "hdfs://host/lake/"}, "hdfs://host/lake/_checkpoint"),
        ({"lake": "~/lake", "checkpoint": "hdfs://host/~/progress"}, "hdfs://host/~/progress"),
    ],
)
def test_a_checkpoint_is_the_same_from_every_folder(
    given: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no `~` begins is left to Spark, as it always was: another place would archive everything again."""
    monkeypatch.setenv("HOME", "/home/me")
    assert archive.checkpoint(archive.ArchiveJob.parse(given)) == place


@pytest.mark.parametrize(
    ("topics", "told"),
    [
        ("orders,pays", {"subscribe": "orders,pays"}),
        ("*", {"subscribePattern": ".*"}),
        ("pay-*,x|y*", {"subscribePattern": r"pay\-.*|x\|y.*"}),
        ("pay-*,%DLQ%g", {"subscribe": "%DLQ%g", "subscribePattern": r"pay\-.*"}),
    ],
)
def test_topics_are_given_by_names_and_stars(topics: str, told: dict[str, str]) -> None:
    assert archive.topics_wanted(topics) == told
