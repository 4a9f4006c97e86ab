"""A lake in an object store, over HTTP: jobs find it by the environment alone, on the driver and in tasks."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from orbitmq.errors import ConfigurationError, LakeError
from orbitmq.lake.formats import DELTA, FORMATS
from orbitmq.lake.lakes import Lake
from orbitmq.lake.manifest import LakeFile
from orbitmq.lake.message_files import LakeWriter
from orbitmq.pipeline import archive, compact, replay
from orbitmq.pipeline.lake_options import LakeOptions
from orbitmq.pipeline.lake_sink import LakeSink
from orbitmq.pipeline.session import DATA_SOURCES
from orbitmq.spark.lake.source import LakeSource
from orbitmq.testing import Cluster
from tests.pipeline.test_archive import send
from tests.spark import sinks
from tests.support.jobs import run_job
from tests.support.lakes import as_engines_read, batch, read_messages, rows
from tests.support.s3_server import SECRET, S3Server

BUCKET = "lakes"
COUNT = 20
BATCHES = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as running, pytest.MonkeyPatch.context() as environment:
        running.make_bucket(BUCKET)
        for name, value in running.environment.items():
            environment.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def stored_spark(spark: SparkSession, store: S3Server) -> Iterator[SparkSession]:
    """A session whose tasks find the store, as those of a cluster do."""
    environment = spark.sparkContext.environment
    environment |= store.environment
    session = spark.newSession()
    for kind in (*DATA_SOURCES, LakeSource):
        session.dataSource.register(kind)
    yield session
    for name in store.environment:
        del environment[name]
    spark.createDataFrame([], "nothing INT")  # makes it this thread's session again


def options_of(kind: str, folder: Path, name: str) -> dict[str, str]:
    """A lake of the store. Iceberg has a catalog elsewhere, whose properties may contain secrets."""
    found = {"lake": f"s3://{BUCKET}/{kind}-{name}", "lakeFormat": kind}
    if kind != DELTA:
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.sqlite", "credential": SECRET}
        found["lakeCatalog"] = json.dumps(catalog)
    return found


def opened(options: dict[str, str]) -> Lake:
    return LakeOptions.parse(options).open()


def ids(lake: Lake) -> list[str]:
    return sorted(name for file in lake.files() for name in read_messages(lake.place, file.path)["msgId"].to_pylist())


@pytest.mark.parametrize("kind", FORMATS)
def test_two_archives_fill_a_lake_that_is_compacted_and_replayed(
    stored_spark: SparkSession,
    cluster: Cluster,
    tmp_path: Path,
    kind: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, lake = cluster.namesrv_address, options_of(kind, tmp_path, "jobs")
    topics = [f"Stored-{kind}-{name}" for name in "ab"]
    sent = {topic: send(server, topic, COUNT) for topic in topics}
    plans: list[str] = []
    follow = archive._follow

    def followed(query: StreamingQuery, *arguments: Any, **more: Any) -> None:
        follow(query, *arguments, **more)
        plans.append(query._jsq.explainInternal(True))

    monkeypatch.setattr(archive, "_follow", followed)

    def archived(topic: str) -> int | str:
        """Both at the same time, in several batches each."""
        own = {"topics": topic, "checkpoint": tmp_path / topic, "archiveGroup": topic, "batchRows": COUNT // 2}
        outcome = run_job(archive.JOB, stored_spark, nameServer=server, **lake, **own)
        assert not outcome.failed
        return outcome.counts["messages"]

    with caplog.at_level(logging.DEBUG), ThreadPoolExecutor(2) as both:
        list(both.map(archived, topics))
        assert ids(opened(lake)) == sorted(name for topic in topics for name in sent[topic])
        assert archived(topics[0]) == 0
        outcome = run_job(compact.JOB, stored_spark, **lake, keepVersions="2d")
    assert not outcome.failed
    assert (outcome.counts["messages"], outcome.counts["files made"]) == (2 * COUNT, 2)
    assert (outcome.counts["old files removed"], outcome.counts["versions kept for"]) == (0, "2d")
    assert ids(opened(lake)) == sorted(name for topic in topics for name in sent[topic])
    assert as_engines_read(opened(lake)).num_rows == 2 * COUNT
    copies = {"nameServer": server, "topics": topics[0], "to": f"Copies-{kind}", "name": kind}
    cluster.create_topic(copies["to"])
    outcome = run_job(replay.JOB, stored_spark, **lake, **copies)
    assert outcome.counts == {"messages sent": COUNT, "sent before": 0}
    bodies = [message.body for queue in sinks.stored(server, copies["to"]).values() for message in queue]
    assert sorted(bodies) == sorted(body for _, body, _, _ in sent[topics[0]].values())
    logged = [record for record in caplog.records if not record.name.startswith("py4j")]  # jobs silence that one
    assert SECRET not in "".join(record.getMessage() for record in logged)
    assert all(LakeSink.name() in plan for plan in plans[:2]), "the last one had nothing to do"
    assert SECRET not in "".join(plans)


@pytest.mark.parametrize("kind", FORMATS)
def test_writers_that_meet_lose_nothing_and_publish_nothing_twice(store: S3Server, tmp_path: Path, kind: str) -> None:
    """Two archives of their own, and a third that repeats the batches of the first."""
    options, start = options_of(kind, tmp_path, "meeting"), Barrier(3)

    def publish(query: str, topic: str) -> int:
        lake = opened(options)
        writer_files = [written(lake, topic, number) for number in range(BATCHES)]
        start.wait()
        return sum(is_published(lake, query, number, files) for number, files in enumerate(writer_files))

    with ThreadPoolExecutor(3) as writers:
        published = list(writers.map(publish, ("one", "two", "one"), "TUT"))
    assert published[1] == BATCHES
    assert published[0] + published[2] == BATCHES, "each batch by one of them"
    assert ids(opened(options)) == sorted(f"{topic}-broker-a-0-{number}" for topic in "TU" for number in range(BATCHES))
    if kind == DELTA:
        puts = [request for request, _ in store.requests if request.startswith("PUT") and request.endswith(".json")]
        assert puts
        assert all(request.startswith("PUT-NEW ") for request in puts), "a commit must not replace another one"


def is_published(lake: Lake, query: str, batch_id: int, files: list[LakeFile]) -> bool:
    """Whether this writer publishes the batch: the lake refuses one that the other has overtaken."""
    try:
        return lake.commit(query, batch_id, files)
    except LakeError as error:
        if "the checkpoint is older than the lake" not in str(error):
            raise
        return False


def written(lake: Lake, topic: str, offset: int) -> list[LakeFile]:
    writer = LakeWriter(lake.place, "archive")
    writer.add(batch(rows(topic, [offset])))
    return writer.finish()


def test_a_store_that_refuses_is_named_and_the_secret_is_not(
    stored_spark: SparkSession, store: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "unknown")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")  # another client than before
    with pytest.raises(LakeError, match=rf"s3://{BUCKET}/refused cannot be read: .*ACCESS_DENIED") as refused:
        run_job(compact.JOB, stored_spark, lake=f"s3://{BUCKET}/refused")
    assert SECRET not in str(refused.value)


def test_an_archive_needs_a_checkpoint_elsewhere(stored_spark: SparkSession, store: S3Server) -> None:
    with pytest.raises(ConfigurationError, match="option checkpoint is missing; Spark cannot write into an object"):
        run_job(archive.JOB, stored_spark, nameServer="127.0.0.1:1", lake=f"s3://{BUCKET}/none", topics="T")
