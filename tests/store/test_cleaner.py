"""What the cleaner does to a store: log, queues and disk, step by step, with the clock turned."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitmq.message.unit import decode_unit
from orbitmq.runtime.clock import ManualClock
from orbitmq.store import engine
from orbitmq.store.cleaner import FIRST_ROUND_MS, ROUNDS_ASKED
from orbitmq.store.dispatch import TAGS_ONLY
from orbitmq.store.engine import MessageStore
from orbitmq.store.index.key_scan import key_hash
from orbitmq.store.pull_batch import GetStatus
from orbitmq.store.records import PutStatus
from orbitmq.store.retention import HOUR_MS
from tests.support.batches import put_batch
from tests.support.disk import FaultyDisk
from tests.support.stores import NEVER_MS, bodies, open_store, record, small_options

RESERVED_MS = 72 * HOUR_MS
ROUND_MS = 10_000
PER_FILE = 3


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock, disk: FaultyDisk) -> Iterator[MessageStore]:
    made = open_store(tmp_path, clock, disk, clean_resource_interval_ms=ROUND_MS, delete_when="")
    made._clean_worker.stop()  # the test makes its steps
    clock.advance(FIRST_ROUND_MS)
    yield made
    made.close()


def fill(store: MessageStore, clock: ManualClock, files: int, topic: str = "T") -> None:
    """`files` files of three messages, all last written now."""
    for number in range(PER_FILE * files):
        store.put(record(b"%04d" % number + bytes(1000), topic))
    store._log_flusher.flush()
    store._queue_flusher.flush()
    written_now(store, clock)


def written_now(store: MessageStore, clock: ManualClock) -> None:
    for file in store._log.files.files:
        os.utime(file.path, ns=(clock.now_ms() * 1_000_000,) * 2)


def turn(store: MessageStore, clock: ManualClock, milliseconds: int) -> None:
    """Let the cleaner work for so long."""
    end = clock.now_ms() + milliseconds
    while clock.now_ms() < end:
        clock.advance(min(store._cleaner.step(), end - clock.now_ms()))


def log_files(store: MessageStore) -> list[int]:
    """Numbers of the log's files on disk, without the one that is made ahead."""
    numbers = [int(path.name) // 4096 for path in store.options.commit_log_directories[0].iterdir()]
    return sorted(number for number in numbers if number * 4096 < store._log.files.end)


def test_a_file_stays_until_a_crash_would_not_need_it(store: MessageStore, clock: ManualClock) -> None:
    """It would leave a log without a beginning, or queues without the entries that are not on disk yet: their offsets
    would begin again.
    """
    for worker in store._workers:
        worker.stop()
    fill(store, clock, 1)
    store.put(record(bytes(1000)))
    written_now(store, clock)
    clock.advance(RESERVED_MS)
    store.remove_expired_files()
    for flusher in (store._log_flusher, store._queue_flusher):
        turn(store, clock, ROUND_MS)
        assert log_files(store) == [0, 1]
        flusher.step()  # as it was asked to
    turn(store, clock, ROUND_MS)
    assert log_files(store) == [1]


def test_expired_files_go_and_the_queues_follow(store: MessageStore, clock: ManualClock, tmp_path: Path) -> None:
    fill(store, clock, 12)
    store.remove_expired_files()
    turn(store, clock, ROUND_MS)
    assert log_files(store) == list(range(12)), "nothing has expired"
    clock.advance(RESERVED_MS)
    turn(store, clock, ROUND_MS)
    assert log_files(store) == [10, 11], "ten in a round"
    assert store.commit_log_min_offset == 10 * 4096
    assert store.min_offset("T", 0) == 30
    assert [body[:4] for body in bodies(store)] == [b"%04d" % number for number in range(30, 36)]
    assert sorted(path.name[-3:] for path in (tmp_path / "consumequeue/T/0").iterdir()) == ["600"]
    turn(store, clock, ROUND_MS)
    assert log_files(store) == [11], "the last one stays"


def test_files_that_come_and_go_leave_nothing_to_the_garbage_collector(store: MessageStore, clock: ManualClock) -> None:
    """A broker collects rarely: rings of objects would pile up to many megabytes before they are freed."""

    def live() -> None:
        fill(store, clock, 4)
        clock.advance(RESERVED_MS)
        store.remove_expired_files()
        turn(store, clock, ROUND_MS)

    live()  # what is made once
    left = []
    gc.disable()
    try:
        gc.collect()
        for _ in range(8):
            live()
            left.append(gc.collect() - gc.collect())  # what is found again is of types that cannot be collected
    finally:
        gc.enable()
    assert len(log_files(store)) < 8
    assert min(left) == 0, left  # what other threads of this process leave meanwhile is not in every round


def test_a_pause_lies_between_two_files(store: MessageStore, clock: ManualClock) -> None:
    fill(store, clock, 4)
    clock.advance(RESERVED_MS)
    store.remove_expired_files()
    store._cleaner.step()
    assert log_files(store) == [1, 2, 3]
    clock.advance(99)
    store._cleaner.step()
    assert log_files(store) == [1, 2, 3]
    clock.advance(1)
    store._cleaner.step()
    assert log_files(store) == [2, 3]


def test_a_request_lasts_for_some_rounds(store: MessageStore, clock: ManualClock) -> None:
    fill(store, clock, 3)
    store.remove_expired_files()
    turn(store, clock, (ROUNDS_ASKED + 1) * ROUND_MS)
    clock.advance(RESERVED_MS)
    turn(store, clock, ROUND_MS)
    assert log_files(store) == [0, 1, 2]


def test_the_hour_decides(
    tmp_path: Path, clock: ManualClock, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    store = open_store(tmp_path, clock, disk, clean_resource_interval_ms=ROUND_MS, delete_when="23;04")
    store._clean_worker.stop()
    fill(store, clock, 2)
    clock.advance(RESERVED_MS + FIRST_ROUND_MS)  # 1,700,000,000 s is 22:13:20 UTC
    turn(store, clock, ROUND_MS)
    assert log_files(store) == [0, 1]
    clock.advance(HOUR_MS)
    turn(store, clock, ROUND_MS)
    assert log_files(store) == [1]
    store.close()


def test_a_start_waits_a_minute(tmp_path: Path, clock: ManualClock, disk: FaultyDisk) -> None:
    store = open_store(tmp_path, clock, disk, clean_resource_interval_ms=ROUND_MS)
    store._clean_worker.stop()
    fill(store, clock, 3)
    disk.used = 0.89  # old files may be removed, and messages are not refused yet
    turn(store, clock, FIRST_ROUND_MS - 2)
    disk.room = 0
    while store.put(record(bytes(1000))).status is PutStatus.PUT_OK:
        pass
    disk.room = None
    turn(store, clock, 1)
    assert log_files(store) == [0, 1, 2]
    clock.advance(1)
    turn(store, clock, ROUND_MS)
    assert log_files(store) == [2]
    store.close()


def test_a_full_disk_refuses_messages_until_it_has_room(
    store: MessageStore, clock: ManualClock, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, clock, 1)
    disk.used = {"commitlog": 0.91}
    turn(store, clock, 2 * ROUND_MS)
    end = store.commit_log_max_offset
    assert store.put(record()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert put_batch(store, record(), []).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert (store.commit_log_max_offset, len(bodies(store))) == (end, PER_FILE), "reads go on"
    assert str(store.disk_use()) == "CL:  0.91 CQ:  0.10 INDEX:  0.10"
    disk.used = {"commitlog": 0.90}
    turn(store, clock, ROUND_MS)
    assert store.put(record()).status is PutStatus.PUT_OK
    assert caplog.text.count("event=disk_full") == 1


def test_a_start_on_a_full_disk_refuses_messages_from_the_first_on(tmp_path: Path, clock: ManualClock) -> None:
    disk = FaultyDisk()
    disk.used = {"commitlog": 0.91}
    store = open_store(tmp_path, clock, disk)
    assert store.put(record()).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.close()


def test_no_more_goes_than_a_full_disk_demands(
    store: MessageStore, clock: ManualClock, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, clock, 8)
    monkeypatch.setattr(disk, "used_ratio", lambda _: (82 + len(log_files(store))) / 100)
    assert store._cleaner.look().log == store.disk_use().log == 0.90
    turn(store, clock, ROUND_MS)
    assert log_files(store) == [5, 6, 7]


def test_a_disk_without_blocks_is_cleaned_at_once_and_sends_resume(
    store: MessageStore, clock: ManualClock, disk: FaultyDisk
) -> None:
    """The disk says ENOSPC before any ratio is known: the next step looks, without waiting for its round."""
    fill(store, clock, 4)
    turn(store, clock, ROUND_MS - 1)
    disk.room, disk.used = 0, 0.99
    while store.put(record(bytes(1000))).status is PutStatus.PUT_OK:
        pass
    kept = bodies(store)
    store._cleaner.step()
    assert log_files(store)[0] == 1
    assert disk.room == 4096
    disk.used = 0.5
    store._cleaner.step()
    assert store.put(record(b"again" + bytes(1000))).status is PutStatus.PUT_OK
    assert bodies(store)[:-1] == kept[PER_FILE:]


def test_a_message_that_is_going_is_passed_over(store: MessageStore, clock: ManualClock) -> None:
    """Between the log and the queues a pull may ask for what is gone."""
    fill(store, clock, 2)
    store._log.files.remove_first()
    result = store.get("T", 0, 0, 32)
    assert (result.status, result.count) == (GetStatus.FOUND, PER_FILE)


def test_a_reader_keeps_what_it_holds(store: MessageStore, clock: ManualClock, disk: FaultyDisk) -> None:
    """The name goes, the bytes stay, and no further file goes until the reader lets go or has had its time."""
    fill(store, clock, 6)
    (buffer,) = store.get("T", 0, 0, 1).buffers
    before = bytes(buffer)
    disk.used = 0.99
    turn(store, clock, ROUND_MS)
    assert log_files(store) == [1, 2, 3, 4, 5]
    assert bytes(buffer) == before
    del buffer
    turn(store, clock, 115_000)
    assert log_files(store) == [5]


def test_a_reader_that_does_not_let_go_is_waited_for_no_longer(
    store: MessageStore, clock: ManualClock, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, clock, 3)
    (buffer,) = store.get("T", 0, 0, 1).buffers
    before = bytes(buffer)
    disk.used = 0.99
    turn(store, clock, 119_000)
    assert log_files(store) == [1, 2]
    turn(store, clock, ROUND_MS)
    assert log_files(store) == [2]
    assert "event=file_held" in caplog.text
    assert bytes(buffer) == before


def test_a_name_that_cannot_be_removed_keeps_the_later_ones(
    store: MessageStore, clock: ManualClock, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, clock, 4)
    disk.used = 0.99
    refuses: list[Callable[[Path], None]] = [disk.remove]

    def refuse(_path: Path) -> None:
        raise PermissionError("not yours")

    disk.remove = refuse  # type: ignore[method-assign]
    turn(store, clock, 3 * ROUND_MS)
    assert log_files(store) == [0, 1, 2, 3], "a gap would keep the store from starting"
    assert caplog.text.count("event=cleaning_failed") == 1
    disk.remove = refuses[0]  # type: ignore[method-assign]
    turn(store, clock, ROUND_MS)
    assert log_files(store) == [3]
    assert not store.is_poisoned


def test_the_appending_thread_changes_the_log(tmp_path: Path, clock: ManualClock, disk: FaultyDisk) -> None:
    """The cleaner asks it to, and asks for nothing else before that is done."""
    jobs: list[Callable[[], object]] = []
    store = MessageStore(
        small_options(tmp_path, delete_when=""), clock=clock, entry_codes=TAGS_ONLY, files=disk, deliver=jobs.append
    )
    store.open()
    store._clean_worker.stop()
    clock.advance(FIRST_ROUND_MS)
    fill(store, clock, 4)
    disk.used = 0.99
    for _ in range(3):
        store._cleaner.step()
        clock.advance(ROUND_MS)
    assert (log_files(store), len(jobs)) == ([0, 1, 2, 3], 1)
    jobs.pop()()
    assert store.commit_log_min_offset == 4096
    store._cleaner.step()
    assert log_files(store) == [1, 2, 3], "the worker has removed it"
    store.close()


def test_each_name_is_gone_from_the_disk_before_the_next_one_goes(
    store: MessageStore, clock: ManualClock, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that go together may come back one by one after a power cut, and the store would have a gap."""
    fill(store, clock, 4)
    done: list[str] = []
    remove, sync = disk.remove, disk.sync_directory
    monkeypatch.setattr(disk, "remove", lambda path: (done.append("remove " + path.parent.name), remove(path)))
    monkeypatch.setattr(disk, "sync_directory", lambda path: (done.append("sync " + path.name), sync(path)))
    disk.used = 0.99
    turn(store, clock, ROUND_MS)
    log = [line for line in done if line.endswith("commitlog")]
    assert log == ["remove commitlog", "sync commitlog"] * 3


def test_index_files_leave_behind_the_log_and_in_the_same_steps(
    tmp_path: Path, clock: ManualClock, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "INDEX_INTERVAL_MS", NEVER_MS)
    store = open_store(
        tmp_path, clock, disk, clean_resource_interval_ms=ROUND_MS, delete_when="", message_index_enable=True
    )
    store._clean_worker.stop()
    for number in range(40):  # 19 keys an index file, three messages a file of the log
        store.put(record(b"%04d" % number + bytes(1000), properties=b"KEYS\x01k"))
    clock.advance(FIRST_ROUND_MS)
    store._log_flusher.flush()
    store._queue_flusher.flush()
    store._keys.indexer.step()
    index = store._keys.index
    oldest, middle, newest = index.files
    reader = oldest.find(key_hash(b"T", b"k"), 0, NEVER_MS * 1000)
    next(reader)
    disk.used = 0.99
    turn(store, clock, 3 * ROUND_MS)
    assert log_files(store) == [13]
    store._keys.indexer.step()
    assert index.files == [newest]
    assert all(file.file.path.exists() for file in (oldest, middle)), "the indexer never waits for the disk"
    store._cleaner.step()
    assert list((tmp_path / "index").iterdir()) == [newest.file.path]
    assert oldest.file.data.closed, "memory and blocks are given back"
    list(reader)  # who was reading is not hurt
    found = store.query("T", "k", 64, 0, NEVER_MS * 1000).buffers
    assert [decode_unit(unit).body[:4] for unit in found] == [b"0039"]
    store.close()


def test_a_start_finishes_what_was_begun(tmp_path: Path, clock: ManualClock, disk: FaultyDisk) -> None:
    """The log was cut, the broker died before the queues were."""
    store = open_store(tmp_path, clock, disk)
    fill(store, clock, 8)
    store.close()
    for number in range(6):
        (tmp_path / "commitlog" / f"{number * 4096:020d}").unlink()
    store = open_store(tmp_path, clock, disk)
    store._clean_worker.stop()
    assert store.min_offset("T", 0) == 18
    store._cleaner.step()
    assert sorted(path.name[-3:] for path in (tmp_path / "consumequeue/T/0").iterdir()) == ["200", "400"]
    store.close()


# ------------------------------------------------------------------------------------------------------- whole queues


def test_queues_without_any_message_in_the_log_can_be_removed(store: MessageStore, clock: ManualClock) -> None:
    fill(store, clock, 1, topic="Gone")
    fill(store, clock, 1, topic="SCHEDULE_TOPIC_XXXX")
    fill(store, clock, 2, topic="Kept")
    clock.advance(RESERVED_MS)
    assert list(store.remove_expired_queues()) == []
    store.remove_expired_files()
    turn(store, clock, ROUND_MS)
    assert log_files(store) == [3]
    assert list(store.remove_expired_queues()) == [("Gone", 0)]
    assert (store.max_offset("Gone", 0), store.max_offset("Kept", 0), store.max_offset("SCHEDULE_TOPIC_XXXX", 0)) == (
        0, 6, 3,
    )  # fmt: skip
    assert store.put(record(topic="Gone")).queue_offset == 0


def test_queues_of_unknown_topics_can_be_removed(store: MessageStore, tmp_path: Path) -> None:
    for topic in ("A", "B", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "%LMQ%x"):
        store.put(record(topic=topic))
    assert list(store.remove_unused_topics({"A"})) == [("B", 0)]
    assert not (tmp_path / "consumequeue/B/0").exists()
    assert (tmp_path / "consumequeue/RMQ_SYS_TRANS_HALF_TOPIC/0").exists()
