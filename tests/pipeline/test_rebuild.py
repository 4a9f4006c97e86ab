"""What several processes rebuild is byte for byte what one rebuilds, and what a broker had written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orbitmq.broker.schedule import entry_codes
from orbitmq.errors import StoreError
from orbitmq.message.delay import DEFAULT_DELAY_LEVELS, parse_delay_levels
from orbitmq.pipeline.command import main
from orbitmq.pipeline.executors import Executors
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.options import StoreOptions
from orbitmq.store.tools import portions
from orbitmq.store.tools import rebuild as rebuild_module
from orbitmq.store.tools.rebuild import Rebuilt, Workers, rebuild
from tests.store.tools.test_rebuild import contents
from tests.support import golden
from tests.support.stores import open_store, record

CASES = ["plain", "cqext", "lmq", "transaction", "expired", "crash_crc", "crash_rebuild"]


def remade(root: Path, workers: Workers | None) -> tuple[Rebuilt, dict[str, bytes], dict[str, float]]:
    config = golden.manifest(root.parent.name)["store_config"]
    codes = entry_codes(parse_delay_levels(DEFAULT_DELAY_LEVELS))
    options = StoreOptions.parse({key: str(value).lower() for key, value in config.items()})
    made = rebuild(root, options, codes, ManualClock(), workers=workers)
    times = {str(path.relative_to(root)): path.stat().st_mtime for path in (root / "consumequeue").rglob("*/*/*")}
    return made, contents(root), times


def test_executors_make_what_one_process_makes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild_module, "BUNDLE_ENTRIES", 500)  # several pieces of queues, too
    executors = Executors(spark.sparkContext, StoreError)
    for case in CASES:
        root = golden.unpack(case, tmp_path / "a" / case)
        other = golden.unpack(case, tmp_path / "b" / case)
        assert remade(root, executors) == remade(other, None), case
        assert not (root / "rebuild").exists()


def test_index_files_that_follow_one_another_are_as_a_broker_writes_them(spark: SparkSession, tmp_path: Path) -> None:
    index = {"message_index_enable": True, "max_hash_slot_num": 20, "max_index_num": 50}
    store = open_store(tmp_path / "store", ManualClock(1_700_000_000_000), **index)
    for number in range(120):
        store.put(record(b"%d" % number, "AB"[number % 2], number % 3, b"KEYS\x01a%d b%d" % (number, number % 7)))
    store.close()
    before = contents(tmp_path / "store")
    assert len([name for name in before if name.startswith("index")]) == 5
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    options = StoreOptions(mapped_file_size_consume_queue=200)
    codes = entry_codes(parse_delay_levels(DEFAULT_DELAY_LEVELS))
    made = rebuild(tmp_path / "store", options, codes, ManualClock(), workers=Executors(spark.sparkContext, StoreError))
    assert contents(tmp_path / "store") == before
    assert (made.messages, made.index_entries, made.stopped_by) == (120, 240, None)


def test_the_job_says_what_it_made(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = golden.unpack("crash_crc", tmp_path)
    assert main(["rebuild", "--path", str(root), "--dry-run"]) == 0
    assert "crashed" in capsys.readouterr().out
    assert main(["rebuild", "--path", str(root)]) == 1
    told = capsys.readouterr()
    assert "messages        578" in told.out
    assert "where it is damaged: the body of a message" in told.err
    assert main(["rebuild"]) == 2
    assert "option path is missing" in capsys.readouterr().err


def test_paths_may_begin_with_the_home_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden.unpack("crash_crc", tmp_path)
    (root / "commitlog").rename(tmp_path / "log")
    monkeypatch.setenv("HOME", str(tmp_path))
    given = ["--path", f"~/{root.relative_to(tmp_path)}", "--store-path-commit-log", "~/log"]
    assert main(["rebuild", *given, "--dry-run"]) == 0
    assert "crashed" in capsys.readouterr().out


def test_an_error_in_a_task_is_told_in_a_line_and_leaves_the_old(spark: SparkSession, tmp_path: Path) -> None:
    root = golden.unpack("plain", tmp_path)
    before = contents(root)

    def fail(argument: object) -> object:
        raise StoreError(f"{argument}: is not there")

    def workers(function: object, arguments: list[object]) -> object:
        return Executors(spark.sparkContext, StoreError)(fail, arguments)

    with pytest.raises(StoreError, match=r"^\d+: is not there$"):
        rebuild(root, StoreOptions(), (), ManualClock(), workers=workers)  # type: ignore[arg-type]
    assert contents(root) == before
    assert not (root / "rebuild").exists()


def test_a_part_that_another_machine_wrote_elsewhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="every process must see the directory under this name"):
        portions._read(portions.Span(tmp_path / "parts" / "0", 0, 3), 20)
