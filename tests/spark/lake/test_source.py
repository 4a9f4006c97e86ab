"""A lake is read as a topic is: its columns, their types, and only the files, row groups and fields that are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from orbitmq.errors import SourceError
from orbitmq.lake.formats import DELTA, FORMATS, open_lake
from orbitmq.lake.lakes import Lake
from orbitmq.lake.manifest import LakeFile
from orbitmq.lake.message_files import LakeWriter, merged
from orbitmq.lake.storage import StorageLocation
from orbitmq.runtime.clock import SystemClock
from orbitmq.spark.forms import read_schema
from orbitmq.spark.lake import files as lake_files
from orbitmq.spark.lake.files import conformed
from orbitmq.spark.lake.plan import wanted
from orbitmq.spark.lake.source import LakeReader, LakeSource
from orbitmq.spark.topic_names import topic_names
from tests.support.lakes import DAY_MS, FIRST_MS, batch, iceberg_table, rewritten, rows

VALUE = pa.struct([("id", pa.int64()), ("tags", pa.list_(pa.struct([("name", pa.string())])))])
GROWN = pa.struct([*VALUE, ("city", pa.string())])


def made(root: Path, kind: str = DELTA) -> Lake:
    return open_lake(kind, StorageLocation(str(root)), SystemClock().now_ms)


def publish(lake: Lake, number: int, *parts: list[dict[str, object]]) -> list[LakeFile]:
    writer = LakeWriter(lake.place, "archive")
    writer.add(batch(*parts))
    files = writer.finish()
    lake.commit("query", number, files)
    return files


def publish_values(lake: Lake, number: int, kind: pa.StructType, value: dict[str, object]) -> None:
    writer = LakeWriter(lake.place, "archive")
    held = batch(rows("orders", [number]))
    held = held.append_column("value", pa.array([value], kind)).append_column("_rescued", pa.array([f"r{number}"]))
    writer.add(held)
    lake.commit("query", number, writer.finish())


def reader(lake: Lake, schema: StructType | None = None, **options: object) -> LakeReader:
    source = LakeSource({"path": lake.place.root, **{name: str(value) for name, value in options.items()}})
    found = source.reader(source.schema() if schema is None else schema)
    assert isinstance(found, LakeReader)
    return found


def read(lake: Lake, schema: StructType | None = None, **options: object) -> list[dict[str, Any]]:
    """In the order of topic, queue and offset, if these are read."""
    found = reader(lake, schema, **options)
    tables = [pa.Table.from_batches([each]) for part in found.partitions() for each in found.read(part)]
    listed = pa.concat_tables(tables).to_pylist() if tables else []
    return sorted(listed, key=lambda row: [row.get(name) or 0 for name in ("queueId", "queueOffset")])


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """Topic orders on two days, and payments on the first, in one batch each day."""
    held = made(tmp_path / "lake", request.param)
    publish(held, 0, rows("orders", range(5)), rows("payments", range(3)))
    publish(held, 1, rows("orders", range(5, 9), stored_ms=FIRST_MS + DAY_MS))
    return held


def test_the_columns_are_those_of_a_topic(lake: Lake) -> None:
    source = LakeSource({"path": lake.place.root})
    assert source.schema() == read_schema((), "map")
    assert LakeSource({"path": lake.place.root, "columns": "keys,body"}).schema().names == ["keys", "body"]
    found = read(lake, topics="orders")
    assert [row["queueOffset"] for row in found] == list(range(9))
    first = found[0]
    assert (first["topic"], first["brokerName"], first["msgId"]) == ("orders", "broker-a", "orders-broker-a-0-0")
    assert (first["body"], dict(first["properties"])) == (b"0 " * 10, {"KEYS": "0"})
    assert first["storeTimestamp"] == datetime.fromtimestamp(FIRST_MS / 1000, UTC)
    assert first["tags"] is None, "the files do not have it"


def test_topics_are_named_or_starred(lake: Lake) -> None:
    assert {row["topic"] for row in read(lake)} == {"orders", "payments"}
    assert {row["topic"] for row in read(lake, topics="pay*")} == {"payments"}
    with pytest.raises(SourceError, match=r"ORBITMQ_TOPIC_NOT_FOUND: nothing of topic refunds .* orders, payments$"):
        reader(lake, topics="orders,refunds").partitions()
    assert read(lake, topics="ref*") == []


def test_a_period_opens_only_the_files_and_row_groups_that_may_hold_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = FIRST_MS + DAY_MS
    found = reader(lake, topics="orders", startingTimestamp=later)
    assert sum(len(part.files) for part in found.partitions()) == 1  # type: ignore[attr-defined]
    assert [row["queueOffset"] for row in read(lake, topics="orders", startingTimestamp=later)] == [5, 6, 7, 8]
    assert [row["queueOffset"] for row in read(lake, topics="orders", endingTimestamp=later)] == [0, 1, 2, 3, 4]
    groups: list[int] = []
    own = pq.ParquetFile.iter_batches

    def noted(self: pq.ParquetFile, *arguments: Any, row_groups: list[int], **more: Any) -> Iterator[pa.RecordBatch]:
        groups.extend(row_groups)
        return own(self, *arguments, row_groups=row_groups, **more)  # type: ignore[no-any-return]

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    assert read(lake, topics="orders", startingTimestamp=FIRST_MS + 1, endingTimestamp=later) == []
    assert groups == [], "the day is right, but no row group is"


def test_rows_of_a_period_are_cut_to_the_millisecond(tmp_path: Path) -> None:
    held = made(tmp_path / "lake")
    publish(held, 0, *(rows("orders", [offset], stored_ms=FIRST_MS + offset) for offset in range(6)))
    found = read(held, columns="queueOffset", startingTimestamp=FIRST_MS + 2, endingTimestamp=FIRST_MS + 5)
    assert found == [{"queueOffset": offset} for offset in (2, 3, 4)]


def test_a_version_is_read_as_it_was(lake: Lake) -> None:
    before = lake.snapshot()
    replaced = [file for file in lake.files() if file.topic == "orders"][:1]
    lake.replace(replaced, merged(lake.place, replaced, "compact"))
    publish(lake, 2, rows("orders", range(9, 12), stored_ms=FIRST_MS + DAY_MS))
    assert len(read(lake, topics="orders", columns="queueId,queueOffset")) == 12
    found = read(lake, topics="orders", columns="queueId,queueOffset", versionAsOf=before.version)
    assert [row["queueOffset"] for row in found] == list(range(9))
    newest = read(lake, topics="orders", columns="queueId,queueOffset", timestampAsOf=SystemClock().now_ms() + 60_000)
    assert len(newest) == 12
    with pytest.raises(SourceError, match="exclude each other"):
        reader(lake, versionAsOf=before.version, timestampAsOf=1)


def test_a_snapshot_of_iceberg_is_a_version(tmp_path: Path) -> None:
    held = made(tmp_path / "lake", "iceberg")
    publish(held, 0, rows("orders", range(5)))
    snapshot = iceberg_table(held).current_snapshot()
    publish(held, 1, rows("orders", range(5, 9)))
    assert snapshot is not None
    assert len(read(held, versionAsOf=snapshot.snapshot_id)) == 5
    assert len(read(held, timestampAsOf=snapshot.timestamp_ms)) == 5
    with pytest.raises(SourceError, match=r"ORBITMQ_LAKE_UNREADABLE: .* has no snapshot 17"):
        reader(held, versionAsOf=17).partitions()


def test_files_of_other_engines_are_read(lake: Lake) -> None:
    expected = read(lake)
    rewritten(lake)
    assert read(lake) == expected
    assert {row["topic"] for row in read(lake, topics="payments")} == {"payments"}


def test_bodies_that_are_columns_are_read_by_their_newest_type(tmp_path: Path) -> None:
    held = made(tmp_path / "lake")
    publish_values(held, 0, VALUE, {"id": 1, "tags": [{"name": "a"}]})
    publish_values(held, 1, GROWN, {"id": 2, "tags": None, "city": "Rome"})
    source = LakeSource({"path": held.place.root})
    assert source.schema()["value"].dataType.simpleString() == (
        "struct<id:bigint,tags:array<struct<name:string>>,city:string>"
    )
    assert "body" not in source.schema().names
    found = [(row["value"], row["_rescued"]) for row in read(held)]
    assert found == [
        ({"id": 1, "tags": [{"name": "a"}], "city": None}, "r0"), ({"id": 2, "tags": None, "city": "Rome"}, "r1"),
    ]  # fmt: skip
    part = StructType([StructField("value", StructType([StructField("city", StringType())]))])
    cities = [row["value"] for row in read(held, part)]  # in the order of the files
    assert sorted(cities, key=str) == [{"city": "Rome"}, {"city": None}]
    wrong = StructType([StructField("value", StructType([StructField("city", LongType())]))])
    with pytest.raises(SourceError, match=r"ORBITMQ_BAD_SCHEMA: column value\.city is string, not bigint"):
        read(held, wrong)


def test_bodies_are_parsed_where_the_lake_has_bytes(tmp_path: Path) -> None:
    held = made(tmp_path / "lake")
    publish(held, 0, [{**row, "body": b'{"id": %d}' % number} for number, row in enumerate(rows("orders", range(3)))])
    how = {"bodyFormat": "json", "bodySchema": "id BIGINT"}
    assert [row["value"] for row in read(held, **how)] == [{"id": number} for number in range(3)]
    publish(held, 1, rows("orders", [3]))
    with pytest.raises(SourceError, match="ORBITMQ_BAD_BODY: the body of queue 0 of topic orders on broker-a at off"):
        read(held, **how, bodyMode="failfast")
    assert len(read(held, **how, bodyMode="dropmalformed")) == 3
    with pytest.raises(SourceError, match="option bodySchema is missing; a lake infers none"):
        reader(held, bodyFormat="json")


def test_tasks_share_small_files_and_divide_large_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.lake.message_files.GROUP_ROWS_MAX", 500)
    held = made(tmp_path / "lake")
    for number in range(3):
        publish(held, number, rows("orders", [number]))
    assert [len(part.files) for part in reader(held).partitions()] == [3]  # type: ignore[attr-defined]
    publish(held, 3, rows("large", range(4000), size=1))
    monkeypatch.setattr("orbitmq.spark.lake.options.SPLIT_SIZE_MIN", 1)
    (large,) = (file for file in held.files() if file.topic == "large")
    monkeypatch.setattr("orbitmq.spark.lake.plan.OPEN_COST", 1)
    found = LakeReader(_small_splits(held, large.size // 3), read_schema(("queueOffset",), "map"))
    parts = found.partitions()
    assert len(parts) == 4
    offsets = [each for part in parts for rows_ in found.read(part) for each in rows_["queueOffset"].to_pylist()]
    assert sorted(offsets) == list(range(4000))
    assert max(rows_.num_rows for part in parts for rows_ in found.read(part)) <= 500


def _small_splits(lake: Lake, size: int) -> Any:
    from orbitmq.spark.lake.options import lake_options

    return lake_options({"path": lake.place.root, "topics": "large"}).replace(split_size=size)


def test_batches_have_a_limit_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = made(tmp_path / "lake")
    publish(held, 0, rows("orders", range(100), size=1000))
    monkeypatch.setattr(lake_files, "BATCH_BYTES_MAX", 20_000)
    found = reader(held)
    (part,) = found.partitions()
    sizes = [each.num_rows for each in found.read(part)]
    assert sum(sizes) == 100
    assert max(sizes) < 20


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ([StructField("colour", StringType())], "no column colour; the columns are topic, "),
        ([StructField("queueId", LongType())], "column queueId is int, nullable; cast it after the read"),
        ([StructField("size", IntegerType())], "a lake has no column size"),
        ([StructField("corrupt", StringType())], "a lake has no column corrupt"),
        ([StructField("properties", StringType())], "column properties of a lake is map<string,string>, not the sto"),
        ([StructField("value", StructType([StructField("a", LongType())]))], "the bodies of this lake are no columns"),
    ],
)
def test_a_schema_that_does_not_fit_is_told(tmp_path: Path, fields: list[StructField], told: str) -> None:
    held = made(tmp_path / "lake")
    publish(held, 0, rows("orders", range(2)))
    with pytest.raises(SourceError, match=f"^ORBITMQ_BAD_SCHEMA: {told}"):
        reader(held, StructType(fields))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "ORBITMQ_BAD_OPTION: no lake; pass its folder or URI to load"),
        ({"path": "nowhere"}, "ORBITMQ_LAKE_UNREADABLE: there is no lake at .*nowhere; archive something there first"),
        ({"path": "x", "lakeCatalog": "{"}, "ORBITMQ_BAD_OPTION: option lakeCatalog is not JSON"),
        (
            {"path": "x", "nameServer": "y:1"},
            "option nameServer is unknown; a lake has no brokers; use orbitmq.spark.h",
        ),
    ],
)
def test_what_is_no_lake_is_told(options: dict[str, str], told: str) -> None:
    with pytest.raises(SourceError, match=told):
        LakeSource(options).schema()


def test_a_version_that_is_none_is_told(lake: Lake) -> None:
    for version in ("seventeen", "/etc/passwd"):
        with pytest.raises(SourceError, match=r"ORBITMQ_LAKE_UNREADABLE: .* is no version"):
            reader(lake, versionAsOf=version).partitions()


def test_a_file_that_is_gone_is_told_with_the_remedy(lake: Lake) -> None:
    found = reader(lake)
    parts = found.partitions()
    for file in lake.files():
        lake.place.remove(file.path)
    with pytest.raises(SourceError, match=r"ORBITMQ_LAKE_UNREADABLE: .*\.parquet is gone: .*; load the lake again"):
        list(found.read(parts[0]))


def test_files_are_left_out_by_topic_and_day() -> None:
    def file(topic: str, day: str) -> LakeFile:
        return LakeFile(path=f"{topic}{day}", topic=topic, day=day, rows=1, size=1)

    files = [file(topic, day) for topic in ("A", "B", "") for day in ("2026-01-01", "2026-01-02", "2026-01-03", "")]
    second_ms = 1_767_312_000_000  # 2026-01-02T00:00Z
    found = wanted(files, topic_names("A"), second_ms, second_ms + 1)
    assert [file.path for file in found] == ["A2026-01-02", "A", "2026-01-02", ""], "what is unknown may hold it"
    assert len(wanted(files, topic_names(""), second_ms, -1)) == 9
    assert len(wanted(files, topic_names(""), -1, second_ms)) == 6


LISTS = pa.array([[{"a": 1}], None, [], [{"a": 2}, {"a": 3}]], pa.list_(pa.struct([("a", pa.int32())])))


@pytest.mark.parametrize("cut", [lambda each: each, lambda each: each.slice(1), lambda each: each.slice(3, 1)])
def test_values_get_the_fields_of_a_newer_type(cut: Callable[[pa.Array], pa.Array]) -> None:
    wider = pa.list_(pa.struct([("b", pa.string()), ("a", pa.int64())]))
    found = conformed(cut(LISTS), wider)
    found.validate(full=True)
    assert found.type == wider
    assert found.to_pylist() == [
        None if row is None else [{"b": None, "a": each["a"]} for each in row] for row in cut(LISTS).to_pylist()
    ]
    outer = pa.StructArray.from_arrays([LISTS], ["l"], mask=pa.array([False, True, False, False]))
    nested = conformed(cut(outer), pa.struct([("l", wider), ("m", pa.bool_())]))
    nested.validate(full=True)
    assert [row is None for row in nested.to_pylist()] == [row is None for row in cut(outer).to_pylist()]
    strings = pa.array(["x", None]).cast(pa.large_string()).dictionary_encode()
    assert conformed(strings, pa.string()).to_pylist() == ["x", None]
