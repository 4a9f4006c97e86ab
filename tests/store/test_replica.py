"""A slave's store: bytes of a master's log in, the same log, queues and messages out, however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.errors import LogsDiffer, StoreError
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import SLAVE, SYNC_FLUSH
from orbitmq.store.records import PutStatus
from orbitmq.store.replica import ReplicaStore
from tests.support.batches import BatchItem, put_batch
from tests.support.disk import FaultyDisk
from tests.support.stores import CODES, abandon, bodies, open_store, record, small_options

FILE_SIZE = 4096
COUNT = 40


def open_replica(root: Path, disk: FaultyDisk | None = None, **changes: object) -> ReplicaStore:
    options = small_options(root, broker_role=SLAVE, **changes)
    replica = ReplicaStore(options, clock=ManualClock(), entry_codes=CODES, files=disk)
    replica.open()
    return replica


def filled(root: Path, count: int = COUNT) -> MessageStore:
    """A master with messages of several sizes in two queues and a batch, over several files."""
    master = open_store(root)
    for number in range(count):
        master.put(record(b"%d:" % number + b"x" * (number * 37 % 900), queue_id=number % 2, properties=b"TAGS\x01a"))
    put_batch(master, record(), [BatchItem(0, b"first", b""), BatchItem(0, b"second", b"")])
    return master


def log_bytes(store: MessageStore, start: int, end: int) -> bytes:
    files = store.commit_log.files
    found = b""
    while start < end:
        size = min(end - start, FILE_SIZE - start % FILE_SIZE)
        piece = store.commit_log.files.find(start)
        assert piece is not None
        found += bytes(piece.view[start % files.file_size : start % files.file_size + size])
        start += size
    return found


def feed(replica: ReplicaStore, master: MessageStore, step: int = 700, end: int | None = None) -> None:
    """Copy up to `end` in steps that never go beyond a file."""
    end = master.commit_log_max_offset if end is None else end
    while (place := replica.copied_to) < end:
        size = min(step, end - place, FILE_SIZE - place % FILE_SIZE)
        assert replica.copy(place, log_bytes(master, place, place + size))


def assert_same(replica: MessageStore, master: MessageStore) -> None:
    end = master.commit_log_max_offset
    assert replica.commit_log_max_offset == end
    start = max(0, replica.commit_log_min_offset)
    assert log_bytes(replica, start, end) == log_bytes(master, start, end)
    for queue_id in range(2):
        assert replica.entries("T", queue_id, 0, 1000) == master.entries("T", queue_id, 0, 1000)
        assert bodies(replica, queue_id=queue_id) == bodies(master, queue_id=queue_id)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.sets(st.integers(1, 18_000), max_size=60))
def test_bytes_cut_anywhere_become_the_same_store(tmp_path_factory: pytest.TempPathFactory, cuts: set[int]) -> None:
    root = tmp_path_factory.mktemp("replica")
    master = filled(root / "master")
    end = master.commit_log_max_offset
    places = sorted({0, end, *(cut for cut in cuts if cut < end), *range(0, end, FILE_SIZE)})
    replica = open_replica(root / "slave")
    for start, stop in pairwise(places):
        assert replica.copy(start, log_bytes(master, start, stop))
    assert_same(replica, master)
    replica.close()
    master.close()


def test_a_message_is_seen_when_its_last_byte_is_there(tmp_path: Path) -> None:
    master = open_store(tmp_path / "master")
    ends = [master.put(record(b"one")).end_offset, master.put(record(b"two")).end_offset]
    arrived: list[int] = []
    options = small_options(tmp_path / "slave", broker_role=SLAVE)
    replica = ReplicaStore(
        options, clock=ManualClock(), entry_codes=CODES, on_arrival=lambda *told: arrived.append(told[2])
    )
    replica.open()
    seen = []
    for place in range(ends[1]):
        replica.copy(place, log_bytes(master, place, place + 1))
        seen.append(replica.max_offset("T", 0))
    assert seen == [0] * (ends[0] - 1) + [1] * (ends[1] - ends[0]) + [2]
    assert arrived == [1, 2]
    replica.close()
    master.close()


def test_a_killed_slave_takes_no_message_for_whole_that_lacks_some_of_its_properties(tmp_path: Path) -> None:
    """They come last, and no sum covers them: with zeros in their place the message would differ from the master's."""
    properties = b"KEYS\x01k\x02UNIQ_KEY\x01abcdef"
    master = open_store(tmp_path / "master")
    for _ in range(2):
        master.put(record(properties=properties))
    second, end = master.commit_log.end // 2, master.commit_log.end
    for cut in range(end - len(properties) - 1, end):
        replica = open_replica(tmp_path / str(cut))
        replica.copy(0, log_bytes(master, 0, cut))
        abandon(replica)
        replica._let_go()
        again = open_replica(tmp_path / str(cut))
        assert again.copied_to == second, cut
        assert again.max_offset("T", 0) == 1
        feed(again, master)
        assert_same(again, master)
        again.close()
    master.close()


