"""The indexer beside the store: how far it is, how it stops and goes on."""

from __future__ import annotations

import errno
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import StoreError
from orbitmq.message.flags import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from orbitmq.message.unit import decode_unit
from orbitmq.runtime.clock import ManualClock
from orbitmq.store import engine, memory
from orbitmq.store.engine import MessageStore
from orbitmq.store.index import indexer, log_keys
from orbitmq.store.index.search import QueryResult
from orbitmq.store.records import PutRecord, PutStatus
from tests.support.disk import FaultyDisk
from tests.support.stores import HOST_V6, NEVER_MS, abandon, open_store, record

FOREVER = 1 << 62
NOW = 1_700_000_000_000


@pytest.fixture(autouse=True)
def worker_never_runs_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "INDEX_INTERVAL_MS", NEVER_MS)


def open_indexed(
    root: Path, clock: ManualClock | None = None, disk: FaultyDisk | None = None, **more: Any
) -> MessageStore:
    return open_store(root, clock, disk, **{"message_index_enable": True, **more})


def keyed(keys: str, unique: str = "", topic: str = "T", **fields: Any) -> PutRecord:
    pairs = [f"KEYS\x01{keys}"] * bool(keys) + [f"UNIQ_KEY\x01{unique}"] * bool(unique)
    return record(f"{keys}/{unique}".encode(), topic, properties="\x02".join(pairs).encode(), **fields)


def bodies(result: QueryResult) -> list[str]:
    return [decode_unit(buffer).body.decode() for buffer in result.buffers]


def ask(
    store: MessageStore, key: str, topic: str = "T", count: int = 64, begin: int = 0, end: int = FOREVER
) -> list[str]:
    return bodies(store.query(topic, key, count, begin, end))


def test_messages_are_found_by_each_word_of_their_keys_and_by_their_unique_id(tmp_path: Path) -> None:
    store = open_indexed(tmp_path)
    store.put(keyed("red green", "ID1"))
    store.put(keyed("green", "ID2"))
    store.put(keyed("", "ID3"))
    store.put(keyed("green", "ID4", topic="Other"))
    assert ask(store, "green") == ["red green/ID1", "green/ID2"]
    assert (ask(store, "red"), ask(store, "ID2"), ask(store, "ID3")) == (["red green/ID1"], ["green/ID2"], ["/ID3"])
    assert ask(store, "green", "Other") == ["green/ID4"]
    assert (ask(store, "blue"), ask(store, "red green"), ask(store, "green", "Nowhere")) == ([], [], [])
    store.close()


def test_a_message_that_names_a_key_twice_is_found_once(tmp_path: Path) -> None:
    store = open_indexed(tmp_path)
    store.put(keyed("a a", "a"))
    assert ask(store, "a") == ["a a/a"]
    store.close()


