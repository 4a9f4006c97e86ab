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
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from orbitmq.client import Message, MessageQueue
from orbitmq.client.sync import Producer
from orbitmq.errors import ConfigurationError, SourceError
from orbitmq.pipeline import archive
from orbitmq.pipeline.lake.formats import PARQUET, open_lake
from orbitmq.pipeline.lake.lakes import Lake
from orbitmq.pipeline.lake.storage import StorageLocation
from orbitmq.runtime.clock import SystemClock
from orbitmq.testing import Cluster
from tests.support.jobs import run_job
from tests.support.lakes import read_messages

FIELDS = [{"name": "id", "type": "long"}, {"name": "city", "type": ["null", "string"]}]
ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": FIELDS}
ORDERS = [{"id": number, "city": city} for number, city in enumerate(("Ulm", None, "Jena"))]
BROKERS = ("broker-a", "broker-b")
COUNT = 40  # messages of a broker in one go


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=len(BROKERS)) as running:
        yield running


def archive_now(spark: SparkSession, cluster: Cluster, lake: Path, topic: str, **options: object) -> int:
    """How many messages a run has archived."""
    shared = {"nameServer": cluster.namesrv_address, "lake": lake, "topics": topic, "archiveGroup": topic}
    return int(run_job(archive.JOB, spark, **shared, **options).counts["messages"])


def opened(folder: Path) -> Lake:
    return open_lake(PARQUET, StorageLocation(str(folder)), SystemClock().now_ms)


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
    schema = {"bodyMode": mode, "bodySchema": json.dumps(ORDER)}
    with Producer("orders", cluster.namesrv_address) as producer:
        for body in (encode(ORDERS[0]), b"\xff neither", *map(encode, ORDERS[1:])):
            producer.send(Message(topic, body), queue=queue)
    with pytest.raises(
        StreamingQueryException, match=f"ORBITMQ_BAD_BODY: the body of {topic}/broker-a/0/1 does not fit"
    ):
        archive_now(spark, cluster, folder, topic, **schema)
    assert not list(folder.glob("topic=*/**/*.parquet")), "what the task had written is gone"
    assert archive_now(spark, cluster, folder, topic, **schema, onBadBody="skip") == len(ORDERS)
    assert [row["value"] for row in rows(folder)] == ORDERS
    lake = opened(folder)
    (file,) = lake.files()
    assert pa.types.is_struct(read_messages(lake.place, file.path).schema.field("value").type)


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


def test_a_first_archive_leaves_no_broker_out_that_is_named(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("Expected", queues=1)
    send(cluster, "Expected", 0)
    every = {"expectBrokers": ",".join(BROKERS)}
    cluster.kill("broker-b")
    try:
        with pytest.raises(SourceError, match="ORBITMQ_BROKER_UNAVAILABLE: broker broker-b is not registered"):
            archive_now(spark, cluster, tmp_path / "lake", "Expected", **every)
    finally:
        cluster.restart("broker-b")
    assert not (tmp_path / "lake").exists()
    assert archive_now(spark, cluster, tmp_path / "lake", "Expected", **every, dryRun="true") == 2 * COUNT
    with pytest.raises(ConfigurationError, match="expectBrokers needs input pull"):
        archive_now(spark, cluster, tmp_path / "lake", "Expected", **every, input="store", path=tmp_path)


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
