"""A store that is only read, beside a broker or without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import StoreDamaged, StoreError
from orbitmq.store.files import Files, MappedFile
from orbitmq.store.reader import StoreReader
from tests.support.stores import open_store, record


def test_a_live_store_is_read_without_disturbing_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(40):
        store.put(record(b"%d" % number, queue_id=number % 2, properties=b"TAGS\x01A"))
    with StoreReader(tmp_path) as reader:
        assert reader.queues() == [("T", 0), ("T", 1)]
        queue = reader.queue("T", 1)
        assert (queue.min_offset, queue.max_offset) == (0, 20)
        assert [unit.body for unit in reader.units("T", 1, 3, 6)] == [b"7", b"9", b"11"]
        assert [unit.body for unit in reader.log_units()] == [b"%d" % number for number in range(40)]
        place, size, _ = next(queue.entries(19, 20))
        held = reader.unit(place, size)
    assert held is not None
    assert b"39" in bytes(held)
    assert store.put(record()).queue_offset == 20
    store.close()


def test_what_is_not_there_is_empty(tmp_path: Path) -> None:
    with StoreReader(tmp_path) as reader:
        assert reader.queues() == []
        assert reader.queue("T", 0).max_offset == 0
        assert list(reader.log_units()) == []
        assert reader.unit(0, 10) is None


def test_a_queue_that_begins_in_the_middle(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store._queues.find_or_create("T", 0).put(23, 0, 100, 7)
    with StoreReader(tmp_path) as reader:
        queue = reader.queue("T", 0)
        assert (queue.min_offset, queue.max_offset) == (23, 24)
        assert list(queue.entries(0, 99)) == [(0, 100, 7)]
    store.close()


def test_entries_of_a_range_go_over_files(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(35):
        store.put(record())
    with StoreReader(tmp_path) as reader:
        queue = reader.queue("T", 0)
        whole = list(queue.entries(0, 35))
        assert len(whole) == 35
        assert list(queue.entries(8, 31)) == whole[8:31]
        assert list(queue.entries(31, 8)) == []
    store.close()


def test_every_directory_of_the_log_is_read(tmp_path: Path) -> None:
    old, a, b = (tmp_path / name for name in ("old", "a", "b"))
    sent = [b"%02d" % number + bytes(1000) for number in range(30)]
    for log, numbers in (({"store_path_commit_log": f"{old},{a}"}, sent[:15]), (
        {"store_path_commit_log": f"{a},{b}", "read_only_commit_log_store_paths": str(old)}, sent[15:]
    )):  # fmt: skip
        store = open_store(tmp_path / "store", **log)
        for body in numbers:
            store.put(record(body))
        store.close()
    assert all(len(list(directory.iterdir())) > 1 for directory in (old, a, b))
    with StoreReader(tmp_path / "store", commit_logs=(a, b, old)) as reader:
        assert [unit.body for unit in reader.units("T", 0, 0, 30)] == sent
        assert [unit.body for unit in reader.log_units()] == sent
    with pytest.raises(StoreDamaged, match="gap"):
        StoreReader(tmp_path / "store", commit_logs=(a, b))


def test_a_file_that_goes_while_it_is_opened_is_one_that_is_gone(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(6):
        store.put(record(b"%d" % number + bytes(1000)))

    class Removing(Files):
        def open(self, path: Path, size: int, *, writable: bool) -> MappedFile:
            path.with_name("0" * 20).unlink(missing_ok=True)
            return super().open(path, size, writable=writable)

    with StoreReader(tmp_path, files=Removing()) as reader:
        assert reader.min_physical_offset == 4096
        assert [unit.body[:1] for unit in reader.log_units()] == [b"3", b"4", b"5"]
    store.close()


def test_a_directory_that_never_stands_still_is_told(tmp_path: Path) -> None:
    open_store(tmp_path).close()

    class Vanishing(Files):
        def names(self, directory: Path) -> list[str]:
            return ["0" * 20] if directory.name == "commitlog" else super().names(directory)

        def size(self, path: Path) -> int:
            return 4096

    with pytest.raises(StoreError, match="faster"):
        StoreReader(tmp_path, files=Vanishing())
