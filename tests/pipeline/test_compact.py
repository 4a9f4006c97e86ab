"""A compaction is done when its files are published, whatever becomes of the old ones."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orbitmq.lake.lakes import TASK_MS_MAX
from orbitmq.lake.message_files import LakeWriter
from orbitmq.lake.storage import StorageLocation
from orbitmq.lake.versions import KEEP_MS
from orbitmq.pipeline import compact
from orbitmq.pipeline.compact import CompactJob
from orbitmq.pipeline.job import JobContext
from orbitmq.pipeline.progress import shown_on
from orbitmq.runtime.clock import SystemClock
from tests.support.lakes import batch, rows


def unused() -> SparkSession:
    raise AssertionError("there is nothing to merge")


def test_an_account_that_may_not_delete_compacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = CompactJob.parse({"lake": str(tmp_path)})
    lake = options.open()
    for offset in range(2):
        writer = LakeWriter(lake.place, "archive")
        writer.add(batch(rows("T", [offset])))
        files = writer.finish()
        if offset == 0:
            lake.commit("query", 0, files)
    old_ns = (SystemClock().now_ms() - KEEP_MS - TASK_MS_MAX) * 1_000_000
    os.utime(tmp_path / files[0].path, ns=(old_ns, old_ns))

    def refused(*_: object) -> None:
        raise PermissionError("access denied")

    monkeypatch.setattr(StorageLocation, "remove", refused)
    result = compact.JOB.run(JobContext(options, unused, shown_on(sys.stderr)))
    assert not result.failed
    assert (result.counts["old files removed"], result.counts["old files not removed"]) == (0, 1)
