"""Every kind of lake publishes a batch once, replaces files in one step, and lets nothing go that is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake import Field as DeltaField
from deltalake.table import TableFeatures
from pyiceberg.table import FileScanTask
from pyiceberg.types import StringType

from orbitmq.errors import ConfigurationError, LakeConflict, LakeError
from orbitmq.lake.delta import DeltaLake
from orbitmq.lake.formats import DELTA, FORMATS, existing_lake, formats_at, open_lake
from orbitmq.lake.iceberg import IcebergLake
from orbitmq.lake.lakes import TASK_MS_MAX, Lake, Swept, sweep
from orbitmq.lake.layout import is_message_file
from orbitmq.lake.manifest import LakeFile, Reached
from orbitmq.lake.message_files import LakeWriter, merged
from orbitmq.lake.storage import StorageLocation
from orbitmq.lake.versions import DAY_MS, HOUR_MS
from orbitmq.runtime.clock import SystemClock
from tests.support.lakes import (
    FIRST_DAY,
    as_engines_read,
    batch,
    current_version,
    iceberg_table,
    read_messages,
    rewritten,
    rows,
)

QUERY, OTHER = "6d7c0c1e-query", "other"


@pytest.fixture(params=FORMATS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Lake]:
    """Opens the same lake again, as another process would."""
    return lambda: open_lake(request.param, StorageLocation(str(tmp_path / "lake")), SystemClock().now_ms)


def written(lake: Lake, topic: str, offsets: range) -> list[LakeFile]:
    writer = LakeWriter(lake.place, "archive")
    writer.add(batch(rows(topic, offsets)))
    return writer.finish()


def ids(lake: Lake) -> list[str]:
    return sorted(name for file in lake.files() for name in read_messages(lake.place, file.path)["msgId"].to_pylist())


def expected(*offsets: int) -> list[str]:
    return sorted(f"T-broker-a-0-{offset}" for offset in offsets)


def test_a_batch_is_published_once(opened: Callable[[], Lake]) -> None:
    lake = opened()
    assert lake.files() == []
    assert lake.last_batch(QUERY) == -1
    assert lake.commit(QUERY, 0, written(lake, "T", range(3)))
    assert lake.commit(QUERY, 1, written(lake, "T", range(3, 5)))
    again = opened()
    assert again.last_batch(QUERY) == 1
    assert not again.commit(QUERY, 1, written(again, "T", range(3, 5))), "a repetition"
    assert ids(again) == expected(*range(5))
    assert again.last_batch(OTHER) == -1
    assert again.commit(OTHER, 0, written(again, "T", range(9, 10)))
    assert ids(opened()) == expected(*range(5), 9)


def test_files_are_told_as_they_are(opened: Callable[[], Lake]) -> None:
    lake = opened()
    (file,) = written(lake, "%DLQ%billing", range(3))
    lake.commit(QUERY, 0, [file])
    (found,) = opened().files()
    assert (found.path, found.topic, found.day, found.rows, found.size) == (
        file.path, "%DLQ%billing", file.day, 3, file.size,
    )  # fmt: skip


def test_files_are_replaced_in_one_step_by_one(opened: Callable[[], Lake]) -> None:
    lake, rival = opened(), opened()
    for number in range(3):
        lake.commit(QUERY, number, written(lake, "T", range(number, number + 1)))
    old = lake.files()
    lake.replace(old, merged(lake.place, old, "compact"))
    assert len(lake.files()) == 1
    assert ids(opened()) == expected(0, 1, 2)
    with pytest.raises(LakeConflict):
        rival.replace(old[:2], merged(lake.place, old[:2], "compact"))
    assert ids(opened()) == expected(0, 1, 2), "nothing is there twice"
    lake.commit(QUERY, 3, written(lake, "T", range(3, 4)))
    assert ids(opened()) == expected(0, 1, 2, 3)
    assert opened().last_batch(QUERY) == 3


def age(lake: Lake, days: int) -> None:
    """Let all files be so old, also those of the log of a Delta table."""
    changed_ns = (SystemClock().now_ms() - days * DAY_MS) * 1_000_000
    for found in lake.place.files():
        os.utime(lake.place.folder / found.path, ns=(changed_ns,) * 2)


def swept_messages(lake: Lake, now_ms: int) -> list[str]:
    return [path for path in sweep(lake, now_ms).removed if is_message_file(path)]


@pytest.mark.parametrize("days", [None, 2, 60])
def test_versions_are_readable_for_as_long_as_the_table_says(opened: Callable[[], Lake], days: int | None) -> None:
    lake = opened()
    for number in range(2):
        lake.commit(QUERY, number, written(lake, "T", range(number, number + 1)))
    if days is not None:
        lake.set_keep_ms(days * DAY_MS)
    keep_ms = opened().keep_ms()
    assert keep_ms == (days or 7) * DAY_MS
    age(lake, 100)
    old, version, before_ms = lake.files(), current_version(lake), SystemClock().now_ms()
    lake.replace(old, merged(lake.place, old, "compact"))
    after_ms = SystemClock().now_ms()
    for now_ms in (before_ms, before_ms - 20 + keep_ms):  # then it had just been replaced; times of files are coarse
        assert swept_messages(opened(), now_ms) == []
        assert sorted(as_engines_read(opened(), version)["msgId"].to_pylist()) == expected(0, 1)
    assert sweep(opened(), after_ms).kept >= len(old)
    assert swept_messages(opened(), after_ms + 1000 + keep_ms) == [file.path for file in old], "no reader is left"
    assert ids(opened()) == expected(0, 1)
    assert sorted(as_engines_read(opened())["msgId"].to_pylist()) == expected(0, 1)
    assert sweep(opened(), after_ms + 1000 + keep_ms).removed == [], "nothing is left over"
    if isinstance(lake, DeltaLake):
        log_seconds = {None: None, 2: 30 * 86_400, 60: 60 * 86_400}[days]
        properties = DeltaTable(lake.place.root).metadata().configuration
        assert properties.get("delta.logRetentionDuration") == (log_seconds and f"interval {log_seconds} seconds")


def test_files_of_no_batch_go_when_no_task_may_still_publish_them(opened: Callable[[], Lake]) -> None:
    lake = opened()
    lake.commit(QUERY, 0, written(lake, "T", range(1)))
    (orphan,) = written(lake, "T", range(7, 8))
    age(lake, 7)
    assert swept_messages(lake, SystemClock().now_ms() + HOUR_MS) == [], "versions are kept for 7 days"
    lake.set_keep_ms(DAY_MS)
    assert swept_messages(opened(), SystemClock().now_ms()) == [orphan.path]
    lake.set_keep_ms(HOUR_MS)
    (orphan,) = written(lake, "T", range(7, 8))
    assert swept_messages(lake, SystemClock().now_ms() + TASK_MS_MAX) == [], "a task may still be at it"
    assert swept_messages(lake, SystemClock().now_ms() + TASK_MS_MAX + HOUR_MS) == [orphan.path]
    assert ids(opened()) == expected(0)


def test_versions_that_another_engine_names_do_not_expire(tmp_path: Path) -> None:
    lake = open_lake("iceberg", StorageLocation(str(tmp_path)), SystemClock().now_ms)
    lake.commit(QUERY, 0, written(lake, "T", range(1)))
    version = current_version(lake)
    iceberg_table(lake).manage_snapshots().create_tag(version, "audited").commit()
    old = lake.files()
    age(lake, 100)
    lake.replace(old, merged(lake.place, old, "compact"))
    assert swept_messages(lake, SystemClock().now_ms() + 50 * DAY_MS) == []
    assert as_engines_read(lake, version)["msgId"].to_pylist() == expected(0)


def test_what_another_format_published_is_safe(opened: Callable[[], Lake]) -> None:
    """To a lake of another format every file would be an orphan."""
    lake = opened()
    assert formats_at(lake.place) == []
    with pytest.raises(LakeError, match=r"there is no lake at .*; archive something there first"):
        existing_lake(DELTA, lake.place, lambda: 0)
    lake.commit(QUERY, 0, written(lake, "T", range(3)))
    (kind,) = formats_at(lake.place)
    assert type(existing_lake(kind, lake.place, lambda: 0)) is type(lake)
    for other in set(FORMATS) - {kind}:
        with pytest.raises(LakeError, match=f"is a lake of format {kind}, not {other}; use --lake-format {kind}"):
            open_lake(other, lake.place, lambda: 0)


def test_nothing_is_swept_where_nothing_is_published(opened: Callable[[], Lake]) -> None:
    """The catalog may be the wrong one."""
    lake = opened()
    written(lake, "T", range(3))
    assert sweep(lake, SystemClock().now_ms() + 50 * DAY_MS) == Swept()


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unknown lake format 'orc'; the formats are delta, iceberg"):
        open_lake("orc", StorageLocation(str(tmp_path)), lambda: 0)


# ------------------------------------------------------------------------------------------------------ other writers


def test_a_table_that_another_engine_has_rewritten_is_still_the_lake(opened: Callable[[], Lake]) -> None:
    lake = opened()
    for number in range(2):
        both = [file for topic in ("T", "%DLQ%a|b") for file in written(lake, topic, range(number, number + 1))]
        lake.commit(QUERY, number, both)
    before = {file.path for file in lake.files()}
    rewritten(lake)
    lake = opened()
    assert [(file.topic, file.day, file.rows) for file in lake.files()] == [
        ("%DLQ%a|b", FIRST_DAY, 2), ("T", FIRST_DAY, 2)
    ], "their names say nothing"  # fmt: skip
    assert not before & {file.path for file in lake.files()}
    assert lake.last_batch(QUERY) == 1
    assert not lake.commit(QUERY, 1, written(lake, "T", range(1, 2)))
    assert lake.commit(QUERY, 2, written(lake, "T", range(2, 3)))
    for topic, rows_of_it in (("T", 3), ("%DLQ%a|b", 2)):
        old = [file for file in lake.files() if file.topic == topic]
        (made,) = merged(lake.place, old, "compact")
        assert made.rows == rows_of_it
        lake.replace(old, [made])
    theirs = {file.path for file in lake.place.files() if not file.path.startswith("messages/")}
    assert sweep(lake, SystemClock().now_ms() + 50 * DAY_MS).removed
    assert ids(opened()) == sorted([*expected(0, 1, 2), *(f"%DLQ%a|b-broker-a-0-{offset}" for offset in range(2))])
    left = {file.path for file in lake.place.files()}
    assert {path for path in theirs if path.endswith("c000.zstd.parquet")} <= left, "their files are theirs to remove"


def changed_by_another(lake: Lake, name: str) -> None:
    if isinstance(lake, DeltaLake):
        DeltaTable(lake.place.root).alter.add_columns(DeltaField(name, "string"))
        return
    with iceberg_table(lake).update_schema() as update:
        update.add_column(name, StringType())


def test_a_change_that_meets_another_is_made_again(opened: Callable[[], Lake], monkeypatch: pytest.MonkeyPatch) -> None:
    lake, rival = opened(), opened()
    for number in range(2):
        lake.commit(QUERY, number, written(lake, "T", range(number, number + 1)))
    look, rivals = lake._table, ["theirs"]  # type: ignore[attr-defined]

    def interrupted() -> object:
        found = look()
        if rivals:
            changed_by_another(rival, rivals.pop())
        return found

    monkeypatch.setattr(lake, "_table", interrupted)
    assert lake.commit(QUERY, 2, written(lake, "T", range(2, 3)))
    old = lake.files()
    made = merged(lake.place, old, "compact")
    rivals.append("again")
    lake.replace(old, made)
    assert not rivals
    assert ids(opened()) == expected(0, 1, 2)
    assert len(opened().files()) == 1


def test_rows_that_are_marked_as_deleted_do_not_come_back(tmp_path: Path) -> None:
    delta, iceberg = (open_lake(kind, StorageLocation(str(tmp_path / kind)), lambda: 0) for kind in FORMATS)
    for lake in (delta, iceberg):
        lake.commit(QUERY, 0, written(lake, "T", range(3)))
    DeltaTable(delta.place.root).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    with pytest.raises(LakeError, match="has the feature deletionVectors, which the jobs cannot read; purge"):
        delta.files()
    assert isinstance(iceberg, IcebergLake)
    held = iceberg_table(iceberg)
    (task,) = held.scan().plan_files()
    assert iceberg._file(held, task).is_whole
    assert not iceberg._file(held, FileScanTask(task.file, delete_files={task.file})).is_whole


# ------------------------------------------------------------------------------------------------------------ schemas


def with_values(lake: Lake, offset: int, value: dict[str, object], kind: pa.StructType) -> list[LakeFile]:
    writer = LakeWriter(lake.place, "archive")
    writer.add(batch(rows("T", [offset])).append_column("value", pa.array([value], kind)))
    return writer.finish()


def values(lake: Lake) -> list[dict[str, object]]:
    """In the order of the offsets."""
    found: list[dict[str, object]] = as_engines_read(lake).sort_by("queueOffset")["value"].to_pylist()
    return found


CITY = pa.field("city", pa.string())
ITEM, PRICED = (pa.struct([("name", pa.string()), ("price", pa.float64())][:count]) for count in (1, 2))


def test_fields_that_bodies_get_are_columns_of_the_table(opened: Callable[[], Lake]) -> None:
    lake = opened()
    first = pa.struct([CITY, ("items", pa.list_(ITEM))])
    grown = pa.struct([CITY, ("items", pa.list_(PRICED)), ("amount", pa.int64())])
    lake.commit(QUERY, 0, with_values(lake, 0, {"city": "Rome", "items": [{"name": "a"}]}, first))
    value = {"city": "Bonn", "items": [{"name": "b", "price": 2.5}], "amount": 7}
    assert lake.commit(QUERY, 1, with_values(lake, 1, value, grown))
    assert lake.commit(QUERY, 2, with_values(lake, 2, {"city": "Ulm", "items": []}, first)), "an older archive"
    schema = opened().schema()
    assert schema is not None
    assert schema.field("value").type == grown
    read = values(opened())
    assert read == [
        {"city": "Rome", "items": [{"name": "a", "price": None}], "amount": None}, value,
        {"city": "Ulm", "items": [], "amount": None},
    ]  # fmt: skip
    old = opened().files()
    lake.replace(old, merged(lake.place, old, "compact"))
    assert values(opened()) == read


def test_small_numbers_keep_their_column(opened: Callable[[], Lake]) -> None:
    """Iceberg has none, and stores them as larger ones."""
    kind = pa.struct([("small", pa.int8()), ("short", pa.int16()), ("list", pa.list_(pa.int16()))])
    sent: list[dict[str, object]] = [{"small": n, "short": 300 + n, "list": [n]} for n in range(2)]
    for number, value in enumerate(sent):
        assert opened().commit(QUERY, number, with_values(opened(), number, value, kind))
    assert values(opened()) == sent


def test_types_that_grow_are_wider_columns_or_refused_by_name(opened: Callable[[], Lake]) -> None:
    lake = opened()
    narrow, wide = (pa.struct([("amount", kind)]) for kind in (pa.int32(), pa.int64()))
    lake.commit(QUERY, 0, with_values(lake, 0, {"amount": 1}, narrow))
    late = with_values(lake, 1, {"amount": 1 << 40}, wide)
    refused = "the field value.amount is {} in the lake and {} in the schema of the bodies; keep its type"
    if lake.widens:
        lake.commit(QUERY, 1, late)
        assert values(opened()) == [{"amount": 1}, {"amount": 1 << 40}]
        with pytest.raises(LakeError, match=refused.format("int64", "int32")):
            lake.commit(QUERY, 2, with_values(lake, 2, {"amount": 1}, narrow))
    else:
        with pytest.raises(LakeError, match=refused.format("int32", "int64")):
            lake.commit(QUERY, 1, late)
        assert values(opened()) == [{"amount": 1}], "nothing of the batch is there"


# ----------------------------------------------------------------------------------------------------------- progress


def point(topic: str, queue: int, following: int, broker: str = "broker-a") -> Reached:
    return Reached(topic=topic, broker=broker, queue=queue, next=following)


def test_a_version_tells_how_far_its_queues_are_archived(opened: Callable[[], Lake]) -> None:
    lake = opened()
    lake.commit(QUERY, 0, written(lake, "T", range(3)), [point("T", 0, 3), point("T", 10, 7), point("U", 0, 9)])
    first = lake.snapshot()
    more = [point("T", 0, 5), point("T", 2, 1, "broker-b/x")]
    lake.commit(QUERY, 1, written(lake, "T", range(3, 5)), more)
    assert not lake.commit(QUERY, 1, written(lake, "T", range(3, 5)), more), "a repetition"
    second = opened().snapshot()
    for known in (lake, opened()):
        assert known.reached(first.version, {"T"}) == [point("T", 0, 3), point("T", 10, 7)]
        assert known.reached(second.version, {"T"}) == [point("T", 0, 5), point("T", 10, 7), more[1]]
        assert known.reached(second.version, {"U", "V"}) == [point("U", 0, 9)]
        assert known.reached(first.version, {"V"}) == []
    assert [file.rows for file in first.files] == [3]
    assert sorted(file.rows for file in opened().snapshot(second.version).files) == [2, 3]
    assert first.schema == second.schema == lake.schema()


def test_a_checkpoint_that_is_older_than_the_lake_is_refused(opened: Callable[[], Lake]) -> None:
    """It may have been restored from a backup. Its next batches are larger, as more messages have arrived."""
    lake = opened()
    both = [point("T", 0, 3), point("U", 0, 3)]
    lake.commit(QUERY, 5, written(lake, "T", range(3)) + written(lake, "U", range(3)), both)
    lake.commit(QUERY, 6, written(lake, "T", range(3, 5)), [point("T", 0, 5)])
    before = opened().files()
    for number, points in (
        (6, [point("T", 0, 9)]),
        (6, [point("T", 0, 5), point("U", 0, 9)]),
        (6, [point("T", 0, 5), point("T", 1, 1)]),
        (5, [point("T", 0, 9)]),
        (5, both),
    ):
        refused = (
            f"already has batch 6 of this checkpoint, and cannot add its batch {number}: .* use a new --checkpoint"
        )
        with pytest.raises(LakeError, match=refused):
            opened().commit(QUERY, number, written(lake, "T", range(3, 9)), points)
    assert not opened().commit(QUERY, 6, written(lake, "T", range(3, 5)), [point("T", 0, 5)]), "a repetition"
    assert opened().files() == before
    assert opened().commit(OTHER, 0, written(lake, "T", range(5, 9)), [point("T", 0, 9)]), "the new checkpoint"


def test_progress_outlives_what_others_do_to_the_table(opened: Callable[[], Lake]) -> None:
    lake = opened()
    for number in range(2):
        file = written(lake, "T", range(number, number + 1))
        lake.commit(QUERY, number, file, [point("T", number, number + 1)])
    old = lake.files()
    lake.replace(old, merged(lake.place, old, "compact"))
    rewritten(lake)
    if isinstance(lake, DeltaLake):
        table = DeltaTable(lake.place.root)
        table.create_checkpoint()
    sweep(lake, SystemClock().now_ms() + 50 * DAY_MS)
    lake.commit(QUERY, 2, written(lake, "T", range(2, 3)), [point("T", 0, 3)])
    assert opened().reached(opened().snapshot().version, ["T"]) == [point("T", 0, 3), point("T", 1, 2)]


def test_a_queue_that_starts_again_is_as_far_as_its_last_batch(opened: Callable[[], Lake]) -> None:
    """A topic that was made again has lower offsets than the one before it."""
    lake = opened()
    for number, following in enumerate((900, 3)):
        lake.commit(QUERY, number, written(lake, "T", range(number, number + 1)), [point("T", 0, following)])
    assert lake.reached(lake.snapshot().version, ["T"]) == [point("T", 0, 3)]


def test_a_version_that_does_not_exist_is_told(opened: Callable[[], Lake]) -> None:
    lake = opened()
    with pytest.raises(LakeError, match="does not exist yet"):
        lake.snapshot()
    lake.commit(QUERY, 0, written(lake, "T", range(3)))
    with pytest.raises(LakeError, match=r"cannot be opened at version 999|has no snapshot 999"):
        lake.snapshot("999")
    with pytest.raises(LakeError, match=r"is no version of an? "):
        lake.snapshot("yesterday")
    assert lake.snapshot(lake.version_at(SystemClock().now_ms() + 60_000)).files == lake.files()
    if isinstance(lake, IcebergLake):
        with pytest.raises(LakeError, match="does not tell how far topics are archived"):
            lake.reached(lake.version_at(SystemClock().now_ms() + 60_000), ["T"])
