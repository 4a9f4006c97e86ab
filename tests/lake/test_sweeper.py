"""An archive that stays sweeps its lake now and then, and goes on when it cannot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orbitmq.lake.formats import DELTA, open_lake
from orbitmq.lake.lakes import SWEEP_INTERVAL_MS, TASK_MS_MAX, Lake, Sweeper
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
        broken.setattr(StorageLocation, "remove", lambda *_: (tmp_path / "nothing").unlink())
        sweeper.sweep_if_due()
    assert "event=sweep_failed error=" in caplog.text
    sweeper.sweep_if_due()
    assert sweeper.removed == 0, "not at once"
    clock.advance(SWEEP_INTERVAL_MS)
    sweeper.sweep_if_due()
    assert sweeper.removed == 1
