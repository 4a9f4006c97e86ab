"""The key index over several files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import StoreDamaged
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.files import Files
from orbitmq.store.index import proof, recovery
from orbitmq.store.index.key_index import KeyIndex, file_name
from orbitmq.store.index.recovery import IndexedLog
from tests.support.disk import FaultyDisk
from tests.support.indexes import SHAPE, T0, Row

ROOM = SHAPE.entries - 1
FOREVER = 1 << 62
LOG_END = 1 << 40


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class NumberedLog:
    """A log of messages of 1000 bytes, stored at T0 + their physical offset, with the keys 1, 2, 3, ..."""

    def __init__(self, end: int = LOG_END, start: int = 0) -> None:
        self.start = start
        self.end = end
        self.can_be_read = True

    def store_time(self, offset: int) -> int:
        return T0 + offset if self.can_be_read else -1

    def hashes_at(self, offset: int) -> list[int] | None:
        return [offset // 1000 + 1] if self.can_be_read and offset % 1000 == 0 else None

    def first_with_keys(self, start: int, end: int) -> int | None:
        first = start + -start % 1000
        return first if first < end else None

    def behind(self, offset: int) -> int:
        return offset + 1000


def opened(
    root: Path,
    *,
    clean: bool = True,
    clock: ManualClock | None = None,
    log_end: int = LOG_END,
    log: IndexedLog | None = None,
    **more: Any,
) -> KeyIndex:
    fs = Files()
    checkpoint = Checkpoint(fs, root / "checkpoint")
    checkpoint.load()
    index = KeyIndex(fs, root / "index", SHAPE, checkpoint, clock or ManualClock(T0))
    index.load(log or NumberedLog(log_end), clean=clean, **more)
    return index


def numbered(start: int, stop: int) -> list[Row]:
    """Keys 1, 2, 3, ... of messages at 0, 1000, 2000, ..."""
    return [(number + 1, 1000 * number, T0 + 1000 * number) for number in range(start, stop)]


def fill(index: KeyIndex, rows: list[Row]) -> None:
    index.add([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])


def found(index: KeyIndex, count: int) -> list[int]:
    """Keys up to `count` that are found where they are."""
    return [key for key in range(1, count + 1) if list(index.find(key, 0, FOREVER)) == [1000 * (key - 1)]]


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "index").iterdir())


def test_a_file_is_named_after_its_creation_in_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert file_name(1_795_256_142_039) == "20261121101542039"
    monkeypatch.setenv("TZ", "XYZ-5:30")
    time.tzset()
    assert file_name(1_795_256_142_007) == "20261121154542007"


def test_no_file_is_made_before_there_is_a_key(tmp_path: Path) -> None:
    index = opened(tmp_path)
    index.flush()
    assert not (tmp_path / "index").exists()
    assert (index.newest, list(index.find(1, 0, FOREVER))) == (None, [])


def test_a_full_file_is_followed_by_the_next(tmp_path: Path) -> None:
    index = opened(tmp_path)
    fill(index, numbered(0, 3 * ROOM - 1))
    first, second, third = index.files
    assert (first.is_full, second.is_full, third.count) == (True, True, SHAPE.entries - 1)
    assert second.begin_offset == first.end_offset + 1000
    assert found(index, 100) == list(range(1, 3 * ROOM))
    index.close()
    assert found(opened(tmp_path), 100) == list(range(1, 3 * ROOM))


def test_files_keep_their_order_when_the_clock_is_set_back(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    index = opened(tmp_path, clock=clock)
    for start in range(0, 4 * ROOM, ROOM):
        fill(index, numbered(start, start + ROOM))
        clock.advance(-3_600_000)
    made = [file.file.path.name for file in index.files]
    assert made == names(tmp_path) == [str(int(file_name(T0)) + step) for step in range(4)]


def test_the_newest_come_first_over_all_files(tmp_path: Path) -> None:
    index = opened(tmp_path)
    fill(index, [(5, 1000 * number, T0 + 1000 * number) for number in range(3 * ROOM)])
    places = list(range(1000 * (3 * ROOM - 1), -1, -1000))
    assert list(index.find(5, 0, FOREVER)) == places
    begin, end = T0 + 15_000, T0 + 41_000
    assert list(index.find(5, begin, end)) == [place for place in places if 15_000 <= place <= 41_000]


def test_a_file_of_another_time_is_not_looked_at(tmp_path: Path) -> None:
    index = opened(tmp_path)
    fill(index, numbered(0, 3 * ROOM))
    index.files[0].file.close()
    index.files[2].file.close()
    inside = 1000 * ROOM + 5000
    assert list(index.find(inside // 1000 + 1, T0 + inside, T0 + inside)) == [inside]


def test_files_behind_the_log_go_but_never_the_last(tmp_path: Path) -> None:
    index = opened(tmp_path)
    fill(index, numbered(0, 3 * ROOM))
    first, second, third = names(tmp_path)
    index.forget_below(1000 * (ROOM - 1))
    assert names(tmp_path) == [first, second, third]
    index.forget_below(1000 * (ROOM - 1) + 1)
    assert names(tmp_path) == [second, third]
    index.forget_below(LOG_END)
    assert names(tmp_path) == [third]
    assert found(index, 3 * ROOM) == list(range(2 * ROOM + 1, 3 * ROOM + 1))


def test_the_checkpoint_covers_full_files_only_and_only_once_flushed(tmp_path: Path) -> None:
    index = opened(tmp_path)
    fill(index, numbered(0, 2 * ROOM + 5))
    assert (index.awaits_flush, index._checkpoint.index_timestamp) == (True, 0)
    index.flush()
    assert (index.awaits_flush, index._checkpoint.index_timestamp) == (False, index.files[1].end_timestamp)
    again = Checkpoint(Files(), tmp_path / "checkpoint")
    again.load()
    assert again.index_timestamp == T0 + 1000 * (2 * ROOM - 1)


def test_other_names_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "notes.txt").write_text("x")
    (tmp_path / "index" / "20260101000000000").touch()
    index = opened(tmp_path)
    assert names(tmp_path) == ["notes.txt"]  # the empty file is one whose making was cut off
    fill(index, numbered(0, 1))
    assert len(index.files) == 1


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    fill(opened(tmp_path), numbered(0, 1))
    (path,) = (tmp_path / "index").iterdir()
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(StoreDamaged, match=f"{path.name}: has {SHAPE.file_size + 1} bytes"):
        opened(tmp_path)


# ------------------------------------------------------------------------------------------------------- after a crash


def spoil(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def left_by_a_crash(root: Path, count: int, *, flushed: int = 0) -> list[Path]:
    """Files with `count` keys, of which the first `flushed` were covered by a flush."""
    index = opened(root)
    fill(index, numbered(0, flushed))
    index.flush()
    fill(index, numbered(flushed, count))
    index.close()
    return sorted((root / "index").iterdir())


def test_after_a_crash_slots_and_header_are_made_anew(tmp_path: Path) -> None:
    (path,) = left_by_a_crash(tmp_path, 10)
    spoil(path, 0, bytes(SHAPE.entries_start))
    index = opened(tmp_path, clean=False)
    assert found(index, 10) == list(range(1, 10))  # the last entry is never believed
    file = index.files[0]
    assert (file.begin_timestamp, file.end_timestamp) == (T0, T0 + 8000)
    assert (file.begin_offset, file.end_offset, file.count, file.slots_used) == (0, 8000, 10, 7)
    fill(index, numbered(9, 12))
    assert found(index, 12) == list(range(1, 13))


def test_after_a_crash_a_file_ends_where_it_lost_something_and_later_ones_go(tmp_path: Path) -> None:
    first, second, third = left_by_a_crash(tmp_path, 3 * ROOM, flushed=ROOM + 1)
    spoil(second, SHAPE.entry_position(8), bytes(40))
    index = opened(tmp_path, clean=False)
    assert names(tmp_path) == [first.name, second.name]
    assert found(index, 3 * ROOM) == list(range(1, ROOM + 7))
    assert not third.exists()
    data = second.read_bytes()
    assert data[SHAPE.entry_position(7) :] == bytes(SHAPE.file_size - SHAPE.entry_position(7))


def test_of_a_file_the_checkpoint_covers_some_entries_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "SAMPLES", 2)
    monkeypatch.setattr(recovery, "MESSAGES_COMPARED", 2)
    first, second = left_by_a_crash(tmp_path, ROOM + 5, flushed=ROOM + 1)
    spoil(first, SHAPE.entry_position(8), bytes(20))  # would not be proven
    opened(tmp_path, clean=False)
    assert names(tmp_path) == [first.name, second.name]


def all_flushed(root: Path, files: int) -> list[Path]:
    """Full files, all covered by the checkpoint, and one more key."""
    return left_by_a_crash(root, files * ROOM + 1, flushed=files * ROOM + 1)


def test_what_follows_a_lost_file_is_not_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second, third, last = all_flushed(tmp_path, 3)
    second.unlink()
    index = opened(tmp_path, clean=False)
    assert names(tmp_path) == [first.name]
    assert index.newest_rows() == (1000 * (ROOM - 1), [ROOM])
    assert f"event=index_gap file={third.name}" in caplog.text
    assert not last.exists()


def test_an_index_that_lost_its_beginning_goes(tmp_path: Path) -> None:
    first, *_ = all_flushed(tmp_path, 3)
    first.unlink()
    assert (opened(tmp_path, clean=False).files, names(tmp_path)) == ([], [])


@pytest.mark.parametrize("log_start", [1000 * (ROOM - 1) + 1, 1000 * ROOM, 1000 * ROOM + 1000, 1000 * 2 * ROOM])
def test_a_lost_file_whose_messages_the_log_has_lost_as_well_is_no_gap(tmp_path: Path, log_start: int) -> None:
    first, *others = all_flushed(tmp_path, 3)
    first.unlink()
    log = NumberedLog(start=log_start)
    opened(tmp_path, clean=False, log=log)
    assert names(tmp_path) == [path.name for path in others[:-1]]  # of the last one the only key is not believed


def test_an_old_file_that_a_crash_brought_back_is_no_gap(tmp_path: Path) -> None:
    first, second, *others = all_flushed(tmp_path, 4)
    second.unlink()
    opened(tmp_path, clean=False, log=NumberedLog(start=2 * 1000 * ROOM))
    assert names(tmp_path) == [path.name for path in (first, *others[:-1])]


@pytest.mark.parametrize(
    ("position", "size"),
    [(0, SHAPE.file_size), (SHAPE.entry_position(8), 40), (0, SHAPE.entries_start), (40, SHAPE.entries_start - 40)],
    ids=["all of it", "two entries", "head and slots", "slots"],
)
def test_a_full_file_that_was_damaged_is_noticed(tmp_path: Path, position: int, size: int) -> None:
    """Whatever it was, what is believed in the end is found, and the next messages can be added."""
    first, second, *_ = all_flushed(tmp_path, 3)
    spoil(second, position, bytes(size))
    index = opened(tmp_path, clean=False)
    (_, (newest,)) = index.newest_rows()
    assert ROOM <= newest < 2 * ROOM
    assert found(index, 4 * ROOM) == list(range(1, newest + 1))
    assert names(tmp_path)[0] == first.name
    fill(index, numbered(newest, 3 * ROOM))
    assert found(index, 4 * ROOM) == list(range(1, 3 * ROOM + 1))


def test_a_file_of_another_store_is_noticed(tmp_path: Path) -> None:
    """Its entries prove one another, and it begins and ends as the right one does."""
    (tmp_path / "one").mkdir()
    first, second, *_ = all_flushed(tmp_path / "one", 3)
    fs = Files()
    other = KeyIndex(fs, tmp_path / "two", SHAPE, Checkpoint(fs, tmp_path / "checkpoint"), ManualClock(T0))
    ours = numbered(ROOM, 2 * ROOM)
    fill(other, [ours[0], *((key + 100, place, stored_ms) for key, place, stored_ms in ours[1:-1]), ours[-1]])
    second.write_bytes(bytes(other.files[0].file.view))
    assert found(opened(tmp_path / "one", clean=False), 4 * ROOM) == list(range(1, ROOM + 1))
    assert names(tmp_path / "one") == [first.name]


class WithoutKeys(NumberedLog):
    """Only every tenth message has a key."""

    def hashes_at(self, offset: int) -> list[int] | None:
        return [offset // 1000 + 1] if offset % 10_000 == 0 else []

    def first_with_keys(self, start: int, end: int) -> int | None:
        return super().first_with_keys(start + -start % 10_000, end)


def test_messages_without_keys_are_no_gap(tmp_path: Path) -> None:
    index = opened(tmp_path)
    fill(index, [(10 * key - 9, 10 * place, T0 + 10 * place) for key, place, _ in numbered(0, 2 * ROOM + 5)])
    index.flush()
    index.close()
    before = names(tmp_path)
    opened(tmp_path, clean=False, log=WithoutKeys())
    assert names(tmp_path) == before


class ManyKeys(NumberedLog):
    """Each message has so many keys that one of them has no end in a file."""

    def hashes_at(self, offset: int) -> list[int] | None:
        return [offset // 1000 * 30 + number + 1 for number in range(30)]


@pytest.mark.parametrize("lost", [None, 1, 2, 3])
def test_keys_of_one_message_may_fill_several_files(tmp_path: Path, lost: int | None) -> None:
    index = opened(tmp_path)
    log = ManyKeys()
    for message in range(4):
        fill(index, [(key, 1000 * message, T0) for key in log.hashes_at(1000 * message) or []])
    index.flush()
    index.close()
    before = names(tmp_path)
    if lost is not None:
        (tmp_path / "index" / before[lost]).unlink()
    opened(tmp_path, clean=False, log=log)
    assert names(tmp_path) == before[:lost]


def test_a_file_that_is_worth_nothing_goes(tmp_path: Path) -> None:
    first, second = left_by_a_crash(tmp_path, ROOM + 5, flushed=ROOM + 1)
    spoil(second, SHAPE.entry_position(1), bytes(40))
    index = opened(tmp_path, clean=False)
    assert names(tmp_path) == [first.name]
    assert index.newest_rows() == (1000 * (ROOM - 1), [ROOM])


def test_entries_behind_the_end_of_the_log_go_whatever_the_exit(tmp_path: Path) -> None:
    left_by_a_crash(tmp_path, ROOM + 5, flushed=ROOM + 5)
    assert found(opened(tmp_path, log_end=5000), ROOM) == [1, 2, 3, 4]  # and the last one is never believed
    assert len(names(tmp_path)) == 1
    assert found(opened(tmp_path, log_end=0), ROOM) == []
    assert names(tmp_path) == []


def test_the_safe_way_believes_only_what_the_checkpoint_covers(tmp_path: Path) -> None:
    first, *_ = left_by_a_crash(tmp_path, 3 * ROOM, flushed=ROOM + 1)
    index = opened(tmp_path, clean=False, keep_unproven=False)
    assert names(tmp_path) == [first.name]
    assert found(index, 3 * ROOM) == list(range(1, ROOM + 1))


def test_without_the_first_message_in_the_log_a_lost_header_cannot_be_made_anew(tmp_path: Path) -> None:
    (path,) = left_by_a_crash(tmp_path, 10)
    spoil(path, 0, bytes(40))
    log = NumberedLog()
    log.can_be_read = False
    assert (opened(tmp_path, clean=False, log=log).files, names(tmp_path)) == ([], [])


def test_a_repair_without_room_on_the_disk_gives_the_file_up(tmp_path: Path) -> None:
    left_by_a_crash(tmp_path, 10)
    disk = FaultyDisk()
    disk.room = 0
    index = KeyIndex(disk, tmp_path / "index", SHAPE, Checkpoint(disk, tmp_path / "checkpoint"), ManualClock(T0))
    index.load(NumberedLog(), clean=False)
    assert (index.files, names(tmp_path)) == ([], [])