@pytest.mark.parametrize("ends", ["closed", "killed"])
def test_half_a_message_is_asked_for_again_after_a_start(tmp_path: Path, ends: str) -> None:
    master = filled(tmp_path / "master")
    replica = open_replica(tmp_path / "slave")
    feed(replica, master, end=9000)
    whole = replica.commit_log.whole
    assert whole is not None
    assert 8000 < whole < replica.copied_to == 9000
    if ends == "closed":
        replica.close()
    else:
        abandon(replica)
        replica._let_go()
    again = open_replica(tmp_path / "slave")
    assert again.was_killed == (ends == "killed")
    assert again.copied_to == whole
    feed(again, master)
    assert_same(again, master)
    again.close()
    assert not (tmp_path / "slave" / "abort").exists()
    master.close()


def test_a_copy_may_begin_with_any_file_of_the_master(tmp_path: Path) -> None:
    master = filled(tmp_path / "master")
    replica = open_replica(tmp_path / "slave")
    start, end = 2 * FILE_SIZE, master.commit_log_max_offset
    for place in range(start, end, 512):
        assert replica.copy(place, log_bytes(master, place, min(end, place + 512)))
    assert replica.commit_log_min_offset == start
    assert log_bytes(replica, start, end) == log_bytes(master, start, end)
    entries = replica.entries("T", 0, 0, 1000)
    first = replica.min_offset("T", 0)
    assert first > 0
    assert entries[-1] == master.entries("T", 0, 0, 1000)[-1]
    assert replica.get("T", 0, first, 1).buffers[0] == master.get("T", 0, first, 1).buffers[0]
    replica.close()
    master.close()


def test_what_does_not_continue_the_log_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    master = filled(tmp_path / "master")
    replica = open_replica(tmp_path / "slave")
    with pytest.raises(LogsDiffer, match="cannot begin at 100"):
        replica.copy(100, b"x")
    feed(replica, master, end=3000)
    with pytest.raises(LogsDiffer, match="from 2990, this one ends at 3000"):
        replica.copy(2990, log_bytes(master, 2990, 3100))
    with pytest.raises(LogsDiffer, match="beyond a file"):
        replica.copy(3000, bytes(FILE_SIZE))
    assert replica.copied_to == 3000
    feed(replica, master)
    assert_same(replica, master)
    replica.close()
    master.close()


def test_bytes_that_are_no_message_stop_the_copy(tmp_path: Path) -> None:
    master = filled(tmp_path / "master")
    replica = open_replica(tmp_path / "slave")
    feed(replica, master, end=3000)
    whole = replica.commit_log.whole
    assert whole is not None
    with pytest.raises(LogsDiffer, match=f"at {whole} of its log is no message"):
        replica.copy(3000, b"\x01" * 1000)
    assert replica.max_offset("T", 0) + replica.max_offset("T", 1) > 0
    replica.close()
    again = open_replica(tmp_path / "slave")
    assert again.copied_to == whole
    again.close()
    master.close()


