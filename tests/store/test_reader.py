"""A store that is only read, beside a broker or without one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orbitmq.errors import StoreDamaged
from orbitmq.message.flags import TRANSACTION_PREPARED
from orbitmq.store import reader as reader_module
from orbitmq.store.reader import StoreDirectory
from tests.support.store_reader import StoreReader
from tests.support.stores import open_store, record


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_live_store_is_read_without_disturbing_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(40):
        store.put(record(b"%d" % number, queue_id=number % 2, properties=b"TAGS\x01A"))
    for worker in store._workers:
        worker.stop()  # what they write is no trace of a reader
    before = contents(tmp_path)
    directory = StoreDirectory(tmp_path)
    assert directory.queues() == [("T", 0), ("T", 1)]
    assert directory.queued_end() == directory.whole_end() == store.commit_log_max_offset
    assert sum(len(entries) // 20 for _, entries in directory.entries("T", 1)) >= 20
    assert contents(tmp_path) == before
    assert store.put(record()).queue_offset == 20
    store.close()


def filled(root: Path, sizes: list[int]) -> int:
    """A stopped store with a message for each size; behind the last one."""
    store = open_store(root)
    put = [store.put(record(b"x" * size)) for size in sizes]
    store.close()
    with StoreReader(root) as reader:
        last = list(reader.log_units())[-1]
    assert len(put) == len(sizes)
    return last.physical_offset + last.size


@pytest.mark.parametrize("window", [512, 1024, 1 << 20])
@pytest.mark.parametrize("sizes", [[10], [100] * 100, [3000, 10, 2000, 700, 3500, 5]])
def test_the_end_of_a_log_is_found_without_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], window: int
) -> None:
    monkeypatch.setattr(reader_module, "WINDOW_SIZE", window)
    end = filled(tmp_path, sizes)
    directory = StoreDirectory(tmp_path)
    assert (directory.queued_end(), directory.whole_end()) == (end, end)
    shutil.rmtree(tmp_path / "consumequeue")
    assert (directory.queued_end(), directory.whole_end()) == (-1, end)
    torn = tmp_path / "commitlog" / f"{(end - 1) // 4096 * 4096:020d}"
    data = bytearray(torn.read_bytes())
    last = end - (91 + 1 + sizes[-1])
    data[(end - 1) % 4096 - 4] ^= 1  # in the last body
    torn.write_bytes(data)
    assert directory.whole_end() == last


def test_a_log_whose_last_file_is_full_ends_with_the_file(tmp_path: Path) -> None:
    filled(tmp_path, [1000] * 4)
    for later in sorted((tmp_path / "commitlog").iterdir())[1:]:
        later.unlink()
    shutil.rmtree(tmp_path / "consumequeue")
    assert StoreDirectory(tmp_path).whole_end() == 4096


def test_an_empty_log_ends_where_it_begins(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    directory = StoreDirectory(tmp_path)
    directory.check()
    assert (directory.queued_end(), directory.whole_end(), directory.queues()) == (-1, 0, [])


def test_entries_come_file_by_file_from_where_they_are_wanted(tmp_path: Path) -> None:
    end = filled(tmp_path, [100] * 35)
    directory = StoreDirectory(tmp_path)
    starts = [int(first) for first, _ in directory.entries("T", 0)]
    assert starts == [0, 10, 20, 30]
    with StoreReader(tmp_path) as reader:
        places = [place for place, _, _ in reader.queue("T", 0).entries(0, 35)]
    assert [int(first) for first, _ in directory.entries("T", 0, places[10], places[20])] == [10]
    assert [int(first) for first, _ in directory.entries("T", 0, places[9], places[20] + 1)] == [0, 10, 20]
    assert [int(first) for first, _ in directory.entries("T", 0, end)] == [30]
    assert list(directory.entries("nothing", 0)) == []


def test_an_index_file_whose_head_leads_nowhere_is_damaged(tmp_path: Path) -> None:
    store = open_store(tmp_path, message_index_enable=True)
    store.put(record(properties=b"KEYS\x01a b c"))
    store.close()
    directory = StoreDirectory(tmp_path)
    (name,) = directory.index_files()
    begin, entries = directory.index_entries(name)
    assert begin > 0
    assert len(entries) == 3 * 20
    path = tmp_path / "index" / name
    path.write_bytes(path.read_bytes()[:40] + bytes(path.stat().st_size - 40))
    with pytest.raises(StoreDamaged, match="its head does not lead to its entries"):
        directory.index_entries(name)
    path.unlink()
    assert directory.index_entries(name) == (0, b"")


def test_queues_tell_which_message_holds_a_byte(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(90):
        store.put(record(b"x" * (50 + number), "AB"[number % 2], number % 3))
    store.put(record(b"in no queue", sys_flag=TRANSACTION_PREPARED))
    store.close()
    directory = StoreDirectory(tmp_path)
    with StoreReader(tmp_path) as reader:
        units = [(unit.physical_offset, unit.size) for unit in reader.log_units()]
    for place, size in units[:-1]:
        assert directory.behind_unit_at(place) == place
        assert directory.behind_unit_at(place + 1) == directory.behind_unit_at(place + size - 1) == place + size
    last, size = units[-1]
    assert directory.behind_unit_at(last + 5) == last + 5
    assert directory.behind_unit_at(last + size) == last + size
