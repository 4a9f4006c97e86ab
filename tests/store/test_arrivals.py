"""SYNC_FLUSH: what a crash could take away is not shown, so nobody gets ahead of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from orbitmq.runtime.clock import ManualClock
from orbitmq.store import arrivals
from orbitmq.store.dispatch import TAGS_ONLY
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import SYNC_FLUSH
from orbitmq.store.positions import PhysicalOffset
from orbitmq.store.pull_batch import GetStatus
from orbitmq.store.records import PutStatus
from tests.support.batches import BatchItem, put_batch
from tests.support.disk import FaultyDisk
from tests.support.stores import abandon, bodies, open_store, record, small_options

Told = tuple[str, int, int, Sequence[int], int]
NOW = 1_700_000_000_000


@pytest.fixture
def told() -> list[Told]:
    return []


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def store(tmp_path: Path, disk: FaultyDisk, told: list[Told]) -> Iterator[MessageStore]:
    options = small_options(tmp_path, flush_disk_type=SYNC_FLUSH)
    made = MessageStore(
        options, clock=ManualClock(NOW), entry_codes=TAGS_ONLY, on_arrival=lambda *args: told.append(args), files=disk
    )
    made.open()
    made._log_worker.stop()  # the test flushes
    yield made
    made.close()


def flush(store: MessageStore) -> None:
    store._log_flusher.step()


def test_a_message_is_shown_when_it_is_on_disk(store: MessageStore, told: list[Told]) -> None:
    place = store.put(record(properties=b"TAGS\x01TagA"))
    assert (place.queue_offset, store.max_offset("T", 0), told) == (0, 0, [])
    assert store.get("T", 0, 0, 32).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert store.entries("T", 0, 0, 10) == []
    assert store.unit_at(place.physical_offset) is None
    assert (store.offset_by_time("T", 0, NOW), store.earliest_store_time("T", 0)) == (0, -1)
    flush(store)
    assert told == [("T", 0, 1, (2598919,), NOW)]
    assert store.max_offset("T", 0) == len(bodies(store)) == len(store.entries("T", 0, 0, 10)) == 1
    assert store.unit_at(place.physical_offset) is not None


def test_offsets_go_on_while_nothing_is_shown(store: MessageStore) -> None:
    assert [store.put(record()).queue_offset for _ in range(3)] == [0, 1, 2]
    assert put_batch(store, record(), [BatchItem(0, b"a", b""), BatchItem(0, b"b", b"")]).queue_offset == 3
    flush(store)
    assert store.put(record()).queue_offset == 5
    result = store.get("T", 0, 2, 32)
    assert (result.count, result.next_offset, result.max_offset) == (3, 5, 5)


def test_a_flush_shows_what_came_before_it(store: MessageStore, told: list[Told], disk: FaultyDisk) -> None:
    """Not what was stored while the disk was busy."""
    store.put(record(b"before"))
    sync = type(store._log.files.files[0]).sync
    file = store._log.files.files[0]

    def slow(*_: object) -> None:
        store.put(record(b"meanwhile"))
        sync(file)

    file.sync = slow  # type: ignore[method-assign]
    flush(store)
    del file.sync
    assert bodies(store) == [b"before"]
    flush(store)
    assert bodies(store) == [b"before", b"meanwhile"]
    assert [message[2] for message in told] == [1, 2]


def test_no_reader_is_ever_ahead_of_the_log(tmp_path: Path, disk: FaultyDisk) -> None:
    """The crash that leaves a consumer's progress behind the end of the log cannot happen."""
    store = open_store(tmp_path, files=disk, flush_disk_type=SYNC_FLUSH)
    store._log_worker.stop()
    for _ in range(3):
        store.put(record())
    flush(store)
    for _ in range(3):
        store.put(record())
    seen = store.get("T", 0, 0, 32).next_offset
    abandon(store)
    disk.lose_power(lambda: False)
    again = open_store(tmp_path, files=disk, flush_disk_type=SYNC_FLUSH)
    assert again.max_offset("T", 0) == seen == 3
    again.close()


def test_with_asynchronous_flush_nothing_waits(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put(record())
    assert (store.flushed_offset, store.max_offset("T", 0)) == (0, 1)
    store.close()


def test_a_disk_that_has_stopped_answering_does_not_fill_the_memory(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "UNSEEN_MAX", 3)
    statuses = [store.put(record(bytes(1000))).status for _ in range(8)]
    assert statuses[-1] is PutStatus.OS_PAGECACHE_BUSY
    flush(store)
    assert store.put(record()).status is PutStatus.PUT_OK


# -------------------------------------------------------------------------------- a store of a broker that is elected


@pytest.fixture(params=["ASYNC_FLUSH", SYNC_FLUSH])
def held(request: pytest.FixtureRequest, tmp_path: Path, told: list[Told]) -> Iterator[MessageStore]:
    options = small_options(tmp_path, flush_disk_type=request.param)
    made = MessageStore(
        options, clock=ManualClock(NOW), entry_codes=TAGS_ONLY, on_arrival=lambda *args: told.append(args),
        holds_back=True,
    )  # fmt: skip
    made.open()
    made._log_worker.stop()
    yield made
    made.close()


def test_a_message_is_shown_when_it_is_confirmed(held: MessageStore, told: list[Told]) -> None:
    first, second = held.put(record()), held.put(record())
    flush(held)
    assert (held.max_offset("T", 0), told) == (0, [])
    assert held.readable_offset == second.end_offset, "replicas may have it"
    held.confirm(first.end_offset)
    assert (held.max_offset("T", 0), len(told)) == (1, 1)
    held.confirm(second.end_offset)
    assert (held.max_offset("T", 0), len(bodies(held)), len(told)) == (2, 2, 2)


def test_what_is_confirmed_before_it_is_there_is_shown_when_it_is(held: MessageStore, told: list[Told]) -> None:
    held.confirm(PhysicalOffset(1 << 20))
    held.put(record())
    put_batch(held, record(), [BatchItem(0, b"a", b""), BatchItem(0, b"b", b"")])
    flush(held)
    held.confirm(PhysicalOffset(1 << 20))
    assert held.max_offset("T", 0) == 3
