"""The way through private memory: what readers, disk and a crash see of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from orbitmq.runtime.clock import ManualClock
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import SYNC_FLUSH
from orbitmq.store.records import PutStatus
from tests.support.disk import FaultyDisk
from tests.support.process import wait_until
from tests.support.stores import NEVER_MS, abandon, bodies, open_store, record

POOL = {
    "transient_store_pool_enable": True,
    "transient_store_pool_size": 2,
    "commit_interval_commit_log_ms": NEVER_MS,
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock, disk: FaultyDisk) -> Iterator[MessageStore]:
    made = opened(tmp_path, clock, disk)
    yield made
    made.close()


def opened(root: Path, clock: ManualClock, disk: FaultyDisk | None = None, **changes: Any) -> MessageStore:
    """A store with the pool, whose commits are the test's."""
    store = open_store(root, clock, disk, **(POOL | changes))
    store._commit_worker.stop()
    return store


def commit(store: MessageStore, clock: ManualClock) -> None:
    clock.advance(200)
    store._log_committer.step()


def test_readers_see_what_is_committed(store: MessageStore, clock: ManualClock, tmp_path: Path) -> None:
    store.put(record(b"first"))
    assert (bodies(store), store.max_offset("T", 0)) == ([], 0)
    assert b"first" not in (tmp_path / "commitlog" / ("0" * 20)).read_bytes()
    store._log_flusher.flush()
    assert store.flushed_offset == 0, "what is not in the file cannot be flushed"
    commit(store, clock)
    assert bodies(store) == [b"first"]
    store._log_flusher.flush()
    assert store.flushed_offset == store.commit_log_max_offset


def test_four_pages_do_not_wait_for_their_time(tmp_path: Path, clock: ManualClock) -> None:
    store = opened(tmp_path, clock, mapped_file_size_commit_log=1 << 20)
    store.put(record(bytes(10_000)))
    store._log_committer.step()
    assert bodies(store) == []
    store.put(record(bytes(10_000)))
    store._log_committer.step()
    assert len(bodies(store)) == 2
    store.close()


def test_the_bytes_on_disk_are_the_same(tmp_path: Path) -> None:
    for name, open_it in (("plain", open_store), ("pool", opened)):
        clock = ManualClock()
        store = open_it(tmp_path / name, clock)
        for number in range(40):
            store.put(record(b"%d" % number + bytes(number * 50)))
            if number % 3 == 0:
                commit(store, clock)
            else:
                clock.advance(200 * (number % 3 == 0))
        store.close()
    files = sorted(path.name for path in (tmp_path / "plain/commitlog").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "pool/commitlog").iterdir())
    for name in files:
        assert (tmp_path / "plain/commitlog" / name).read_bytes() == (tmp_path / "pool/commitlog" / name).read_bytes()


def test_more_files_than_buffers(store: MessageStore, clock: ManualClock) -> None:
    """Without a free buffer a file is written directly; its messages are shown after those before them."""
    sent = [b"%d" % number + bytes(1000) for number in range(20)]
    for body in sent:
        store.put(record(body))
    assert bodies(store) == []
    commit(store, clock)
    assert bodies(store) == sent
    assert store._log.staging is not None
    assert store._log.staging._pool.available >= 1, "buffers of finished files are free again"


def test_messages_may_be_refused_rather_than_written_directly(tmp_path: Path, clock: ManualClock) -> None:
    store = opened(tmp_path, clock, fast_fail_if_no_buffer_in_store_pool=True)
    statuses = [store.put(record(bytes(1000))).status for _ in range(12)]
    assert (statuses[0], statuses[-1]) == (PutStatus.PUT_OK, PutStatus.CREATE_MAPEDFILE_FAILED)
    assert store.commit_log_max_offset <= 2 * 4096, "nothing of it is written"
    commit(store, clock)
    assert store.put(record(bytes(1000))).status is PutStatus.PUT_OK
    store.close()


def test_a_store_without_a_free_buffer_is_busy(store: MessageStore, clock: ManualClock) -> None:
    assert not store.is_busy
    while store._log.files.end <= 4096:
        store.put(record(bytes(1000)))
    assert store.is_busy, "both buffers are in use"
    commit(store, clock)
    assert not store.is_busy


def test_a_killed_process_loses_what_was_not_committed_and_no_more(
    tmp_path: Path, clock: ManualClock, disk: FaultyDisk
) -> None:
    store = opened(tmp_path, clock, disk, transient_store_pool_size=5)
    for number in range(7):
        store.put(record(b"%d" % number + bytes(1000)))
    commit(store, clock)
    for number in range(7, 10):
        store.put(record(b"%d" % number + bytes(1000)))
    abandon(store)
    disk.kill()
    again = opened(tmp_path, clock, disk)
    assert [body[:1] for body in bodies(again)] == [b"%d" % number for number in range(7)]
    assert again.put(record(b"next")).queue_offset == 7
    commit(again, clock)
    assert bodies(again)[-1] == b"next"
    again.close()


def test_who_waits_for_the_disk_does_not_wait_for_the_next_commit(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(tmp_path, clock, **POOL)
    told = Event()
    result = store.put(record(b"x"))
    store.when_flushed(result.end_offset, lambda _: told.set())
    assert told.wait(60)
    assert store.flushed_offset == result.end_offset
    assert bodies(store) == [b"x"]
    store.close()


def test_a_full_file_gives_its_buffer_back_at_once(tmp_path: Path, clock: ManualClock) -> None:
    """However rarely the buffers are looked at: messages would be refused for want of one."""
    store = open_store(tmp_path, clock, **POOL)
    for number in range(20):
        assert store.put(record(b"%d" % number + bytes(1000))).status is PutStatus.PUT_OK
        wait_until(lambda: not store.is_busy, 60, "a buffer to be free")
    assert len(bodies(store)) >= 15
    store.close()


def test_a_clean_exit_loses_nothing(tmp_path: Path, clock: ManualClock) -> None:
    store = opened(tmp_path, clock)
    for number in range(10):
        store.put(record(b"%d" % number + bytes(1000)))
    store.close()
    store = open_store(tmp_path, clock)
    assert len(bodies(store)) == 10
    store.close()


def test_with_synchronous_flush_there_is_no_pool(tmp_path: Path) -> None:
    store = open_store(tmp_path, flush_disk_type=SYNC_FLUSH, **POOL)
    store._log_worker.stop()
    store.put(record(b"first"))
    store._log_flusher.step()
    assert bodies(store) == [b"first"]
    store.close()
