"""An archive that stays sweeps its lake now and then. No job fails because it cannot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orbitmq.lake.formats import DELTA, open_lake
from orbitmq.lake.lakes import SWEEP_INTERVAL_MS, TASK_MS_MAX, Lake, Sweeper, Swept
from orbitmq.lake.manifest import LakeFile
from orbitmq.lake.message_files import LakeWriter
from orbitmq.lake.storage import StorageLocation
from orbitmq.lake.versions import KEEP_MS
from orbitmq.runtime.clock import ManualClock
from tests.support.lakes import batch, rows

AGE_MS = KEEP_MS + TASK_MS_MAX


def written(lake: Lake, clock: ManualClock) -> LakeFile:
    """A file that is written now, by the clock."""
    writer = LakeWriter(lake.place, "archive")
    writer.add(batch(rows("T", range(3))))
    (file,) = writer.finish()
    os.utime(lake.place.folder / file.path, ns=(clock.now_ms() * 1_000_000,) * 2)
    return file


def test_what_is_nobodys_goes_while_the_archive_goes_on(tmp_path: Path) -> None:
    clock = ManualClock()
    lake = open_lake(DELTA, StorageLocation(str(tmp_path)), clock.now_ms)
    lake.commit("query", 0, [written(lake, clock)])
    written(lake, clock)
    sweeper = Sweeper(lake, clock)
    seen = []
    for _ in range(0, AGE_MS + SWEEP_INTERVAL_MS, SWEEP_INTERVAL_MS // 2):
        sweeper.sweep_if_due()
        seen.append(sweeper.removed)
        clock.advance(SWEEP_INTERVAL_MS // 2)
    assert seen[: AGE_MS // (SWEEP_INTERVAL_MS // 2)] == [0] * 64, "no earlier than a day after a week"
    assert seen[-1] == 1
    assert len(list(tmp_path.rglob("*.parquet"))) == 1, "what is published stays"


def test_a_sweep_that_fails_is_told_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    lake = open_lake(DELTA, StorageLocation(str(tmp_path)), clock.now_ms)
    lake.commit("query", 0, [written(lake, clock)])
    written(lake, clock)
    sweeper = Sweeper(lake, clock)
    clock.advance(AGE_MS)
    with monkeypatch.context() as broken:
        broken.setattr(StorageLocation, "files", lambda *_: (tmp_path / "nothing").iterdir())
        sweeper.sweep_if_due()
        assert sweeper.sweep() == Swept(), "at the end of a job"
    assert caplog.text.count("event=sweep_failed error=") == 2
    sweeper.sweep_if_due()
    assert sweeper.removed == 0, "not at once"
    clock.advance(SWEEP_INTERVAL_MS)
    sweeper.sweep_if_due()
    assert sweeper.removed == 1


def test_files_that_cannot_be_removed_are_counted_and_stop_no_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    lake = open_lake(DELTA, StorageLocation(str(tmp_path)), clock.now_ms)
    lake.commit("query", 0, [written(lake, clock)])
    first, second, last = sorted(written(lake, clock).path for _ in range(3))
    sweeper = Sweeper(lake, clock)
    clock.advance(AGE_MS)
    remove = StorageLocation.remove

    def refused(place: StorageLocation, path: str) -> None:
        if path in (first, second):
            raise PermissionError("access denied")
        remove(place, path)

    with monkeypatch.context() as broken:
        broken.setattr(StorageLocation, "remove", refused)
        assert sweeper.sweep() == Swept([last], 0, 2)
    (logged,) = (record.getMessage() for record in caplog.records if "event=old_files" in record.getMessage())
    assert f"event=old_files_not_removed files=2 first={tmp_path}/{first} error=access denied; let this" in logged
    assert sweeper.sweep() == Swept([first, second], 0)
    assert sweeper.removed == 3
