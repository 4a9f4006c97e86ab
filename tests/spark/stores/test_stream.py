"""A store as a stream: micro-batches lie side by side, whatever limits them and wherever a query was interrupted."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from orbitmq.errors import SourceError
from orbitmq.spark.stores.source import StoreSource
from orbitmq.spark.stores.stream import StoreStreamReader
from orbitmq.spark.versions import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, start_until_now
from orbitmq.store.engine import MessageStore
from tests.support.sparks import with_sources
from tests.support.stores import open_store, record

ALL = ReadAllAvailable()


def put(store: MessageStore, first: int, count: int) -> None:
    for number in range(first, first + count):
        store.put(record(b"%06d" % number * (1 + number % 9)))


def stream(path: Path | str, **options: object) -> StoreStreamReader:
    given = {"path": str(path), "columns": "body,brokerName", **{name: str(value) for name, value in options.items()}}
    source = StoreSource(given)
    return source.stream(source.schema())


def numbers(reader: StoreStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    found = []
    for partition in reader.partitions(through_json(start), through_json(end)):
        for batch in reader.read(partition):
            found += [int(body[:6]) for body in batch["body"].to_pylist()]
    return found


def through_json(offset: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(offset)
    assert text == json.dumps(offset, sort_keys=True)  # Spark compares texts
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize(
    "limit", [ALL, ReadMaxRows(1), ReadMaxRows(7), ReadMaxBytes(1), ReadMaxBytes(1000), ReadMaxBytes(20_000)]
)
def test_batches_have_every_message_once(tmp_path: Path, limit: ReadLimit) -> None:
    store = open_store(tmp_path)
    put(store, 0, 60)
    reader = stream(tmp_path, splitBytes=2048)
    start, found, batches = reader.initialOffset(), list[list[int]](), 0
    sent = 60
    while (end := reader.latestOffset(start, limit)) is not start:
        found.append(numbers(reader, start, end))
        assert numbers(reader, start, end) == found[-1]  # as after a failure
        start, batches = end, batches + 1
        if batches == 3:
            put(store, 60, 20)
            sent = 80
    if sent == 60:
        put(store, 60, 20)
        end = reader.latestOffset(start, ALL)
        found.append(numbers(reader, start, end))
        sent = 80
    store.close()
    assert list(chain.from_iterable(found)) == list(range(sent))
    if isinstance(limit, ReadMaxRows):
        assert all(len(batch) == limit.max_rows for batch in found[:-1][:3])


def test_a_first_batch_that_failed_is_read_again_from_where_it_began(tmp_path: Path) -> None:
    """Spark asks a restarted query for its initial offset anew, and latest is somewhere else by then."""
    store = open_store(tmp_path)
    put(store, 0, 20)
    reader = stream(tmp_path, startingPhysicalOffset="latest")
    start = reader.initialOffset()
    put(store, 20, 5)
    assert reader.initialOffset() == start
    end = reader.latestOffset(start, ALL)
    put(store, 25, 5)
    again = stream(tmp_path, startingPhysicalOffset="latest")
    assert numbers(again, again.initialOffset(), end) == list(range(20, 25))
    following = again.latestOffset(through_json(end), ALL)
    assert numbers(again, end, following) == list(range(25, 30))
    assert "from" not in following
    store.close()


def test_a_broker_that_joins_is_read_from_its_first_message(tmp_path: Path) -> None:
    first, second = open_store(tmp_path / "a"), open_store(tmp_path / "b")
    put(first, 0, 10)
    put(second, 100, 10)
    alone = stream(json.dumps({"a": str(tmp_path / "a")}))
    end = alone.latestOffset(alone.initialOffset(), ALL)
    both = stream(json.dumps({"b": str(tmp_path / "b"), "a": str(tmp_path / "a")}))
    put(first, 10, 5)
    following = both.latestOffset(end, ALL)
    assert numbers(both, end, following) == [*range(10, 15), *range(100, 110)]
    with pytest.raises(SourceError, match=r"^ORBITMQ_DATA_LOSS: .*option path no longer names the store of b"):
        alone.partitions(end, following)
    for store in (first, second):
        store.close()


def test_limits_are_shared_so_that_no_broker_waits(tmp_path: Path) -> None:
    large, small = open_store(tmp_path / "a"), open_store(tmp_path / "b")
    put(large, 0, 300)
    put(small, 1000, 3)
    reader = stream(json.dumps({"a": str(tmp_path / "a"), "b": str(tmp_path / "b")}), maxRowsPerTrigger=20)
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    end = reader.latestOffset(start, limit)
    found = numbers(reader, start, end)
    assert len(found) <= 21
    assert 1000 in found
    for store in (large, small):
        store.close()


def test_available_now_ends_where_the_log_ended_when_it_began(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, 0, 30)
    reader = stream(tmp_path, maxBytesPerTrigger=1000)
    reader.prepareForTriggerAvailableNow()
    put(store, 30, 30)
    start, found = reader.initialOffset(), []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) is not start:
        found += numbers(reader, start, end)
        start = end
    assert found == list(range(30))
    store.close()


def test_files_that_retention_took_are_told_before_the_batch_is_planned(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, 0, 200)
    store.close()
    reader = stream(tmp_path, maxBytesPerTrigger=500)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(SourceError, match=r"^ORBITMQ_DATA_LOSS: store of .*starts at 4096; \d+ bytes are gone"):
        reader.latestOffset(end, ALL)
    lenient = stream(tmp_path, failOnDataLoss=False)
    found = numbers(lenient, end, lenient.latestOffset(end, ALL))
    assert found == list(range(found[0], 200))


def test_a_store_that_was_lost_is_told(tmp_path: Path) -> None:
    store = open_store(tmp_path / "one")
    put(store, 0, 100)
    store.close()
    reader = stream(json.dumps({"a": str(tmp_path / "one")}))
    end = reader.latestOffset(reader.initialOffset(), ALL)
    other = open_store(tmp_path / "two")
    put(other, 0, 5)
    other.close()
    moved = {"path": json.dumps({"a": str(tmp_path / "two")})}
    with pytest.raises(SourceError, match=r"^ORBITMQ_DATA_LOSS: .*it is another log"):
        stream(**moved).latestOffset(end, ALL)
    lenient = stream(**moved, failOnDataLoss=False)
    assert numbers(lenient, end, lenient.latestOffset(end, ALL)) == list(range(5))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scan": "index", "columns": ""}, "option scan: only the commit log"),
        ({"endingPhysicalOffset": "100"}, "option endingPhysicalOffset: a stream has no end"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(tmp_path: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(SourceError, match=f"^ORBITMQ_BAD_OPTION: {text}"):
        stream(tmp_path, **options)


@with_sources
def test_spark_runs_it_over_a_live_store(spark: SparkSession, tmp_path: Path) -> None:
    """Two runs with one checkpoint, and a broker that goes on between them."""
    store = open_store(tmp_path / "store")
    for first, count in ((0, 150), (150, 150)):
        put(store, first, count)
        frame = (
            spark.readStream.format("orbitmq-store")
            .options(maxBytesPerTrigger="20000", columns="body", splitBytes="4096", availableNow="true")
            .load(str(tmp_path / "store"))
        )
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "lake"))
        start_until_now(writer.option("checkpointLocation", str(tmp_path / "checkpoint"))).awaitTermination()
        rows = spark.read.parquet(str(tmp_path / "lake")).collect()
        assert sorted(int(row.body[:6]) for row in rows) == list(range(first + count))
    store.close()
