"""Every kind of lake publishes a batch once, replaces files in one step, and lets nothing go that is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError, LakeConflict, LakeError
from orbitmq.pipeline.lake import parquet_log
from orbitmq.pipeline.lake.formats import FORMATS, PARQUET, existing_lake, formats_at, open_lake
from orbitmq.pipeline.lake.lakes import GRACE_MS, ORPHAN_AGE_MS, Lake, sweep
from orbitmq.pipeline.lake.manifest import LakeFile
from orbitmq.pipeline.lake.message_files import LakeWriter, merged
from orbitmq.pipeline.lake.parquet_log import ParquetLake
from orbitmq.pipeline.lake.storage import StorageLocation
from orbitmq.runtime.clock import SystemClock
from tests.support.lakes import batch, read_messages, rows

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
    assert not again.commit(QUERY, 0, written(again, "T", range(3)))
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
    lake.replace(old, merged(lake.place, [file.path for file in old], "compact"))
    assert len(lake.files()) == 1
    assert ids(opened()) == expected(0, 1, 2)
    with pytest.raises(LakeConflict):
        rival.replace(old[:2], merged(lake.place, [file.path for file in old[:2]], "compact"))
    assert ids(opened()) == expected(0, 1, 2), "nothing is there twice"
    lake.commit(QUERY, 3, written(lake, "T", range(3, 4)))
    assert ids(opened()) == expected(0, 1, 2, 3)
    assert opened().last_batch(QUERY) == 3


def test_what_is_nobodys_is_swept_and_what_is_read_stays(opened: Callable[[], Lake]) -> None:
    lake = opened()
    now_ms = SystemClock().now_ms()
    for number in range(2):
        lake.commit(QUERY, number, written(lake, "T", range(number, number + 1)))
    old = lake.files()
    lake.replace(old, merged(lake.place, [file.path for file in old], "compact"))
    (orphan,) = written(lake, "T", range(7, 8))
    assert sweep(lake, now_ms) == [], "a task may still be at it"
    for found in lake.place.files():
        os.utime(lake.place.folder / found.path, ns=((now_ms - ORPHAN_AGE_MS - 1) * 1_000_000,) * 2)
    assert sweep(opened(), now_ms) == [orphan.path]
    later_ms = now_ms + GRACE_MS + 60_000
    assert sweep(opened(), later_ms) == [file.path for file in old], "no reader from before is left"
    assert ids(opened()) == expected(0, 1)


def test_what_another_format_published_is_safe(opened: Callable[[], Lake]) -> None:
    """To a lake of another format every file would be an orphan."""
    lake = opened()
    assert formats_at(lake.place) == []
    with pytest.raises(LakeError, match=r"there is no lake at .*; archive something there first"):
        existing_lake(PARQUET, lake.place, lambda: 0)
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
    assert sweep(lake, SystemClock().now_ms() + 2 * ORPHAN_AGE_MS) == []


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unknown lake format 'orc'; the formats are parquet, delta, iceberg"):
        open_lake("orc", StorageLocation(str(tmp_path)), lambda: 0)


def test_plain_parquet_wants_a_folder() -> None:
    with pytest.raises(LakeError, match="use the format delta or iceberg"):
        open_lake(PARQUET, StorageLocation("s3://bucket/lake"), lambda: 0)


def test_a_log_of_a_later_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_orbit_log").mkdir()
    (tmp_path / "_orbit_log" / "lake.json").write_text('{"format": 2}')
    with pytest.raises(LakeError, match="a later format"):
        open_lake(PARQUET, StorageLocation(str(tmp_path)), lambda: 0)


@pytest.fixture
def folding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], ParquetLake]:
    """Opens a lake whose log is folded when it has four entries."""
    monkeypatch.setattr(parquet_log, "FOLDED_FROM", 4)
    return lambda: ParquetLake(StorageLocation(str(tmp_path)), lambda: 0)


def entries(lake: ParquetLake) -> dict[str, int]:
    log = lake.place.folder / "_orbit_log"
    return {kind: len(list(log.glob(f"{kind}/**/*.json"))) for kind in ("batches", "changes", "folds")}


def commit_each(lake: ParquetLake, numbers: range) -> None:
    for number in numbers:
        assert lake.commit(QUERY, number, written(lake, "T", range(number, number + 1)))


def compact(lake: ParquetLake, count: int) -> None:
    old = [file for file in lake.files() if file.rows < count][:count]
    lake.replace(old, merged(lake.place, [file.path for file in old], "compact"))


def test_a_long_log_is_folded_and_its_entries_go_an_hour_later(folding: Callable[[], ParquetLake]) -> None:
    lake, now_ms = folding(), 1_700_000_000_000
    commit_each(lake, range(4))
    compact(lake, 2)
    kept = lake.settle(now_ms)
    assert entries(lake) == {"batches": 4, "changes": 1, "folds": 1}, "others may have looked before"
    assert lake.settle(now_ms) == kept
    assert ids(folding()) == expected(*range(4))
    commit_each(folding(), range(4, 7))
    compact(folding(), 4)
    folding().settle(now_ms + GRACE_MS - 1)
    assert entries(lake)["folds"] == 1, "somebody may be at work since before the first"
    folding().settle(now_ms + GRACE_MS)
    assert entries(lake) == {"batches": 3, "changes": 1, "folds": 2}
    commit_each(folding(), range(7, 11))
    folding().settle(now_ms + 2 * GRACE_MS)
    assert entries(lake) == {"batches": 4, "changes": 0, "folds": 2}
    again = folding()
    assert again.last_batch(QUERY) == 10
    assert not again.commit(QUERY, 0, written(again, "T", range(1))), "it was folded, and is still published"
    assert not again.commit(QUERY, 10, written(again, "T", range(1)))
    assert (again.last_batch(OTHER), again.commit(OTHER, 0, written(again, "T", range(20, 21)))) == (-1, True)
    compact(again, 6)
    assert ids(folding()) == expected(*range(11), 20)


def test_who_reads_while_the_log_is_folded_misses_nothing(
    folding: Callable[[], ParquetLake], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, rival, now_ms = folding(), folding(), 1_700_000_000_000
    commit_each(lake, range(4))
    listed, times = lake._changes, []

    def interrupted() -> list[Path]:
        if not times:
            times.append(1)
            rival.settle(now_ms)
            commit_each(rival, range(4, 8))
            rival.settle(now_ms + GRACE_MS)
            assert entries(lake) == {"batches": 4, "changes": 0, "folds": 2}
        return listed()

    monkeypatch.setattr(lake, "_changes", interrupted)
    assert ids(lake) == expected(*range(8))
    assert times


def test_a_damaged_log_entry_is_named(tmp_path: Path) -> None:
    lake = open_lake(PARQUET, StorageLocation(str(tmp_path)), lambda: 0)
    lake.commit(QUERY, 0, written(lake, "T", range(1)))
    (entry,) = (tmp_path / "_orbit_log" / "batches" / QUERY).iterdir()
    entry.write_bytes(entry.read_bytes()[:-3])
    with pytest.raises(LakeError, match=entry.name):
        lake.files()