def test_it_takes_no_messages_of_its_own(tmp_path: Path) -> None:
    replica = open_replica(tmp_path)
    assert replica.put(record()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert put_batch(replica, record(), [BatchItem(0, b"a", b"")]).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert replica.commit_log_max_offset == 0
    replica.close()


def test_with_sync_flush_it_vouches_for_what_is_on_disk_and_shows_no_more(tmp_path: Path) -> None:
    master = filled(tmp_path / "master")
    replica = open_replica(tmp_path / "slave", flush_disk_type=SYNC_FLUSH)
    replica._log_worker.stop()  # its step is the test's to make
    feed(replica, master)
    assert replica.safe_to < replica.copied_to
    assert bodies(replica) == []
    told: list[bool] = []
    replica.when_flushed(replica.copied_to, told.append)
    replica._log_flusher.step()
    assert told == [True]
    assert replica.safe_to == replica.copied_to
    assert bodies(replica) == bodies(master)
    replica.close()
    master.close()


def test_a_full_disk_stops_the_copy_and_costs_nothing(tmp_path: Path) -> None:
    master = filled(tmp_path / "master")
    disk = FaultyDisk()
    replica = open_replica(tmp_path / "slave", disk)
    feed(replica, master, end=3000)
    disk.room = 0
    place = replica.copied_to
    while replica.copy(place, log_bytes(master, place, place + 8)):
        place += 8
        assert place < 3 * FILE_SIZE, "the disk is full"
    assert replica.copied_to == place
    disk.room = None
    feed(replica, master)
    assert_same(replica, master)
    replica.close()
    master.close()


def test_where_messages_begin_is_known_by_file(tmp_path: Path) -> None:
    master = filled(tmp_path / "master")
    replica = open_replica(tmp_path / "slave")
    feed(replica, master)
    assert replica.file_starts() == list(range(0, master.commit_log_max_offset, FILE_SIZE))
    places = [place for start in replica.file_starts() for place in replica.message_places(start)]
    entries = [entry for queue_id in range(2) for entry in master.entries("T", queue_id, 0, 1000)]
    assert places == sorted(entry[0] for entry in entries)
    last = replica.last_message()
    assert last is not None
    assert last == (max(places), bytes(master.unit_at(max(places)) or b""))
    replica.close()
    master.close()


def test_half_a_message_of_one_master_is_not_continued_by_another(tmp_path: Path) -> None:
    """A master lost its end in a crash and has another message there now, of the same size."""
    first, second = open_store(tmp_path / "first"), open_store(tmp_path / "second")
    for master in (first, second):
        master.put(record(b"both"))
    end = first.commit_log_max_offset
    first.put(record(b"lost" * 100))
    second.put(record(b"new!" * 100))
    replica = open_replica(tmp_path / "slave")
    feed(replica, first, end=end + 300)
    replica.forget_half()
    assert replica.copied_to == replica.safe_to == end
    feed(replica, second)
    assert_same(replica, second)

    glued = open_replica(tmp_path / "glued")
    feed(glued, first, end=end + 300)
    with pytest.raises(LogsDiffer, match=f"at {end} of its log is no message"):
        feed(glued, second)  # whoever forgets nothing is found out by the sum of the body
    assert bodies(glued) == [b"both"]
    glued.forget_half()
    feed(glued, second)
    assert_same(glued, second)
    for store in (replica, glued, first, second):
        store.close()


def test_a_flush_that_ran_meanwhile_does_not_vouch_for_what_was_taken_back(tmp_path: Path) -> None:
    master = filled(tmp_path / "master")
    replica = open_replica(tmp_path / "slave")
    feed(replica, master, end=3000)
    log, whole = replica.commit_log, replica.commit_log.whole
    sync = log.files.sync

    def taken_back_meanwhile(start: int, end: int) -> None:
        sync(start, end)
        replica.forget_half()

    log.files.sync = taken_back_meanwhile  # type: ignore[method-assign]
    log.flush()
    assert whole is not None
    assert log.flushed <= whole == log.end
    replica.close()
    master.close()


def test_a_log_with_half_a_message_only_begins_anew_where_the_master_does(tmp_path: Path) -> None:
    master = filled(tmp_path / "master")
    replica = open_replica(tmp_path / "slave")
    feed(replica, master, end=20)
    replica.forget_half()
    assert replica.is_empty
    assert replica.copy(3 * FILE_SIZE, b"")  # a sign of life
    for place in range(3 * FILE_SIZE, master.commit_log_max_offset, 512):
        assert replica.copy(place, log_bytes(master, place, min(master.commit_log_max_offset, place + 512)))
    assert replica.commit_log_min_offset == 3 * FILE_SIZE
    assert not replica.is_empty
    replica.close()
    master.close()


def without_room_for_entries(
    root: Path, disk: FaultyDisk, master: MessageStore, end: int, start: int = 0, **changes: object
) -> ReplicaStore:
    """A replica whose log goes to `end`, in its first file, and of whose messages from `start` on no new queue got an
    entry: the log had its blocks when the disk was full.
    """
    replica = open_replica(root, disk, **changes)
    feed(replica, master, end=start or 20)
    disk.room = 0
    feed(replica, master, step=FILE_SIZE, end=end)
    return replica


def message_ends(master: MessageStore) -> list[int]:
    """Where the messages of both queues end, in the order of the log."""
    entries = [entry for queue_id in range(2) for entry in master.entries("T", queue_id, 0, 1000)]
    return sorted(place + size for place, size, _ in entries)


def test_what_waits_for_room_in_its_queue_is_no_half_message(tmp_path: Path) -> None:
    """The master was told of it, and may have died since."""
    master, disk = filled(tmp_path / "master"), FaultyDisk()
    whole = message_ends(master)[5]
    replica = without_room_for_entries(tmp_path / "slave", disk, master, whole + 100)
    assert replica.max_offset("T", 0) == replica.max_offset("T", 1) == 0
    assert not replica.forget_half(), "there is no room yet"
    assert replica.copied_to == whole
    assert replica.commit_log.readable == 0
    assert not replica.copy(whole, log_bytes(master, whole, whole + 100))
    assert not replica.is_empty, "or it would begin anew where another master does"
    with pytest.raises(LogsDiffer, match=f"from {2 * FILE_SIZE}, this one ends at {whole}"):
        replica.copy(2 * FILE_SIZE, log_bytes(master, 2 * FILE_SIZE, 2 * FILE_SIZE + 700))
    disk.room = None
    assert replica.forget_half()
    assert replica.copied_to == whole
    assert replica.max_offset("T", 0) + replica.max_offset("T", 1) == 6
    feed(replica, master)
    assert_same(replica, master)
    replica.close()
    master.close()


@pytest.mark.parametrize("ends", ["closed", "killed"])
def test_what_waits_for_room_in_its_queue_is_entered_by_the_next_start(tmp_path: Path, ends: str) -> None:
    master, disk = filled(tmp_path / "master"), FaultyDisk()
    whole = message_ends(master)[5]
    replica = without_room_for_entries(tmp_path / "slave", disk, master, whole + 100)
    if ends == "closed":
        replica.close()
    else:
        abandon(replica)
        replica._let_go()
    with pytest.raises(StoreError, match=r"cannot be used: .*the disk is full"):
        open_replica(tmp_path / "slave", disk)
    again = open_store(tmp_path / "slave")  # it was promoted
    assert again.was_killed == (ends == "killed")
    assert again.commit_log_max_offset == whole
    for queue_id in range(2):
        assert bodies(again, queue_id=queue_id) == bodies(master, queue_id=queue_id)[:3]
    again.close()
    master.close()


def test_a_file_that_waits_for_room_in_the_queues_stays_closed(tmp_path: Path) -> None:
    master, disk = filled(tmp_path / "master"), FaultyDisk()
    replica = without_room_for_entries(tmp_path / "slave", disk, master, FILE_SIZE)
    assert not replica.forget_half()
    assert replica.copied_to == FILE_SIZE
    disk.room = None
    assert replica.forget_half()
    feed(replica, master)
    assert_same(replica, master)
    replica.close()
    master.close()


def test_a_message_that_found_room_in_some_of_its_queues_is_in_all_after_a_start(tmp_path: Path) -> None:
    lights: dict[str, object] = {"enable_multi_dispatch": True, "enable_lmq": True}
    master, disk = open_store(tmp_path / "master", **lights), FaultyDisk()
    first = master.put(record(b"one")).end_offset
    master.put(record(b"two", properties=b"INNER_MULTI_DISPATCH\x01%LMQ%a"))
    end = master.commit_log_max_offset
    replica = without_room_for_entries(tmp_path / "slave", disk, master, end, first, **lights)
    assert replica.commit_log.whole == first
    replica.close()
    again = open_replica(tmp_path / "slave", **lights)
    assert again.copied_to == end
    for topic, expected in (("T", [b"one", b"two"]), ("%LMQ%a", [b"two"])):
        assert bodies(again, topic) == bodies(master, topic) == expected
    again.close()
    master.close()


def test_who_waits_for_what_was_taken_back_keeps_nobody_waiting(tmp_path: Path) -> None:
    """A link ends while its last report waits for the disk, and the next one begins with a wait of its own."""
    master = filled(tmp_path / "master")
    replica = open_replica(tmp_path / "slave", flush_disk_type=SYNC_FLUSH)
    replica._log_worker.stop()  # its step is the test's to make
    told: list[tuple[str, bool]] = []

    def wait(name: str) -> None:
        replica.when_flushed(replica.copied_to, lambda ok: told.append((name, ok)))

    whole = message_ends(master)[5]
    feed(replica, master, end=whole - 100)
    wait("before")
    feed(replica, master, end=whole + 100)
    wait("half")
    wait("the same half")
    replica.forget_half()
    assert replica.copied_to == whole
    assert told == [("half", False), ("the same half", False)]
    wait("next link")
    replica._log_flusher.step()
    assert told[2:] == [("before", True), ("next link", True)]
    assert len(replica.flush_waits) == 0
    replica.close()
    master.close()