def test_the_newest_are_found_in_the_order_of_their_storing(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    store = open_indexed(tmp_path, clock, max_msgs_num_batch=5)
    for number in range(30):
        store.put(keyed("k", f"{number}"))
        clock.advance(1000)
    assert ask(store, "k", count=3) == ["k/27", "k/28", "k/29"]
    assert ask(store, "k", count=64) == [f"k/{number}" for number in range(25, 30)]
    assert (ask(store, "k", count=0), ask(store, "k", count=-1)) == ([], [])
    assert ask(store, "k", begin=NOW + 7000, end=NOW + 9000) == ["k/7", "k/8", "k/9"]
    store.close()


def test_an_answer_tells_how_far_the_index_is(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    store = open_indexed(tmp_path, clock)
    store.put(keyed("k"))
    clock.advance(5000)
    last = store.put(keyed("other"))
    found = store.query("T", "k", 1, 0, FOREVER)
    assert (found.index_last_update_timestamp, found.index_last_update_offset) == (NOW + 5000, last.physical_offset)
    missed = store.query("T", "nothing", 1, 0, FOREVER)
    assert (missed.index_last_update_timestamp, missed.index_last_update_offset) == (0, 0)
    store.close()


@pytest.mark.parametrize(
    ("sys_flag", "is_indexed"),
    [(TRANSACTION_PREPARED, True), (TRANSACTION_COMMIT, True), (TRANSACTION_ROLLBACK, False)],
)
def test_all_but_rolled_back_messages_are_indexed(tmp_path: Path, sys_flag: int, is_indexed: bool) -> None:
    store = open_indexed(tmp_path)
    store.put(keyed("k", sys_flag=sys_flag))
    assert bool(ask(store, "k")) is is_indexed
    store.close()


def test_messages_of_every_size_and_address_are_indexed_over_many_files(tmp_path: Path) -> None:
    """Units larger than a slice, IPv6 hosts, blank records between log files."""
    store = open_indexed(tmp_path, mapped_file_size_commit_log=1 << 20)
    expected = {}
    for number, size in enumerate([0, 10, log_keys.SLICE_BYTES, 300_000, 1, 400_000, 500_000, 600_000, 3]):
        message = keyed(f"k{number}")
        message.body = bytes(size)
        message.born_host, message.store_host = (HOST_V6, HOST_V6) if number % 2 else (message.born_host, HOST_V6)
        expected[f"k{number}"] = store.put(message).physical_offset
    assert store.commit_log_max_offset > 2 << 20
    for key, place in expected.items():
        (unit,) = store.query("T", key, 10, 0, FOREVER).buffers
        assert decode_unit(unit).physical_offset == place
    store.close()


def test_a_slice_takes_a_limited_number_of_messages(tmp_path: Path) -> None:
    store = open_indexed(tmp_path, max_index_num=5000, max_hash_slot_num=1000, mapped_file_size_commit_log=1 << 20)
    for number in range(3 * log_keys.SLICE_MESSAGES):
        store.put(keyed(f"{number}"))
    indexer = store._keys.indexer
    assert indexer._slice(store.commit_log_max_offset)
    assert store._keys.index.files[0].count == log_keys.SLICE_MESSAGES + 1
    store.close()


def test_a_put_leaves_the_index_to_the_worker(tmp_path: Path) -> None:
    store = open_indexed(tmp_path)
    store.put(keyed("k"))
    assert store._keys.index.files == []
    store._keys.indexer.step()
    assert store._keys.index.files[0].count == 2
    store.close()


def test_the_worker_indexes_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "INDEX_INTERVAL_MS", 1)
    store = open_indexed(tmp_path)
    indexed = threading.Event()
    slice_ = store._keys.indexer._slice

    def watched(end: int) -> bool:
        done = slice_(end)
        indexed.set()
        return done

    monkeypatch.setattr(store._keys.indexer, "_slice", watched)
    store.put(keyed("k"))
    assert indexed.wait(30)
    store.close()


def test_everything_is_indexed_and_on_disk_when_a_store_is_closed(tmp_path: Path) -> None:
    """A Java broker that takes the directory over goes on behind the last message and indexes nothing before it."""
    disk = FaultyDisk()
    store = open_indexed(tmp_path, disk=disk)
    for number in range(50):
        store.put(keyed(f"{number}"))
    store.close()
    assert not (tmp_path / "abort").exists()
    assert all(file.synced == file.path.read_bytes() for file in disk._files if file.path.parent.name == "index")
    again = open_indexed(tmp_path)
    assert [file.count - 1 for file in again._keys.index.files] == [19, 19, 12]
    again.close()


def test_a_store_without_index_is_indexed_from_its_first_message_on(tmp_path: Path) -> None:
    store = open_indexed(tmp_path, message_index_enable=False)
    for number in range(50):
        store.put(keyed(f"{number}"))
    assert ask(store, "7") == []
    store.close()
    assert not (tmp_path / "index").exists()
    again = open_indexed(tmp_path)
    again.put(keyed("new"))
    assert all(ask(again, f"{number}") == [f"{number}/"] for number in range(50))
    assert ask(again, "new") == ["new/"]
    again.close()


def test_an_unfinished_message_is_finished_by_the_next_start(tmp_path: Path) -> None:
    """Its first keys are in the index, the last ones are not: neither is left out, none entered twice."""
    store = open_indexed(tmp_path)
    store.put(keyed("a"))
    store.put(keyed("b c d", "ID"))
    store._keys.indexer.catch_up(store.commit_log_max_offset, 1000)
    last = store._keys.index.files[-1]
    last.count -= 2
    last._write_header()
    offset = last.end_offset
    for worker in store._workers:
        worker.stop()
    store._keys.indexer.position = store.commit_log_max_offset
    store._workers.clear()
    store.close()
    again = open_indexed(tmp_path)
    assert [ask(again, key) for key in ("ID", "b", "c", "d")] == [["b c d/ID"]] * 4
    entries = [again._keys.index.files[0].entry(number) for number in range(1, again._keys.index.files[0].count)]
    assert [entry[1] for entry in entries] == [0] + [offset] * 4
    again.close()


def test_an_index_of_another_log_is_built_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("one", "two"):
        store = open_indexed(tmp_path / name)
        for number in range(30):
            store.put(keyed(f"{name}{number}"))
        store.close()
    for path in (tmp_path / "two" / "index").iterdir():
        path.unlink()
    for path in (tmp_path / "one" / "index").iterdir():
        path.rename(tmp_path / "two" / "index" / path.name)
    store = open_indexed(tmp_path / "two")
    with caplog.at_level(logging.WARNING):
        assert all(ask(store, f"two{number}") == [f"two{number}/"] for number in range(30))
    assert "event=index_discarded" in caplog.text
    store.close()


def test_a_full_disk_stops_the_index_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    store = open_indexed(tmp_path, disk=disk)
    store.put(keyed("first"))
    assert ask(store, "first") == ["first/"]
    for number in range(30):
        assert store.put(keyed(f"{number}")).status is PutStatus.PUT_OK
    disk.room = 0
    with caplog.at_level(logging.ERROR):
        assert ask(store, "29") == []  # the second index file does not fit
        store._keys.indexer.step()
    assert caplog.text.count("event=index_stopped") == 1
    assert not store.is_poisoned
    assert ask(store, "5") == ["5/"]
    disk.room = None
    store._keys.indexer.step()
    assert all(ask(store, f"{number}") == [f"{number}/"] for number in range(30))
    counts = [file.count - 1 for file in store._keys.index.files]
    assert counts == [19, 12]  # nothing was entered twice
    store.close()


def test_an_index_without_a_map_for_its_next_file_goes_on_when_there_is_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    store = open_indexed(tmp_path)
    for number in range(25):
        assert store.put(keyed(f"{number}")).status is PutStatus.PUT_OK
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(memory, "map_file", refuse)
        for _ in range(3):
            store._keys.indexer.step()  # what leaves it would end its worker, and with it the store
    assert caplog.text.count("event=index_stopped") == 1
    store._keys.indexer.step()
    assert all(ask(store, f"{number}") == [f"{number}/"] for number in range(25))
    store.close()


def test_a_failed_flush_of_the_index_makes_the_next_start_look_closely(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = open_indexed(tmp_path, disk=disk)
    store.put(keyed("k"))
    store._log_flusher.flush()
    store._queue_flusher.flush()
    ask(store, "k")
    disk.fails_to_sync = True
    store.close()
    assert (tmp_path / "abort").exists()


def test_full_index_files_behind_the_log_are_removed(tmp_path: Path) -> None:
    store = open_indexed(tmp_path)
    for number in range(60):
        store.put(keyed(f"{number}"))
    store._keys.indexer.step()
    before = len(store._keys.index.files)
    store._log.files.remove_first()
    store._keys.indexer.step()
    kept = store._keys.index.files
    assert before > len(kept)
    assert kept[0].end_offset >= store.commit_log_min_offset
    assert ask(store, "0") == []
    assert ask(store, "59") == ["59/"]
    store.close()


def test_a_closed_store_answers_nothing(tmp_path: Path) -> None:
    store = open_indexed(tmp_path)
    store.close()
    with pytest.raises(StoreError, match="not open"):
        store.query("T", "k", 1, 0, FOREVER)


def test_the_safe_way_after_a_crash_reads_the_log_again(tmp_path: Path) -> None:
    for safe in (False, True):
        root = tmp_path / str(safe)
        disk = FaultyDisk()
        store = open_indexed(root, disk=disk)
        for number in range(10):
            store.put(keyed(f"{number}"))
        ask(store, "0")
        abandon(store)
        disk.kill()
        again = open_indexed(root, message_index_safe=safe)
        assert len(again._keys.index.files) == (0 if safe else 1)
        assert all(ask(again, f"{number}") == [f"{number}/"] for number in range(10))
        again.close()


@pytest.mark.parametrize("number", [0, 1, -2])
def test_a_full_index_file_that_was_lost_is_built_anew_after_a_crash(tmp_path: Path, number: int) -> None:
    disk = FaultyDisk()
    store = open_indexed(tmp_path, disk=disk)
    for key in range(95):
        store.put(keyed(f"{key}"))
    store._log_flusher.flush()
    store._queue_flusher.flush()
    store._keys.indexer.step()
    store._keys.indexer._index.flush()
    files = [file.file.path for file in store._keys.index.files]
    abandon(store)
    disk.kill()
    files[number].unlink()
    again = open_indexed(tmp_path)
    assert all(ask(again, f"{key}") == [f"{key}/"] for key in range(95))
    again.close()


def test_what_a_close_left_unindexed_the_next_start_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_indexed(tmp_path)
    store.put(keyed("early"))
    assert ask(store, "early") == ["early/"]
    for key in range(30):
        store.put(keyed(f"{key}"))
    monkeypatch.setattr(indexer, "CLOSE_MS", 0)
    store.close()
    assert "event=index_unfinished" in caplog.text
    assert not (tmp_path / "abort").exists()
    again = open_indexed(tmp_path)
    assert all(ask(again, f"{key}") == [f"{key}/"] for key in ("early", *range(30)))
    again.close()


def test_an_index_far_behind_says_so_with_its_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten milliseconds pass at each look at the clock; a step does one slice, which is one message, and takes four."""

    class Ticking(ManualClock):
        def now_ms(self) -> int:
            self.advance(10)
            return super().now_ms()

    for name, value in (("STEP_MS", 15), ("REPORT_BYTES", 100), ("REPORT_INTERVAL_MS", 10)):
        monkeypatch.setattr(indexer, name, value)
    caplog.set_level(logging.INFO)
    store = open_indexed(tmp_path, Ticking(), mapped_file_size_commit_log=4 << 20)
    places = []
    for _ in range(4):
        message = keyed("k")
        message.body = bytes(120_000)
        places.append(store.put(message).physical_offset)
    end = store.commit_log_max_offset
    store._keys.indexer.step()
    store._keys.indexer.step()
    first, second = (line for line in caplog.messages if line.startswith("event=index_behind"))
    assert first.startswith(f"event=index_behind position={places[1]} bytes={end - places[1]} mb_per_s=")
    rate = 120_000 // 1000 // 40
    assert second == f"event=index_behind position={places[2]} bytes={end - places[2]} mb_per_s={rate}"
    store.close()
