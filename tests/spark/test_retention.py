"""The broker removes files of its log while Spark reads: after a read was planned and before its tasks run, and between
two runs of a stream. What is gone ends the read by name and with its count, or is left out."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from orbitmq.client import Message
from orbitmq.client.sync import Producer
from orbitmq.errors import SourceError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.source import TopicSource
from orbitmq.spark.stores.source import StoreSource
from orbitmq.testing import Cluster
from tests.spark import sinks
from tests.support.process import wait_until
from tests.support.streams import finished

TOPIC = "Kept"
COLUMNS = "queueId,queueOffset,body"
FILE_SIZE = 1 << 20
BODY_SIZE = 100_000  # ten a file; they cannot be compressed
BEFORE, COUNT = 10, 40
SMALL = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "cleanResourceInterval": "20",
    "deleteCommitLogFilesInterval": "1",
    "deleteWhen": ";".join(map(str, range(24))),
}
Place = tuple[int, int]


@dataclass(frozen=True)
class Planned:
    """A read that knows its partitions and has not begun."""

    reader: DataSourceReader
    partitions: list[InputPartition]

    def read(self) -> list[Place]:
        batches = [batch for partition in self.partitions for batch in self.reader.read(partition)]
        return sorted((row["queueId"], row["queueOffset"]) for batch in batches for row in batch.to_pylist())


@dataclass(frozen=True)
class Shrunk:
    """A topic whose oldest messages went, and reads that were planned before; strict ones and lenient ones."""

    server: str
    folder: Path
    plans: dict[tuple[str, bool], Planned]
    bounds: dict[MessageQueue, tuple[int, int]]

    @property
    def left(self) -> list[Place]:
        return sorted((queue.queue_id, at) for queue, (low, high) in self.bounds.items() for at in range(low, high))


def send(server: str, numbers: range) -> None:
    with Producer("senders", server) as producer:
        for number in numbers:
            producer.send(Message(TOPIC, b"%06d" % number + os.urandom(BODY_SIZE)))


def planned(source: DataSource) -> Planned:
    reader = source.reader(source.schema())
    return Planned(reader, list(reader.partitions()))


def plans(server: str, store: Path) -> dict[tuple[str, bool], Planned]:
    found = {}
    for strict in (True, False):
        told = {"failOnDataLoss": str(strict).lower(), "columns": COLUMNS}
        pulled = {"nameServer": server, "subscribe": TOPIC, "maxRecordsPerPartition": "7", **told}
        found["topic", strict] = planned(TopicSource(pulled))
        scanned = {"path": str(store), "topics": TOPIC, "splitBytes": str(FILE_SIZE // 2), **told}
        found["log", strict] = planned(StoreSource({**scanned, "topicsBy": "log"}))
        found["queues", strict] = planned(StoreSource({**scanned, "topicsBy": "queues"}))
    return found


@pytest.fixture(scope="module")
def shrunk(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shrunk]:
    folder = tmp_path_factory.mktemp("retention")
    with Cluster(folder, options=SMALL) as cluster:
        server, log = cluster.namesrv_address, folder / "store" / "commitlog"
        cluster.create_topic(TOPIC, queues=2)
        send(server, range(BEFORE))
        run(stream(spark, server, strict=True), folder)
        send(server, range(BEFORE, COUNT))
        made = plans(server, folder / "store")
        full = [log / f"{start:020d}" for start in range(0, 3 * FILE_SIZE, FILE_SIZE)]
        assert all(file.exists() for file in full)
        cluster.advance(73 * 3600)
        wait_until(lambda: not any(file.exists() for file in full), 60, "the full files are removed")
        # The queues are cut off a moment after the log.
        wait_until(lambda: all(low for low, _ in sinks.bounds(server, TOPIC).values()), 60, "the queues begin later")
        yield Shrunk(server, folder, made, sinks.bounds(server, TOPIC))


def stream(spark: SparkSession, server: str, *, strict: bool) -> DataFrame:
    options = {"nameServer": server, "startingOffsets": "earliest", "columns": COLUMNS}
    return spark.readStream.format("orbitmq").options(**options, failOnDataLoss=str(strict).lower()).load(TOPIC)


def run(frame: DataFrame, folder: Path) -> list[dict[str, object]]:
    """Read what there is into a table beside the checkpoint; the ends of the batches."""
    writer = frame.select("queueId", "queueOffset").writeStream.format("parquet").option("path", f"{folder}/rows")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    progress = finished(writer.start).recentProgress
    told = [json.loads(batch.json)["sources"][0]["endOffset"] for batch in progress if batch.numInputRows]
    return [json.loads(end) if isinstance(end, str) else end for end in told]


def test_a_read_whose_messages_are_removed_names_the_loss(shrunk: Shrunk) -> None:
    (low, high), *_ = shrunk.bounds.values()
    assert 0 < low < high
    text = rf"queue \d of topic {TOPIC} .*: offset 0 is gone, the broker has {low} to {high}; \d messages before"
    with pytest.raises(SourceError, match=f"ORBITMQ_DATA_LOSS: {text}"):
        shrunk.plans["topic", True].read()
    for by in ("log", "queues"):
        with pytest.raises(SourceError, match=r"ORBITMQ_DATA_LOSS: store of .*0 is gone, with .* bytes of the range"):
            shrunk.plans[by, True].read()


@pytest.mark.parametrize("by", ["topic", "log", "queues"])
def test_a_lenient_read_has_what_is_left_and_tells_the_rest(
    shrunk: Shrunk, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert shrunk.plans[by, False].read() == shrunk.left
    told = [int(count) for count in re.findall(r": (\d+) of the \d messages", caplog.text)]
    assert sum(told) == (sum(low for low, _high in shrunk.bounds.values()) if by == "topic" else 0)
    assert by == "topic" or re.search(r"event=data_loss store=\S+ bytes=\d+", caplog.text)


def test_a_stream_names_the_loss_and_goes_on_when_told(spark: SparkSession, shrunk: Shrunk) -> None:
    read = BEFORE // 2  # of each queue
    lost = {queue.queue_id: low - read for queue, (low, _high) in shrunk.bounds.items()}
    with pytest.raises(StreamingQueryException) as caught:
        run(stream(spark, shrunk.server, strict=True), shrunk.folder)
    assert any(
        f"queue {queue} of topic {TOPIC}" in str(caught.value) and f"{count} messages are lost" in str(caught.value)
        for queue, count in lost.items()
    ), str(caught.value)
    (end,) = run(stream(spark, shrunk.server, strict=False), shrunk.folder)
    assert end["lost"] == sum(lost.values())
    rows = spark.read.parquet(f"{shrunk.folder}/rows").collect()
    before = [(queue, offset) for queue in lost for offset in range(read)]
    assert sorted((row.queueId, row.queueOffset) for row in rows) == sorted(before + shrunk.left)
