"""Messages by key without waiting: the same as with waiting, or nothing at all."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.message.unit import decode_unit
from orbitmq.store.engine import MessageStore
from orbitmq.store.files import MappedFile
from orbitmq.store.index import search
from tests.support.stores import open_store, record

EVER_MS = (1 << 63) - 1
LARGE = b"x" * 9000  # more than two pages


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MessageStore]:
    monkeypatch.setattr(MappedFile, "read_at_once", MappedFile.read)  # as if all was in memory
    made = open_store(tmp_path, message_index_enable=True, mapped_file_size_commit_log=1 << 20)
    for worker in made._workers:
        worker.stop()  # the test brings the index up to date
    for number in range(30):
        made.put(record(b"%d" % number, properties=b"KEYS\x01k%d all" % number))
    made.put(record(LARGE, properties=b"KEYS\x01large"))
    made._keys.indexer.catch_up(made.commit_log_max_offset, 60_000)
    yield made
    made.close()


def found(store: MessageStore, key: str, count: int = 64, *, at_once: bool = True) -> list[bytes]:
    return [decode_unit(unit).body for unit in store.query("T", key, count, 0, EVER_MS, at_once=at_once).buffers]


def test_what_is_in_memory_is_found_at_once(store: MessageStore) -> None:
    assert found(store, "k7") == [b"7"]
    assert found(store, "large") == [LARGE]
    assert found(store, "all", 5) == [b"25", b"26", b"27", b"28", b"29"]
    assert found(store, "all") == found(store, "all", at_once=False) == [b"%d" % number for number in range(30)]
    assert found(store, "none") == []
    there, waited = (store.query("T", "k7", 1, 0, EVER_MS, at_once=at_once) for at_once in (True, False))
    assert there == waited


def test_an_index_that_is_behind_is_waited_for(store: MessageStore) -> None:
    store.put(record(b"new", properties=b"KEYS\x01k7"))
    with pytest.raises(BlockingIOError):
        found(store, "k7")
    assert found(store, "k7", at_once=False) == [b"7", b"new"]
    assert found(store, "k7") == [b"7", b"new"]


@pytest.mark.parametrize("cold", ["index", "commitlog"])
def test_what_is_on_disk_is_not_waited_for(store: MessageStore, cold: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = MappedFile.read_at_once

    def only_the_other(file: MappedFile, start: int, size: int) -> bytes:
        if file.path.parent.name == cold:
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        return read(file, start, size)

    monkeypatch.setattr(MappedFile, "read_at_once", only_the_other)
    with pytest.raises(BlockingIOError):
        found(store, "k7")
    assert found(store, "k7", at_once=False) == [b"7"]


@pytest.mark.parametrize("limit", ["READS_AT_ONCE_MAX", "READ_AT_ONCE_BYTES"])
def test_a_turn_of_the_event_loop_reads_so_much(
    store: MessageStore, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, limit, 20 if limit == "READS_AT_ONCE_MAX" else 20_000)
    assert found(store, "k7") == [b"7"]
    with pytest.raises(BlockingIOError):
        found(store, "all" if limit == "READS_AT_ONCE_MAX" else "large")
