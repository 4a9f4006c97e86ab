"""What a task of the archive makes of the messages it reads, without Spark around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from orbitmq.errors import ConfigurationError, LakeError, SourceError
from orbitmq.lake import manifest
from orbitmq.lake.formats import DELTA, open_lake
from orbitmq.lake.lakes import Lake
from orbitmq.lake.manifest import LakeFile, QueueSpan
from orbitmq.lake.message_files import merged
from orbitmq.lake.storage import StorageLocation
from orbitmq.message.topics import TIMER_TOPIC
from orbitmq.pipeline.archive import ArchiveJob, published, source_options
from orbitmq.pipeline.archive_stream import REPORTS, ArchiveReader, ArchiveSource, split_options
from orbitmq.pipeline.lake_bodies import check_fit
from orbitmq.runtime.clock import SystemClock
from orbitmq.spark.options import read_options
from orbitmq.spark.stores.options import scan_options
from tests.support import golden
from tests.support.lakes import read_messages
from tests.support.stores import open_store, record

FIELDS = [{"name": "id", "type": "long"}, {"name": "city", "type": ["null", "string"]}]
ORDER = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
BODIES = [b'{"id": 1, "city": "Ulm"}', b'{"id": "two"}', b'{"id": 3, "zip": 89073}']


def written(lake: Path, **options: str) -> LakeFile:
    """The file that an archive of a store with these bodies writes, by what the job tells it."""
    if not (root := lake.parent / "store").exists():
        store = open_store(root)
        for body in BODIES:
            store.put(record(topic="Orders", body=body))
        store.close()
    (file,) = files(*tasks(lake, path=str(root), topics="Orders", **options))
    return file


def archived(lake: Path, **options: str) -> pa.Table:
    """The messages in it."""
    return read_messages(StorageLocation(str(lake)), written(lake, **options).path)


def opened(lake: Path) -> Lake:
    return open_lake(DELTA, StorageLocation(str(lake)), SystemClock().now_ms)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.select(["body", "value", "_rescued"]).to_pylist()
    return found


def stored(root: Path, *topics: str) -> None:
    """A store with three messages of each topic."""
    store = open_store(root)
    for topic in topics * 3:
        store.put(record(topic=topic))
    store.close()


def tasks(lake: Path, **options: str) -> tuple[ArchiveReader, list[InputPartition]]:
    """What an archive of a store does with all that is there, by what the job tells it."""
    told = {"input": "store", "lake": str(lake), **options}
    passed_on = {key.lower(): value for key, value in source_options(ArchiveJob.parse(told)).items()}  # as Spark does
    reader = ArchiveSource(passed_on).streamReader(REPORTS)
    assert isinstance(reader, ArchiveReader)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return reader, reader.partitions(start, end)


def spans(lake: Path, **options: str) -> list[QueueSpan]:
    """What queues it brings into files, from where to where."""
    return read(*tasks(lake, **options))


def read(reader: ArchiveReader, partitions: list[InputPartition]) -> list[QueueSpan]:
    return [span for file in files(reader, partitions) for span in file.queues]


def files(reader: ArchiveReader, partitions: list[InputPartition]) -> list[LakeFile]:
    reports = [batch for part in partitions for batch in reader.read(part)]
    return [file for batch in reports for file in manifest.decode(batch.column("report")[0].as_py()).files]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"orders", "pay-1"}),
        ({"topics": "pay-*,%DLQ%g"}, {"pay-1", "%DLQ%g"}),
        ({"topics": "orders,pay-*"}, {"orders", "pay-1"}),
    ],
)
def test_topics_of_a_store_are_chosen_like_those_of_brokers(
    tmp_path: Path, options: dict[str, str], expected: set[str]
) -> None:
    stored(tmp_path / "store", "orders", "pay-1", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", TIMER_TOPIC)
    found = spans(tmp_path / "lake", path=str(tmp_path / "store"), **options)
    assert {(span.topic, span.first, span.last) for span in found} == {(topic, 0, 2) for topic in expected}


def test_a_store_is_archived_under_its_brokers_name(tmp_path: Path) -> None:
    for host in ("one", "two"):
        stored(tmp_path / host / "store", "orders")
        given = {"path": str(tmp_path / host / "store"), "brokerName": f"broker-{host}"}
        (span,) = spans(tmp_path / "lake", **given)
        assert (span.broker, span.topic, span.first) == (f"broker-{host}", "orders", 0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"path": "/x/store", "nameServer": "n:1"},
            "option brokerName is missing; set it to the broker that owns /x/store",
        ),
        ({"path": '{"a": "/x"}', "brokerName": "a"}, "option brokerName is for a single directory"),
        ({"path": "/x", "startingOffsets": "group"}, "option startingOffsets needs input pull"),
        ({}, "option path is missing"),
    ],
)
def test_a_store_whose_broker_is_not_known_is_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises((ConfigurationError, SourceError), match=text):
        scan_options(split_options(source_options(ArchiveJob.parse({"input": "store", "lake": "x", **options})))[1])


def test_a_damaged_message_stops_the_archive_until_it_is_told_what_to_do(tmp_path: Path) -> None:
    told = {"path": str(golden.unpack("crash_crc", tmp_path)), "topics": "*"}
    whole = len(golden.manifest("crash_crc")["messages"])
    with pytest.raises(SourceError, match=r"ORBITMQ_CORRUPT_RECORD: .* does not match its CRC"):
        spans(tmp_path / "lake", **told)
    skipped = sum(span.rows for span in spans(tmp_path / "lake", **told, onCorruptRecord="skip"))
    unchecked = sum(span.rows for span in spans(tmp_path / "lake", **told, verifyCrc="false"))
    assert whole <= skipped == unchecked - 1


def test_a_file_that_retention_takes_under_a_task_is_named_or_left_out(tmp_path: Path) -> None:
    stored(tmp_path / "store", *["orders"] * 20)
    log = sorted((tmp_path / "store" / "commitlog").iterdir())
    given = {"path": str(tmp_path / "store")}
    strict, lenient = (tasks(tmp_path / "lake", **given, failOnDataLoss=each) for each in ("true", "false"))
    log[0].unlink()
    with pytest.raises(SourceError, match=rf"ORBITMQ_DATA_LOSS: .*{log[0].name} is gone"):
        read(*strict)
    assert not list((tmp_path / "lake").rglob("*.parquet")), "nothing is left behind"
    (span,) = read(*lenient)
    assert span.first > 0, "the file held the first ones"
    assert (span.last, span.rows) == (59, 60 - span.first)


def test_what_is_lost_and_damaged_is_treated_alike_whatever_is_read() -> None:
    told = {"failOnDataLoss": "false", "onCorruptRecord": "skip", "verifyCrc": "false"}
    given = ArchiveJob.parse({"nameServer": "n:1", "lake": "x", **told})
    read = read_options(split_options(source_options(given))[1])
    assert (read.fail_on_data_loss, read.on_corrupt_record, read.verify_crc) == (False, "skip", False)


def test_an_archive_may_begin_where_its_group_stands() -> None:
    told = {"nameServer": "n:1", "lake": "x", "archiveGroup": "Mine", "startingOffsets": "group"}
    assert read_options(split_options(source_options(ArchiveJob.parse(told)))[1]).group == "Mine"


def test_bodies_become_columns_beside_the_raw_ones(tmp_path: Path) -> None:
    table = archived(tmp_path / "lake", bodyFormat="json", bodySchema=ORDER)
    assert rows_of(table) == [
        {"body": BODIES[0], "value": {"id": 1, "city": "Ulm"}, "_rescued": None},
        {"body": BODIES[1], "value": {"id": None, "city": None}, "_rescued": '{"id": "two"}'},
        {"body": BODIES[2], "value": {"id": 3, "city": None}, "_rescued": '{"zip": 89073}'},
    ]


def test_a_body_that_does_not_fit_suspends_the_archive_or_is_left_out(tmp_path: Path) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(ORDER)
    place = "queue 0 of topic Orders on store at offset 1"
    with pytest.raises(SourceError, match=f'ORBITMQ_BAD_BODY: the body of {place} .*: id: "two" is no int64'):
        archived(tmp_path / "lake", bodyFormat="json", bodySchema=str(schema), bodyMode="failfast")
    assert not list((tmp_path / "lake").rglob("*.parquet")), "nothing is left behind"
    skipped = archived(tmp_path / "lake", bodyFormat="json", bodySchema=str(schema), bodyMode="dropmalformed")
    assert [row["value"]["id"] for row in rows_of(skipped)] == [1, 3]


def test_a_lake_stays_as_it_began(tmp_path: Path) -> None:
    """Engines that go by the schema of a table would not show what is in half of its files."""

    def check(folder: Path, **options: str) -> None:
        check_fit(ArchiveJob.parse(options), opened(folder / "lake"))

    columns = {"bodyFormat": "json", "bodySchema": ORDER}
    for folder, began, other in ((tmp_path / "raw", {}, columns), (tmp_path / "columns", columns, {})):
        check(folder, **other)  # it has not begun
        opened(folder / "lake").commit("query", 0, [written(folder / "lake", **began)])
        check(folder, **began)
        with pytest.raises(
            ConfigurationError, match=r"option bodyFormat is .*, but the lake was created .*, which cannot change"
        ):
            check(folder, **other)


RECORD = '{{"type": "record", "name": "Order", "fields": [{{"name": "id", "type": "{}"}}{}]}}'
PROTO = 'syntax = "proto3"; message Order {{ {} id = 1; {} }}'


@pytest.mark.parametrize(
    ("kind", "grown", "other"),
    [
        ("json", "id BIGINT, city STRING, zip INT", "id STRING"),
        ("avro", RECORD.format("long", ', {"name": "zip", "type": "int"}'), RECORD.format("string", "")),
        ("protobuf", PROTO.format("int64", "int32 zip = 2;"), PROTO.format("string", "")),
    ],
    ids=["json", "avro", "protobuf"],
)
def test_a_schema_of_any_format_is_compared_with_the_columns_of_the_lake(
    tmp_path: Path, kind: str, grown: str, other: str
) -> None:
    lake = opened(tmp_path / "lake")
    lake.commit("query", 0, [written(tmp_path / "lake", bodyFormat="json", bodySchema="id BIGINT, city STRING")])

    def check(schema: str) -> None:
        if kind == "protobuf":
            (tmp_path / "order.proto").write_text(schema)
            schema = str(tmp_path / "order.proto")
        check_fit(ArchiveJob.parse({"bodyFormat": kind, "bodySchema": schema}), lake)

    check(grown)
    with pytest.raises(LakeError, match=r"the field value\.id is int64 in the lake and string in the schema"):
        check(other)


def test_what_a_compaction_beside_it_does_is_not_counted_as_archived() -> None:
    def file(name: str, count: int) -> LakeFile:
        return LakeFile(path=f"messages/T/2026-01-01/{name}.parquet", topic="T", day="2026-01-01", rows=count, size=7)

    before = [file("archive-0-0-0-a", 10), file("archive-0-1-0-b", 20)]
    after = [file("compact-c", 35), file("archive-2-0-0-d", 5)]  # one that was published meanwhile is in it, too
    assert published(before, after) == {"messages": 10, "files": 1, "bytes": 7}
    assert published(before, before) == {"messages": 0, "files": 0, "bytes": 0}


def test_raw_is_the_default(tmp_path: Path) -> None:
    assert "value" not in archived(tmp_path / "lake").schema.names


def test_files_of_a_schema_that_has_grown_are_compacted_together(tmp_path: Path) -> None:
    grown = json.dumps({"type": "record", "name": "Order", "fields": [*FIELDS, {"name": "zip", "type": "int"}]})
    place = StorageLocation(str(tmp_path / "lake"))
    made = [written(tmp_path / "lake", bodyFormat="json", bodySchema=schema) for schema in (ORDER, grown)]
    (file,) = merged(place, made, "compact")
    values = [row["value"] for row in rows_of(read_messages(place, file.path)) if row["body"] == BODIES[2]]
    assert sorted(value["zip"] or 0 for value in values) == [0, 89073]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bodyFormat": "avro"}, "option bodySchema is missing"),
        ({"bodyFormat": "json"}, "option bodySchema is missing; an archive infers none"),
        ({"bodyFormat": "json", "bodySchema": "nowhere.avsc"}, "option bodySchema: .*nowhere.avsc"),
        ({"bodyFormat": "json", "bodySchema": "id INT, x"}, "option bodySchema: 'the end' after"),
        ({"bodyFormat": "xml"}, "option bodyFormat"),
        ({"bodyFormat": "json", "bodySchema": "id INT", "bodyMode": "xml"}, "option bodyMode"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(options: dict[str, str], text: str) -> None:
    with pytest.raises((ConfigurationError, SourceError), match=text):
        source_options(ArchiveJob.parse({"nameServer": "n:1", "lake": "x", **options}))
