"""When log and queues are flushed, who is told of it, and what a failed flush does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from orbitmq.errors import StorePoisoned
from orbitmq.runtime.clock import ManualClock, SystemClock
from orbitmq.store.dispatch import TAGS_ONLY
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import SYNC_FLUSH
from tests.support.disk import FaultyDisk
from tests.support.stores import bodies, open_store, record, small_options


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock, disk: FaultyDisk) -> Iterator[MessageStore]:
    made = open_store(
        tmp_path,
        clock,
        disk,
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=20_000,
        flush_commit_log_thorough_interval_ms=10_000,
        flush_consume_queue_thorough_interval_ms=60_000,
    )
    yield made
    made.close()


def test_a_few_bytes_wait_for_the_thorough_flush(store: MessageStore, clock: ManualClock) -> None:
    store.put(record())
    store._log_flusher.step()
    assert store.flushed_offset == 0
    clock.advance(10_000)
    store._log_flusher.step()
    assert store.flushed_offset == store.commit_log_max_offset > 0


def test_four_pages_do_not_wait(store: MessageStore) -> None:
    store.put(record(bytes(4 * 4096)))
    store._log_flusher.step()
    assert store.flushed_offset == store.commit_log_max_offset


def test_queues_are_flushed_by_two_pages_or_by_time(store: MessageStore, clock: ManualClock) -> None:
    queue_of = store._queues.find_or_create
    for _ in range(500):
        store.put(record(queue_id=1))
    store.put(record(queue_id=2))
    store._queue_flusher.step()
    assert (queue_of("T", 1).flushed, queue_of("T", 2).flushed) == (500 * 20, 0)
    clock.advance(60_000)
    store._queue_flusher.step()
    assert queue_of("T", 2).flushed == 20


def test_the_checkpoint_never_promises_more_than_is_flushed(
    store: MessageStore, clock: ManualClock, tmp_path: Path
) -> None:
    store.put(record())
    first = clock.now_ms()
    store._log_flusher.flush()
    clock.advance(5000)
    store.put(record())
    store._queue_flusher.flush()
    written = (tmp_path / "checkpoint").read_bytes()
    assert int.from_bytes(written[:8], "big") == first
    assert int.from_bytes(written[8:16], "big") == first + 5000


def test_those_who_wait_are_told_together_and_in_order(store: MessageStore) -> None:
    told: list[tuple[int, bool]] = []
    for number in range(3):
        result = store.put(record())
        store._waits.add(result.end_offset, lambda done, number=number: told.append((number, done)))  # type: ignore[misc]
    assert told == []
    store._log_flusher.ask()
    store._log_flusher.step()
    assert told == [(0, True), (1, True), (2, True)]


def test_nobody_is_told_too_early(store: MessageStore) -> None:
    told: list[bool] = []
    result = store.put(record())
    store._log_flusher.flush()
    later = store.put(record())
    store._waits.add(later.end_offset, told.append)
    store._waits.reached(result.end_offset)
    assert told == []


def test_whoever_waits_too_long_is_told_so(store: MessageStore, clock: ManualClock) -> None:
    told: list[tuple[int, bool]] = []
    for number in range(2):
        result = store.put(record())
        store._waits.add(result.end_offset, lambda done, number=number: told.append((number, done)))  # type: ignore[misc]
        clock.advance(3000)
    store.expire_waits()
    assert told == [(0, False)]
    store._log_flusher.flush()
    assert told == [(0, False), (1, True)], "and not told again"


@pytest.mark.parametrize(("timed", "flushed"), [(True, False), (False, True)])
def test_a_log_that_is_not_flushed_by_the_clock_is_flushed_by_its_growth(
    tmp_path: Path, timed: bool, flushed: bool
) -> None:
    """With workers that sleep for years: only a wake-up makes them flush."""
    store = open_store(tmp_path, mapped_file_size_commit_log=1 << 20, flush_commit_log_timed=timed)
    asked: list[bool] = []
    store._log_worker.wake = lambda: asked.append(True)  # type: ignore[method-assign]
    store.put(record(bytes(1000)))
    assert asked == []
    store.put(record(bytes(4 * 4096)))
    assert bool(asked) is flushed
    store.close()


def test_a_failed_flush_poisons_the_store(store: MessageStore, disk: FaultyDisk, tmp_path: Path) -> None:
    store.put(record(b"before"))
    told = Event()
    answers: list[bool] = []

    def tell(done: bool) -> None:
        answers.append(done)
        told.set()

    disk.fails_to_sync = True
    store.when_flushed(store.commit_log_max_offset, tell)
    assert told.wait(10)
    assert answers == [False]
    with pytest.raises(StorePoisoned, match="the disk failed"):
        store.put(record())
    assert bodies(store) == [b"before"], "what is there can still be read"
    disk.fails_to_sync = False
    store.when_flushed(store.commit_log_max_offset, answers.append)
    assert answers == [False, False], "a flush that succeeds later proves nothing"
    store.close()
    assert (tmp_path / "abort").exists(), "the next start must look at everything"


def test_a_disk_that_fails_at_the_end_leaves_the_abort_file(tmp_path: Path, disk: FaultyDisk) -> None:
    store = open_store(tmp_path, files=disk)
    store.put(record())
    disk.fails_to_sync = True
    store.close()
    assert (tmp_path / "abort").exists()


def test_workers_flush_on_their_own(tmp_path: Path) -> None:
    """With the real clock and threads: a put is on disk after its callback, and the loop's thread never waited."""
    delivered: list[object] = []
    ready = Event()

    def deliver(job: object) -> None:
        delivered.append(job)
        ready.set()

    options = small_options(tmp_path, flush_disk_type=SYNC_FLUSH)
    store = MessageStore(options, clock=SystemClock(), entry_codes=TAGS_ONLY, deliver=deliver)
    store.open()
    result = store.put(record())
    answers: list[bool] = []
    store.when_flushed(result.end_offset, answers.append)
    assert ready.wait(10)
    assert answers == [], "the callback is run by the one who delivers"
    delivered[0]()  # type: ignore[operator]
    assert answers == [True]
    assert store.flushed_offset == result.end_offset
    store.close()
