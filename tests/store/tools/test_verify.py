"""Each kind of damage is named: every test makes one in a sound store of orbitmq's own."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.errors import StoreError
from orbitmq.message.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.message.unit import MAGIC
from orbitmq.runtime.clock import ManualClock
from orbitmq.store import engine
from orbitmq.store.tools.findings import Level, Report, State
from orbitmq.store.tools.verify import verify
from tests.support.disk import FaultyDisk
from tests.support.stores import NEVER_MS, abandon, open_store, record

INDEX = {"message_index_enable": True, "max_hash_slot_num": 20, "max_index_num": 100}
EXTENDED = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 4096}
ON = {"enable_multi_dispatch": True, "enable_lmq": True}
LOG = Path("commitlog") / f"{0:020d}"
QUEUE = Path("consumequeue") / "T" / "0" / f"{0:020d}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """60 messages in three log files, one queue of six files, one index file, extensions, delayed messages."""
    store = open_store(tmp_path, ManualClock(), **INDEX, **EXTENDED, **ON)
    for number in range(60):
        properties = b"TAGS\x01Tag%d\x02KEYS\x01key%d\x02INNER_MULTI_DISPATCH\x01%%LMQ%%a" % (number % 3, number)
        store.put(record(b"body%d" % number, properties=properties))
    store.put(record(topic=SCHEDULE_TOPIC, queue_id=2, properties=b"DELAY\x013"))
    store.close()
    return tmp_path


def change(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def damage(report: Report) -> list[tuple[str, int, str]]:
    return [(f.path, f.position, f.text) for f in report.findings if f.level is Level.DAMAGE]


def one(root: Path, path: Path | str, position: int, *texts: str) -> None:
    """The damage is found at a place, and what is said of it."""
    found = damage(verify(root))
    assert any(
        (where, at) == (str(path), position) and all(text in what for text in texts) for where, at, what in found
    ), found


def unit_start(root: Path, number: int) -> int:
    """Where message `number` lies, by its queue entry."""
    path = root / QUEUE.with_name(f"{number // 10 * 200:020d}")
    return int(struct.unpack_from(">q", path.read_bytes(), number % 10 * 20)[0])


def test_a_sound_store(root: Path) -> None:
    report = verify(root)
    assert report.findings == []
    assert (report.state, report.messages, report.queued, report.queues) == (State.STOPPED, 61, 61, 3)
    assert (report.entries, report.index_files, report.index_entries) == (121, 1, 60)
    assert report.log_end > 8192


def test_nothing_is_written(root: Path) -> None:
    def state() -> list[tuple[Path, int, bytes]]:
        return [
            (path, path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(root.rglob("*")) if path.is_file()
        ]

    before = state()
    verify(root)
    assert state() == before


# ---------------------------------------------------------------------------------------------------------- the log


def test_a_flipped_bit_in_a_body(root: Path) -> None:
    change(root / LOG, unit_start(root, 3) + 88, b"X")
    one(root, LOG, unit_start(root, 3), "does not match its checksum", "57 whole messages behind")


def test_a_message_that_is_cut_off(root: Path) -> None:
    start = unit_start(root, 3)
    change(root / LOG, start + 60, bytes(unit_start(root, 4) - start - 60))
    one(root, LOG, start, "not whole", "57 whole messages behind")


def test_a_message_of_another_place(root: Path) -> None:
    data = (root / LOG).read_bytes()
    first, second, third = (unit_start(root, number) for number in (1, 2, 3))
    assert third - second == second - first
    change(root / LOG, second, data[first:second])
    one(root, LOG, second, f"belongs to {first}")


def test_zeros_in_the_middle(root: Path) -> None:
    start, end = unit_start(root, 5), unit_start(root, 9)
    change(root / LOG, start, bytes(end - start))
    one(root, LOG, start, "nothing was written here", f"{end - start} bytes", "52 whole messages behind")


def test_a_whole_file_of_zeros(root: Path) -> None:
    change(root / LOG, 0, bytes(4096))
    one(root, LOG, 0, "nothing was written here")


def test_garbage_without_any_message_behind(root: Path) -> None:
    end = verify(root).log_end
    change(root / LOG.with_name(f"{end // 4096 * 4096:020d}"), end % 4096, b"garbage!")
    one(root, LOG.with_name(f"{end // 4096 * 4096:020d}"), end % 4096, "no message begins here", "0 whole messages")


def test_half_a_message_at_the_end(root: Path) -> None:
    end = verify(root).log_end
    change(root / LOG.with_name(f"{end // 4096 * 4096:020d}"), end % 4096, struct.pack(">ii", 300, MAGIC))
    one(root, LOG.with_name(f"{end // 4096 * 4096:020d}"), end % 4096, "not whole: 300 bytes")


def test_a_wrong_record_at_the_end_of_a_file(root: Path) -> None:
    data = (root / LOG).read_bytes()
    position = data.rindex(bytes.fromhex("cbd43194")) - 4
    change(root / LOG, position, struct.pack(">i", 17))
    one(root, LOG, position, "has 17 bytes left")


def test_a_missing_file_of_the_log(root: Path) -> None:
    (root / LOG.with_name(f"{4096:020d}")).unlink()
    one(root, LOG.with_name(f"{8192:020d}"), 0, "follows a gap", f"{4096:020d} is missing")


@pytest.mark.parametrize("directory", ["commitlog", "consumequeue/T/0"])
def test_a_file_of_another_size(root: Path, directory: str) -> None:
    path = sorted((root / directory).iterdir())[1]
    os.truncate(path, 100)
    one(root, path.relative_to(root), 0, "has 100 bytes where the other files have")


@pytest.mark.parametrize("name", ["notes.txt", "123", f"{40:020d}/"])
def test_a_stranger_in_a_directory(root: Path, name: str) -> None:
    path = root / "commitlog" / name
    path.mkdir() if name.endswith("/") else path.write_bytes(b"x")
    one(root, Path("commitlog") / name, 0, "does not belong here")


# ------------------------------------------------------------------------------------------------------- the queues


def test_an_entry_that_was_never_written(root: Path) -> None:
    change(root / QUEUE, 60, bytes(20))
    one(root, QUEUE, 60, "1 message from queue offset 3 on: no entry where it should be")


def test_an_empty_file_before_others(root: Path) -> None:
    change(root / QUEUE, 100, bytes(100))
    text = damage(verify(root))
    assert any("entry 5 is empty, but more follows in the next file" in what for _, _, what in text)


def test_an_entry_of_another_message(root: Path) -> None:
    data = (root / QUEUE).read_bytes()
    change(root / QUEUE, 40, data[20:40])
    found = damage(verify(root))
    assert [(path, at) for path, at, _ in found] == [(str(QUEUE), 40)] * 2
    assert "where it should be is another message's" in found[0][2]
    assert "there is no whole message of this queue and offset" in found[1][2]


def test_entries_behind_the_end_of_the_queue(root: Path) -> None:
    path = QUEUE.with_name(f"{1000:020d}")
    change(root / path, 100, bytes(100))
    one(root, path, 100, "5 messages from queue offset 55 on: no entry: the queue ends before")


def test_a_queue_that_begins_too_late(root: Path) -> None:
    (root / QUEUE).unlink()
    one(root, QUEUE, 0, "10 messages from queue offset 0 on: no entry: the queue begins behind")


def test_entries_behind_the_end_of_the_log(root: Path) -> None:
    start = unit_start(root, 57)
    change(root / LOG.with_name(f"{8192:020d}"), start - 8192, bytes(4096 - (start - 8192)))
    path = QUEUE.with_name(f"{1000:020d}")
    one(root, path, 140, "3 entries from queue offset 57 on", f"the log ends before their messages, at {start}")


def test_a_missing_queue(root: Path) -> None:
    (root / "consumequeue" / SCHEDULE_TOPIC / "2" / f"{0:020d}").unlink()
    (root / "consumequeue" / SCHEDULE_TOPIC / "2").rmdir()
    one(root, f"consumequeue/{SCHEDULE_TOPIC}/2", 0, "the queue is missing; 1 message")


def test_a_missing_light_queue_is_one_whose_entries_are_missing(root: Path) -> None:
    path = Path("consumequeue") / "%LMQ%a" / "0" / f"{200:020d}"
    change(root / path, 0, bytes(20))
    assert any("no entry where it should be" in text for where, _, text in damage(verify(root)) if where == str(path))


def test_a_removed_topic_is_no_damage(root: Path) -> None:
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"Other":{}}}')
    for path in sorted((root / "consumequeue" / "T").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    report = verify(root)
    assert report.is_sound
    assert ["the topic was removed" in finding.text for finding in report.findings] == [True]


def test_a_topic_made_anew_is_no_damage(root: Path) -> None:
    store = open_store(root, **INDEX, **EXTENDED, **ON)
    list(store.remove_topic("T"))
    for number in range(12):
        store.put(record(b"new", properties=b"KEYS\x01new%d" % number))
    store.close()
    report = verify(root)
    assert report.findings == []
    assert report.messages == 73


def test_a_wrong_tag_hash(root: Path) -> None:
    store = open_store(root, **INDEX)
    store.put(record(topic="Plain", properties=b"TAGS\x01a"))
    store.close()
    path = Path("consumequeue") / "Plain" / "0" / f"{0:020d}"
    change(root / path, 12, struct.pack(">q", 17))
    one(root, path, 0, "another tag hash")


def test_entries_with_times_are_no_wrong_hashes(root: Path) -> None:
    store = open_store(root, **INDEX)
    properties = b"TAGS\x01a\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02TIMER_OUT_MS\x011800000000999"
    store.put(record(topic=TIMER_TOPIC, properties=properties))
    assert store.entries(TIMER_TOPIC, 0, 0, 1)[0][2] == 1_800_000_001_000
    store.close()
    assert verify(root).findings == []


def test_a_lost_extension(root: Path) -> None:
    change(root / "consumequeue_ext" / "T" / "0" / f"{0:020d}", 40, bytes(20))
    one(root, QUEUE, 40, "1 message from queue offset 2 on", "leads to no unit of theirs in the extension")


# -------------------------------------------------------------------------------------------------------- the index


def index_path(root: Path) -> Path:
    return next((root / "index").iterdir())


@pytest.mark.parametrize(
    ("position", "data", "found_at", "text"),
    [
        (40 + 80 + 20 * 7 + 16, b"\0\0\0\x09", 40 + 80 + 20 * 7, "entry 7 does not follow"),
        (40 + 80 + 20 * 7 + 4, b"\0\0\0\0\0\0\0\0", 40 + 80 + 20 * 7, "entry 7 does not follow"),
        (40 + 4 * 3, b"\0\0\0\x01", 40 + 4 * 3, "slot 3 does not lead to its newest entry"),
        (16, b"\0\0\0\0\0\0\0\x09", 16, "the head names other messages"),
    ],
)
def test_a_damaged_index_file(root: Path, position: int, data: bytes, found_at: int, text: str) -> None:
    change(index_path(root), position, data)
    one(root, Path("index") / index_path(root).name, found_at, text)


def test_a_head_that_claims_too_much(root: Path) -> None:
    change(index_path(root), 36, struct.pack(">i", 80))
    one(root, Path("index") / index_path(root).name, 36, "says that it has 79 entries")


def test_an_index_that_ends_too_early(root: Path) -> None:
    for _ in range(2):
        store = open_store(root, **EXTENDED, **ON)
        store.put(record(properties=b"KEYS\x01late"))
        store.close()
    one(root, "index", 0, "2 messages with keys", "the index ends before them")


def test_a_key_that_is_missing_in_the_middle(root: Path) -> None:
    store = open_store(root, **EXTENDED, **ON)
    store.put(record(properties=b"KEYS\x01a b"))
    end = store.commit_log_max_offset
    store.close()
    store = open_store(root, **INDEX, **EXTENDED, **ON)
    index = store._keys.index
    index.add([7], [end], [1])
    store._keys.indexer.position = end
    store.close()
    one(root, "index", 0, "1 message with keys", "have no entry")
    assert any("1 entry, the first for" in text for _, _, text in damage(verify(root)))


def test_no_index_at_all_is_a_remark(root: Path) -> None:
    index_path(root).unlink()
    (root / "index").rmdir()
    report = verify(root)
    assert report.is_sound
    assert "60 messages cannot be found by key" in report.findings[0].text


@pytest.mark.parametrize("shape", [(50, 300), (5000, 20000), (7, 61), (1, 62), (1000, 100)])
def test_the_shape_of_an_index_is_seen_from_its_entries(tmp_path: Path, shape: tuple[int, int]) -> None:
    store = open_store(tmp_path, message_index_enable=True, max_hash_slot_num=shape[0], max_index_num=shape[1])
    for number in range(150):
        store.put(record(properties=b"KEYS\x01k%d" % number))
    store.close()
    report = verify(tmp_path)
    assert report.findings == []
    assert report.index_entries == 150


# ------------------------------------------------------------------------------------------------- whose directory


def test_a_missing_checkpoint(root: Path) -> None:
    (root / "checkpoint").unlink()
    one(root, "checkpoint", 0, "is missing")


@pytest.mark.parametrize("make", [lambda path: None, Path.mkdir, lambda path: path.write_bytes(b"")])
def test_what_is_no_store_cannot_be_read(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "store")
    with pytest.raises(StoreError, match="no store"):
        verify(tmp_path / "store")


def test_an_empty_store_is_sound(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert verify(tmp_path).findings == []
    store.close()
    assert verify(tmp_path).findings == []


def test_a_killed_broker_is_told(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = open_store(tmp_path, files=disk)
    for number in range(20):
        store.put(record(b"%d" % number))
    abandon(store)
    disk.kill()
    report = verify(tmp_path)
    assert (report.state, report.findings) == (State.CRASHED, [])


def test_what_a_killed_broker_has_not_entered_yet_is_no_damage(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = open_store(tmp_path, files=disk)
    for number in range(5):
        store.put(record(b"%d" % number))
    abandon(store)
    disk.kill()
    change(tmp_path / QUEUE, 60, bytes(40))
    report = verify(tmp_path)
    assert report.is_sound
    assert "2 messages from queue offset 3 on: no entry yet" in report.findings[0].text
    (tmp_path / "abort").unlink()
    assert not verify(tmp_path).is_sound


def test_a_running_broker_is_looked_at_up_to_what_it_has_entered(tmp_path: Path) -> None:
    store = open_store(tmp_path, **INDEX)
    for number in range(25):
        store.put(record(b"%d" % number, properties=b"KEYS\x01k%d" % number))
    end = store.commit_log_max_offset
    change(tmp_path / "commitlog" / f"{end // 4096 * 4096:020d}", end % 4096, b"half a message")
    report = verify(tmp_path)
    assert (report.state, report.messages, report.is_sound) == (State.LIVE, 25, True)
    change(tmp_path / "commitlog" / f"{end // 4096 * 4096:020d}", end % 4096, bytes(14))
    store.put(record(b"still open"))
    store.close()
    assert verify(tmp_path).messages == 26


def test_an_index_that_a_running_broker_is_about_to_fill_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "INDEX_INTERVAL_MS", NEVER_MS)
    store = open_store(tmp_path, **INDEX)
    store.put(record(properties=b"KEYS\x01k"))
    store._keys.index._writable()
    assert verify(tmp_path).is_sound
    store.close()
    assert verify(tmp_path).findings == []


def test_a_broker_that_writes_all_the_time_is_found_sound(tmp_path: Path) -> None:
    store = open_store(tmp_path, **INDEX, **EXTENDED)
    store.put(record())
    looked = threading.Event()
    to_write = threading.Semaphore(0)  # so many a look: a store of tiny files holds thousands of them open otherwise

    def write() -> None:
        number = 0
        while not looked.is_set():
            to_write.acquire()
            store.put(record(b"x" * (number % 90), f"T{number % 5}", properties=b"KEYS\x01k%d" % number))
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reports = []
        while len(reports) < 8 or reports[-1].messages < reports[0].messages + 100:
            to_write.release(100)
            reports.append(verify(tmp_path))
    finally:
        looked.set()
        to_write.release()
        writer.join()
    store.close()
    assert {report.state for report in reports} == {State.LIVE}
    assert [report.findings for report in reports if not report.is_sound] == []
    assert verify(tmp_path).findings == []


def test_a_log_in_other_directories(tmp_path: Path) -> None:
    logs = [tmp_path / "a", tmp_path / "b"]
    store = open_store(tmp_path / "store", store_path_commit_log=",".join(map(str, logs)))
    for number in range(60):
        store.put(record(b"%d" % number))
    store.close()
    assert all(any(log.iterdir()) for log in logs)
    report = verify(tmp_path / "store", logs)
    assert (report.messages, report.findings) == (60, [])
    with pytest.raises(StoreError, match="commitlog"):
        verify(tmp_path / "store")


def test_progress_is_told(tmp_path: Path) -> None:
    store = open_store(tmp_path, mapped_file_size_commit_log=1 << 20)
    for _ in range(2500):
        store.put(record())
    store.close()
    told: list[tuple[int, int]] = []
    verify(tmp_path, progress=lambda done, whole: told.append((done, whole)))
    assert len(told) == 3
    assert told == sorted(told)
    assert told[-1] == (1 << 20, 1 << 20)
