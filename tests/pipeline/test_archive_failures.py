"""Archives that cannot go on: bodies that do not fit a schema, and brokers that are down while a batch is planned and
while it is read. Nothing is skipped unseen, and the next run goes on with each message once."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from orbitmq.client import Message, MessageQueue
from orbitmq.client.sync import Producer
from orbitmq.errors import ConfigurationError, LakeError, SourceError
from orbitmq.lake.formats import DELTA, open_lake
from orbitmq.lake.lakes import Lake
from orbitmq.lake.storage import StorageLocation
from orbitmq.pipeline import archive, dlq, migrate
from orbitmq.pipeline.audit import job as audit
from orbitmq.pipeline.job import JobResult
from orbitmq.runtime.clock import SystemClock
from orbitmq.spark.cluster_client import ClusterClient, Retries
from orbitmq.testing import Cluster
from tests.support.commands import orbitmq
from tests.support.jobs import run_job
from tests.support.lakes import as_engines_read, read_messages
from tests.support.process import wait_until

FIELDS = [{"name": "id", "type": "long"}, {"name": "city", "type": ["null", "string"]}]
ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": FIELDS}
ORDERS = [{"id": number, "city": city} for number, city in enumerate(("Ulm", None, "Jena"))]
BROKERS = ("broker-a", "broker-b")
COUNT = 40  # messages of a broker in one go
MISSING = "ORBITMQ_BROKER_UNAVAILABLE: broker broker-b: no name server knows a queue of "


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=len(BROKERS)) as running:
        yield running


def archive_now(spark: SparkSession, cluster: Cluster, lake: Path, topic: str, **options: object) -> int:
    """How many messages a run has archived."""
    shared = {"nameServer": cluster.namesrv_address, "lake": lake, "topics": topic, "archiveGroup": topic}
    return int(run_job(archive.JOB, spark, **shared, **options).counts["messages"])


def opened(folder: Path) -> Lake:
    return open_lake(DELTA, StorageLocation(str(folder)), SystemClock().now_ms)


def rows(folder: Path) -> list[dict[str, Any]]:
    lake = opened(folder)
    found: list[dict[str, Any]] = [
        row for file in lake.files() for row in read_messages(lake.place, file.path).to_pylist()
    ]
    return found


def bodies(folder: Path) -> list[int]:
    return sorted(int(row["body"]) for row in rows(folder))


def as_json(order: dict[str, Any]) -> bytes:
    return json.dumps(order).encode()


def as_avro(order: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, ORDER, order)
    return sink.getvalue()


# ------------------------------------------------------------------------------------------------------------- bodies


@pytest.mark.parametrize(("mode", "encode"), [("json", as_json), ("avro", as_avro)])
def test_a_body_that_does_not_fit_stops_the_archive_until_it_is_told_what_to_do(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, mode: str, encode: Any
) -> None:
    topic, folder = f"Bodies-{mode}", tmp_path / "lake"
    cluster.create_topic(topic, queues=1)
    queue = MessageQueue(topic, BROKERS[0], 0)
    schema = {"bodyFormat": mode, "bodySchema": json.dumps(ORDER)}
    with Producer("orders", cluster.namesrv_address) as producer:
        for body in (encode(ORDERS[0]), b"\xff neither", *map(encode, ORDERS[1:])):
            producer.send(Message(topic, body), queue=queue)
    with pytest.raises(
        StreamingQueryException,
        match=f"ORBITMQ_BAD_BODY: the body of queue 0 of topic {topic} on broker-a at offset 1 does not fit",
    ):
        archive_now(spark, cluster, folder, topic, **schema, bodyMode="failfast")
    assert not list(folder.rglob("*.parquet")), "what the task had written is gone"
    assert archive_now(spark, cluster, folder, topic, **schema, bodyMode="dropmalformed") == len(ORDERS)
    assert [row["value"] for row in rows(folder)] == ORDERS
    lake = opened(folder)
    (file,) = lake.files()
    assert pa.types.is_struct(read_messages(lake.place, file.path).schema.field("value").type)


def test_a_schema_that_grows_adds_columns_to_the_lake(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    topic = "Growing"
    cluster.create_topic(topic, queues=1)
    queue = MessageQueue(topic, BROKERS[0], 0)
    grown = {**ORDER, "fields": [*FIELDS, {"name": "amount", "type": "long"}]}
    older = {**ORDER, "fields": [*FIELDS, {"name": "amount", "type": "string"}]}
    with Producer("orders", cluster.namesrv_address) as producer:
        for fields, schema in (({}, ORDER), ({"amount": 7, "more": 1}, grown)):
            producer.send(Message(topic, as_json({**ORDERS[0], **fields})), queue=queue)
            assert archive_now(spark, cluster, tmp_path, topic, bodyFormat="json", bodySchema=json.dumps(schema)) == 1
    read = as_engines_read(opened(tmp_path)).sort_by("queueOffset")
    assert read["value"].to_pylist() == [{**ORDERS[0], "amount": None}, {**ORDERS[0], "amount": 7}]
    assert read["_rescued"].to_pylist() == [None, '{"more": 1}']
    with pytest.raises(LakeError, match=r"the field value\.amount is int64 in the lake and string in the schema"):
        archive_now(spark, cluster, tmp_path, topic, bodyFormat="json", bodySchema=json.dumps(older))


# ------------------------------------------------------------------------------------------------------------ brokers


def send(cluster: Cluster, topic: str, first: int) -> list[int]:
    """COUNT messages to each broker; their numbers."""
    with Producer("senders", cluster.namesrv_address) as producer:
        for broker in BROKERS:
            queue = MessageQueue(topic, broker, 0)
            producer.send_batch([Message(topic, b"%d" % (first + number)) for number in range(COUNT)], queue=queue)
            first += COUNT
    return list(range(first))


def test_a_broker_that_is_down_holds_its_own_messages_back_alone(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("Held", queues=1)
    send(cluster, "Held", 0)
    assert archive_now(spark, cluster, tmp_path, "Held") == 2 * COUNT
    sent = send(cluster, "Held", 2 * COUNT)
    cluster.kill("broker-b")
    try:
        with pytest.raises(StreamingQueryException, match="ORBITMQ_BROKER_UNAVAILABLE: broker broker-b"):
            archive_now(spark, cluster, tmp_path, "Held", brokerUnavailableTimeoutMs=1000)
    finally:
        cluster.restart("broker-b")
    assert bodies(tmp_path) == sent[: 3 * COUNT], "the other broker's are archived"
    assert archive_now(spark, cluster, tmp_path, "Held") == COUNT
    assert bodies(tmp_path) == sent


def test_an_archive_leaves_no_broker_out_that_is_named(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("Expected", queues=1)
    sent = send(cluster, "Expected", 0)
    every = {"expectBrokers": ",".join(BROKERS)}
    kill(cluster, "broker-b")
    try:
        with pytest.raises(StreamingQueryException, match=f"{MISSING}this read there, but option expectBrokers"):
            archive_now(spark, cluster, tmp_path / "first", "Expected", **every)
        with pytest.raises(SourceError, match=f"{MISSING}this read there, but option expectBrokers"):
            archive_now(spark, cluster, tmp_path / "first", "Expected", **every, dryRun="true")
        assert opened(tmp_path / "first").files() == []
        assert archive_now(spark, cluster, tmp_path / "later", "Expected") == COUNT, "nobody knows of the other"
        with pytest.raises(
            StreamingQueryException, match=r"ORBITMQ_BROKER_UNAVAILABLE: broker broker-b .*expectBrokers"
        ):
            archive_now(spark, cluster, tmp_path / "later", "Expected", **every, brokerUnavailableTimeoutMs=500)
    finally:
        cluster.restart("broker-b")
    assert archive_now(spark, cluster, tmp_path / "first", "Expected", **every, dryRun="true") == COUNT
    assert archive_now(spark, cluster, tmp_path / "later", "Expected", **every) == COUNT
    assert bodies(tmp_path / "later") == sent
    with pytest.raises(ConfigurationError, match="expectBrokers needs input pull"):
        archive_now(spark, cluster, tmp_path / "first", "Expected", **every, input="store", path=tmp_path)


def test_the_other_jobs_stop_when_a_broker_is_missing_or_a_topic_is_closed(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """Each would otherwise do its work for half of the messages, and succeed."""
    cluster.create_topic("Jobs", queues=1)
    cluster.create_topic("%DLQ%jobs", queues=1)
    send(cluster, "Jobs", 0)
    here = {"nameServer": cluster.namesrv_address}
    every = {"expectBrokers": ",".join(BROKERS)}
    audited = {"topics": "Jobs", "out": tmp_path / "audit", "checks": "gaps"}
    state = {"topics": "Jobs", "state": tmp_path / "state.json"}
    with Cluster() as target:

        def migrated(**options: object) -> JobResult:
            there = {"toNameServer": target.namesrv_address}
            return run_job(migrate.JOB, spark, **here, **there, **state, **options)

        assert migrated().counts["messages copied"] == 2 * COUNT
        send(cluster, "Jobs", 2 * COUNT)
        kill(cluster, "broker-b")
        try:
            with pytest.raises(SourceError, match=f"{MISSING}this read"):
                run_job(audit.JOB, spark, **here, **audited, **every)
            with pytest.raises(PySparkException, match=f"{MISSING}this read"):
                run_job(dlq.JOB, spark, **here, group="jobs", **every)
            with pytest.raises(SourceError, match=f"{MISSING}this read"):
                migrated(**every)
            with pytest.raises(SourceError, match=f"{MISSING}topic Jobs there, but the state of the migration has one"):
                migrated()
        finally:
            cluster.restart("broker-b")
        assert migrated(**every).counts["messages copied"] == 2 * COUNT
    for topic in ("Jobs", "%DLQ%jobs"):
        orbitmq("topic", "permission", topic, "W", "--broker", "broker-b", "--yes", "-n", cluster.namesrv_address)
        wait_until(lambda name=topic: client(cluster).look_up([name]).closed, 60, "the route to follow")
    closed = "ORBITMQ_NO_PERMISSION: topic {} may not be read on broker-b"
    with pytest.raises(PySparkException, match=closed.format("%DLQ%jobs")):
        run_job(dlq.JOB, spark, **here, group="jobs")
    assert any("ORBITMQ_NO_PERMISSION" in text for text in run_job(audit.JOB, spark, **here, **audited).failed)


def client(cluster: Cluster) -> ClusterClient:
    return ClusterClient([cluster.namesrv_address], 10_000, Retries(3, 200))


def kill(cluster: Cluster, broker: str) -> None:
    """The broker dies, and the name server forgets it."""
    cluster.kill(broker)
    wait_until(lambda: broker not in client(cluster).info().brokers, 60, f"{broker} is forgotten")


def test_a_broker_that_dies_while_a_task_reads_costs_the_batch_and_no_message(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("Dying", queues=1)
    sent = send(cluster, "Dying", 0)
    fault = cluster.disconnect("pull", times=None, topic="Dying", broker="broker-b")
    with pytest.raises(StreamingQueryException, match="ORBITMQ_BROKER_UNAVAILABLE: queue 0 of topic Dying on broker-b"):
        archive_now(spark, cluster, tmp_path, "Dying")
    assert fault.hits
    assert opened(tmp_path).files() == [], "a batch is published whole or not at all"
    fault.end()
    assert archive_now(spark, cluster, tmp_path, "Dying") == 2 * COUNT
    assert bodies(tmp_path) == sent
