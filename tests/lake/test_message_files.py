"""Messages become files by topic and day, in order, whole or not at all."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orbitmq.lake import message_files
from orbitmq.lake.layout import file_path, is_message_file
from orbitmq.lake.manifest import LakeFile, QueueSpan
from orbitmq.lake.message_files import LakeWriter, merged
from orbitmq.lake.storage import StorageLocation
from tests.support.lakes import DAY_MS, FIRST_DAY, FIRST_MS, SCHEMA, batch, read_messages, rows


@pytest.fixture
def place(tmp_path: Path) -> StorageLocation:
    return StorageLocation(str(tmp_path))


def ids(place: StorageLocation, file: LakeFile) -> list[str]:
    found: list[str] = read_messages(place, file.path)["msgId"].to_pylist()
    return found


def expected(topic: str, queue: int, offsets: range) -> list[str]:
    return [f"{topic}-broker-a-{queue}-{offset}" for offset in offsets]


def test_each_topic_has_a_file_of_its_own(place: StorageLocation) -> None:
    writer = LakeWriter(place, "archive")
    writer.add(batch(rows("Big", range(40, 80), queue=1), rows("Small", range(2)), rows("Tiny", range(3))))
    writer.add(batch(rows("Big", range(20)), rows("Big", range(80, 90), queue=1)))
    big, small, tiny = writer.finish()
    assert (big.topic, big.day, big.rows, big.size > 0) == ("Big", FIRST_DAY, 70, True)
    assert big.path.startswith(f"messages/Big/{FIRST_DAY}/archive-")
    assert (Path(place.root) / big.path).stat().st_size == big.size
    assert ids(place, big) == expected("Big", 0, range(20)) + expected("Big", 1, range(40, 90))
    assert big.queues == [
        QueueSpan(topic="Big", broker="broker-a", queue=0, first=0, last=19, rows=20),
        QueueSpan(topic="Big", broker="broker-a", queue=1, first=40, last=89, rows=50),
    ]
    assert (ids(place, small), ids(place, tiny)) == (expected("Small", 0, range(2)), expected("Tiny", 0, range(3)))


def test_days_are_parted(place: StorageLocation) -> None:
    writer = LakeWriter(place, "archive")
    midnight = FIRST_MS // DAY_MS * DAY_MS + DAY_MS
    writer.add(batch(rows("T", [1], stored_ms=midnight - 1), rows("T", [2], stored_ms=midnight)))
    first, second = writer.finish()
    assert [(file.topic, file.day, file.first_stored_ms) for file in (first, second)] == [
        ("T", "2023-11-14", midnight - 1),
        ("T", "2023-11-15", midnight),
    ]


def test_row_groups_are_bounded_and_nothing_is_held_beyond_the_limit(
    place: StorageLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_files, "GROUP_ROWS_MAX", 10)
    monkeypatch.setattr(message_files, "HELD_BYTES_MAX", 1000)
    writer = LakeWriter(place, "archive")
    for start in range(0, 30, 6):
        writer.add(batch(rows("A", range(start, start + 6)), rows("B", [start])))
        assert writer._held <= 1000
    files = writer.finish()
    found = sorted(name for file in files if file.topic == "A" for name in ids(place, file))
    assert found == sorted(expected("A", 0, range(30)))
    assert sum(file.rows for file in files if file.topic == "B") == 5


def test_thousands_of_small_topics_keep_no_files_open(place: StorageLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_files, "HELD_BYTES_MAX", 20_000)
    writer = LakeWriter(place, "archive")
    for start in range(0, 40, 4):
        writer.add(batch(*(rows(f"T{number}", range(start, start + 4)) for number in range(60))))
        assert writer._held <= 20_000
        assert not [share for share in writer._shares.values() if share.file is not None]
    files = writer.finish()
    assert 60 < len(files) < 60 * 10, "a topic waits for more"
    assert sorted(name for file in files for name in ids(place, file)) == sorted(
        name for number in range(60) for name in expected(f"T{number}", 0, range(40))
    )
    writer.abandon()
    assert not list(place.files()), "what is closed goes as well"


def test_large_messages_make_smaller_row_groups(place: StorageLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_files, "GROUP_BYTES_MAX", 4000)
    writer = LakeWriter(place, "archive")
    given = batch(rows("T", range(100)))
    writer.add(given)
    (file,) = writer.finish()
    with place.read(file.path) as source:
        assert pq.ParquetFile(source).num_row_groups == -(-given.nbytes // 4000) > 1
    assert ids(place, file) == expected("T", 0, range(100))


def test_what_cannot_be_removed_does_not_hide_why(place: StorageLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_files, "GROUP_ROWS_MAX", 2)
    writer = LakeWriter(place, "archive")
    writer.add(batch(rows("A", range(4)), rows("B", range(4))))
    kept, gone = sorted(found.path for found in place.files())
    remove = place.remove

    def failing(path: str) -> None:
        if path == kept:
            raise OSError("the disk has failed")
        remove(path)

    monkeypatch.setattr(place, "remove", failing)
    writer.abandon()
    assert [found.path for found in place.files()] == [kept]
    assert gone != kept


def test_a_task_that_fails_leaves_no_file(place: StorageLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_files, "GROUP_ROWS_MAX", 2)
    writer = LakeWriter(place, "archive")
    writer.add(batch(rows("A", range(4))))
    assert list(place.files())
    writer.abandon()
    assert not list(place.files())


def test_columns_are_told_apart_by_what_readers_do_with_them(place: StorageLocation) -> None:
    """Dictionaries are for what repeats, also inside the columns made of bodies; bounds for what is compared."""
    kind = pa.struct([("city", pa.string()), ("items", pa.list_(pa.string())), ("more", pa.map_("string", "string"))])
    value = pa.array([{"city": "Rome", "items": ["a", "b"], "more": [("k", "v")]}] * 20, kind)
    writer = LakeWriter(place, "archive")
    writer.add(batch(rows("T", range(20))).append_column("value", value))
    (file,) = writer.finish()
    with place.read(file.path) as source:
        group = pq.ParquetFile(source).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    indexed = {column.path_in_schema for column in columns if "RLE_DICTIONARY" in column.encodings}
    of_value = {
        f"value.{path}" for path in ("city", "items.list.element", "more.key_value.key", "more.key_value.value")
    }
    assert indexed == {"topic", "dt", "brokerName", "queueId", "storeTimestamp"} | of_value
    compared = {column.path_in_schema for column in columns if column.is_stats_set}
    assert compared == indexed | {"queueOffset", "msgId"}


def test_no_message_makes_no_file(place: StorageLocation) -> None:
    writer = LakeWriter(place, "archive")
    writer.add(batch())
    assert writer.finish() == []
    assert not list(place.files())


def written(place: StorageLocation, *offsets: range) -> list[LakeFile]:
    files = []
    for each in offsets:
        writer = LakeWriter(place, "archive")
        writer.add(batch(rows("T", each, queue=1), rows("T", each)))
        files += writer.finish()
    return files


def test_merging_brings_all_into_order(place: StorageLocation) -> None:
    (made,) = merged(place, written(place, range(5, 10), range(5)), "compact")
    assert (made.topic, made.day, made.rows) == ("T", FIRST_DAY, 20)
    assert ids(place, made) == expected("T", 0, range(10)) + expected("T", 1, range(10))


def test_merging_takes_what_other_engines_wrote(place: StorageLocation) -> None:
    """They omit the column that partitions, and store the same types in other forms."""
    (file,) = written(place, range(3))
    table = read_messages(place, file.path).drop_columns(["topic", "dt"])
    forms = {"msgId": pa.large_string(), "brokerName": pa.dictionary(pa.int32(), pa.string()),
             "body": pa.large_binary(), "storeTimestamp": pa.timestamp("ns")}  # fmt: skip
    for name, kind in forms.items():
        position = table.column_names.index(name)
        values = table[name].cast(pa.timestamp("us")) if name == "storeTimestamp" else table[name]
        table = table.set_column(position, name, values.cast(kind))
    with place.open("theirs.parquet") as sink:
        pq.write_table(table, sink)
    theirs = LakeFile(path="theirs.parquet", topic="T", day=FIRST_DAY, rows=6, size=1)
    (made,) = merged(place, [theirs, *written(place, range(3, 5))], "compact")
    assert ids(place, made) == expected("T", 0, range(5)) + expected("T", 1, range(5))
    found = read_messages(place, made.path)
    assert found.select(SCHEMA.names).schema.equals(SCHEMA)
    assert set(found["dt"].to_pylist()) == {date.fromisoformat(FIRST_DAY)}


def test_merging_nothing_makes_no_file(place: StorageLocation) -> None:
    with place.open("empty.parquet") as sink:
        pq.write_table(SCHEMA.empty_table(), sink)
    assert merged(place, [LakeFile(path="empty.parquet", topic="T", day=FIRST_DAY, rows=0, size=1)], "compact") == []


def test_merging_takes_no_more_into_memory_than_it_may(place: StorageLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    files = []
    for offsets in (range(5, 10), range(5)):
        writer = LakeWriter(place, "archive")
        writer.add(batch(rows("T", offsets)))
        files += writer.finish()
    monkeypatch.setattr(message_files, "PORTION_BYTES_MAX", 1)
    (made,) = merged(place, files, "compact")
    assert ids(place, made) == expected("T", 0, range(5, 10)) + expected("T", 0, range(5))
    assert made.queues == [QueueSpan(topic="T", broker="broker-a", queue=0, first=0, last=9, rows=10)]


@pytest.mark.parametrize("portion", [1, 1 << 30])
def test_merging_takes_bodies_of_an_older_schema(
    place: StorageLocation, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    monkeypatch.setattr(message_files, "PORTION_BYTES_MAX", portion)
    files = []
    for offset, value in enumerate(({"city": "Rome"}, {"city": "Bonn", "zip": 53111})):
        kind = pa.struct([("city", pa.string()), ("zip", pa.int64())][: len(value)])
        writer = LakeWriter(place, "archive")
        writer.add(batch(rows("T", [offset])).append_column("value", pa.array([value], kind)))
        files += writer.finish()
    (made,) = merged(place, files, "compact")
    assert read_messages(place, made.path)["value"].to_pylist() == [
        {"city": "Rome", "zip": None}, {"city": "Bonn", "zip": 53111}
    ]  # fmt: skip


@pytest.mark.parametrize("topic", ["Orders", "%DLQ%billing", "a|b"])
def test_paths_are_safe_in_file_systems_and_engines(topic: str) -> None:
    path = file_path(topic, "2026-01-31", "archive 1/2", "abc")
    assert re.fullmatch(r"messages/[A-Za-z0-9_.-]+/2026-01-31/archive-1-2-abc\.parquet", path)
    assert is_message_file(path)
    assert not is_message_file("topic=T/dt=2026-01-31/part-00000-abc.parquet"), "another engine's"
    assert not is_message_file("_delta_log/00000000000000000010.checkpoint.parquet")
