from __future__ import annotations

from pathlib import Path

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
