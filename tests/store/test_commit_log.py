"""The commit log: its files, made ahead and closed with a blank record, and slow or full disks."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitmq.errors import StoreError
from orbitmq.store.commit_log import CALLED_FROM, RESERVE_AHEAD, RESERVE_STEP, CommitLog
from orbitmq.store.files import Files, MappedFile
from orbitmq.store.transient_pool import BufferPool, Staging
from tests.support.disk import FaultyDisk

SIZE = 4096


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def log(tmp_path: Path, disk: FaultyDisk) -> Iterator[CommitLog]:
    made = CommitLog(disk, tmp_path, SIZE)
    yield made
    made.close()


def append(log: CommitLog, data: bytes) -> int:
    if log.end + len(data) > log.limit:
        log.make_room(len(data))
    offset = log.end
    log.append(data, 1)
    return offset


def test_a_blank_record_closes_a_file(log: CommitLog, tmp_path: Path) -> None:
    append(log, b"a" * 3000)
    assert append(log, b"b" * 1500) == SIZE
    first = (tmp_path / f"{0:020d}").read_bytes()
    assert first[3000:3008].hex() == f"{SIZE - 3000:08x}cbd43194"
    assert log.slice(SIZE, 1500) == b"b" * 1500


@pytest.mark.parametrize(("size", "offset"), [(SIZE - 1000 - 8, 1000), (SIZE - 1000 - 7, SIZE)])
def test_eight_bytes_stay_free_for_it(log: CommitLog, size: int, offset: int) -> None:
    append(log, b"a" * 1000)
    assert append(log, b"b" * size) == offset


def test_slices_stay_within_one_file_and_the_written_part(log: CommitLog) -> None:
    append(log, b"a" * 3000)
    append(log, b"b" * 1500)
    assert log.slice(0, 3000) == b"a" * 3000
    assert log.slice(SIZE + 1499, 1) == b"b"
    assert log.slice(SIZE + 1499, 2) is None
    assert log.slice(3000, 2000) is None
    assert log.slice(-1, 1) is None
    assert log.slice(SIZE, -1) is None


def test_what_has_no_size_is_no_unit(log: CommitLog) -> None:
    append(log, (8).to_bytes(4, "big") + b"abcd" + bytes(8))
    assert log.unit_at(0) == (8).to_bytes(4, "big") + b"abcd"
    assert log.unit_at(8) is None
    assert log.unit_at(14) is None
    assert log.unit_at(4) is None, "its size reaches beyond the log"


def test_the_next_file_and_the_one_after_it_are_ready_before_they_are_needed(log: CommitLog, tmp_path: Path) -> None:
    append(log, b"a" * 10)
    while log.reserve_ahead():
        pass
    names = [f"{number * SIZE:020d}" for number in range(6)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names[:3], "two are enough"
    assert log.files.end == SIZE, "they are not part of the log yet"
    for number in range(1, 4):
        append(log, b"b" * 4080)
        assert log.files.end == (number + 1) * SIZE
        assert not log.reserve_ahead()
        assert sorted(path.name for path in tmp_path.iterdir()) == names[: number + 3]
    assert log.slice(SIZE, 4080) == b"b" * 4080
    assert log.flush() == log.end


def test_of_a_large_file_only_some_megabytes_are_claimed_ahead(tmp_path: Path) -> None:
    log = CommitLog(Files(), tmp_path, 64 << 20)
    append(log, b"a" * 10)
    while log.reserve_ahead():
        pass
    assert 16 << 20 <= (tmp_path / f"{0:020d}").stat().st_blocks * 512 <= 21 << 20
    assert len(list(tmp_path.iterdir())) == 1
    log.close()


def test_files_made_ahead_and_not_used_are_removed_without_ever_leaving_a_gap(
    log: CommitLog, tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, b"a" * 10)
    while log.reserve_ahead():
        pass
    removed: list[int] = []
    remove = disk.remove
    monkeypatch.setattr(disk, "remove", lambda path: (removed.append(int(path.name) // SIZE), remove(path)))
    log.close()
    assert removed == [2, 1]
    assert [path.name for path in tmp_path.iterdir()] == [f"{0:020d}"]


def test_a_full_disk_changes_nothing(log: CommitLog, disk: FaultyDisk, tmp_path: Path) -> None:
    append(log, b"a" * 3000)
    disk.room = 100
    before = (log.end, log.limit, (tmp_path / f"{0:020d}").read_bytes())
    with pytest.raises(OSError, match="full"):
        log.make_room(2000)
    assert (log.end, log.limit, (tmp_path / f"{0:020d}").read_bytes()) == before
    disk.room = None
    assert append(log, b"b" * 2000) == SIZE


def test_every_byte_below_the_limit_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.store.commit_log.RESERVE_STEP", 1000)
    log = CommitLog(FaultyDisk(), tmp_path, SIZE)
    append(log, b"a" * 10)
    assert log.limit == 1000 - 8
    append(log, b"b" * 1500)
    assert log.limit == 2000 - 8
    append(log, b"c" * 2500)
    assert log.limit == SIZE - 8
    log.close()


def test_after_a_start_the_end_of_a_file_is_claimed_before_it_is_closed(tmp_path: Path) -> None:
    """Blocks behind the last message may be missing then, and a write there would kill the process on a full disk."""
    disk = FaultyDisk()
    log = CommitLog(disk, tmp_path, SIZE)
    append(log, b"a" * 4000)
    log.close()
    log = CommitLog(disk, tmp_path, SIZE)
    log.files.load()
    log.begin_at(4000, flushed=4000, clean=True)
    disk.room = SIZE + 7
    with pytest.raises(OSError, match="full"):
        log.make_room(1000)
    assert (log.end, bytes(log.files.files[0].view[4000:])) == (4000, bytes(SIZE - 4000))
    disk.room = 8
    assert log.make_room(1000) == SIZE
    log.close()


def test_flushing_reaches_every_file(log: CommitLog) -> None:
    for letter in (b"a", b"b", b"c"):
        append(log, letter * 4000)
    assert log.flush() == log.end == log.flushed
    assert all(file.synced == bytes(file.view) for file in log.files.files)  # type: ignore[attr-defined]


def test_a_message_does_not_wait_long_for_a_slow_disk(tmp_path: Path) -> None:
    """And the next one not at all, until the disk has answered."""
    log = CommitLog(Files(), tmp_path, SIZE, patience_ms=1)
    log.make_room(100)
    with log._reserving:  # the worker is in the middle of a step
        with pytest.raises(TimeoutError, match=r"within 0\.001 s"):
            log.make_room(100)
        log._patience_s = 600  # would be noticed
        with pytest.raises(TimeoutError):
            log.make_room(100)
        assert log.is_busy
    assert log.make_room(100) == 0
    assert not log.is_busy
    log.close()


def test_a_log_is_no_longer_busy_when_the_worker_got_its_blocks(tmp_path: Path) -> None:
    """Nobody else may ever ask: messages are refused before they come this far."""
    log = CommitLog(Files(), tmp_path, SIZE, patience_ms=1)
    append(log, b"first")
    with log._reserving, pytest.raises(TimeoutError):
        log.make_room(SIZE)
    assert log.is_busy
    log.reserve_ahead()
    assert not log.is_busy
    log.close()


class Interleaved:
    """A lock of two threads that a test plays with one: it lets the other one go on in the middle of a call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.when_run_out: Callable[[], object] = lambda: None  # what its owner does as a wait runs out
        self.when_held: Callable[[], object] = lambda: None  # what somebody else does while it is held

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if timeout > 0:
            self.when_run_out()
            return False
        return self._lock.acquire(blocking=blocking and timeout < 0)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        assert self._lock.acquire(timeout=10)
        self.when_held()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_step_that_ends_as_the_wait_for_it_runs_out_leaves_no_busy_log(tmp_path: Path) -> None:
    """It brings all the blocks that are wanted, so that the worker has nothing more to do and says nothing more."""
    log = CommitLog(Files(), tmp_path, 64 << 20, patience_ms=1)
    append(log, b"first")
    lock = log._reserving = Interleaved()  # type: ignore[assignment]
    lock.when_run_out = log.reserve_ahead
    with contextlib.suppress(TimeoutError):
        log.make_room(RESERVE_STEP)
    assert log._reserved >= log.end + RESERVE_AHEAD
    assert not log.reserve_ahead()
    assert not log.is_busy
    log.close()


def test_a_worker_that_finds_enough_files_leaves_no_busy_log(tmp_path: Path) -> None:
    """It held the log for a moment, and a message that did not wait may have found it so."""
    log = CommitLog(Files(), tmp_path, SIZE, patience_ms=1)
    append(log, b"first")
    while log.reserve_ahead():
        pass
    lock = log._reserving = Interleaved()  # type: ignore[assignment]
    refused: list[bool] = []

    def ask() -> None:
        with pytest.raises(TimeoutError):
            log.make_room(SIZE - 8)
        refused.append(log.is_busy)

    lock.when_held = ask
    assert not log.reserve_ahead()
    assert refused == [True], "while the worker had it"
    assert not log.is_busy
    log.close()


def test_directories_take_turns_unless_they_are_crowded(tmp_path: Path) -> None:
    a, b, c, old = (tmp_path / name for name in ("a", "b", "c", "old"))
    log = CommitLog(Files(), b, SIZE, more=(a, c), read_only=(old,))
    assert [log.files.create(number * SIZE).path.parent.name for number in range(4)] == ["a", "b", "c", "a"]
    log.crowded = frozenset((a,))
    assert [log.files.create(number * SIZE).path.parent.name for number in range(4, 6)] == ["b", "c"]
    log.crowded = frozenset((a, b, c))
    assert log.files.create(6 * SIZE).path.parent == a, "somewhere it must go"


def test_what_is_written_by_a_call_lies_between_what_goes_through_the_map(tmp_path: Path) -> None:
    log = CommitLog(Files(), tmp_path, 4 * CALLED_FROM)
    parts = [b"a" * 5000, b"b" * CALLED_FROM, b"c" * 1200, b"d" * (CALLED_FROM + 1), b"e" * 3 * CALLED_FROM, b"f"]
    places = [append(log, part) for part in parts]
    assert places[-2] == 4 * CALLED_FROM  # the next file
    assert [log.slice(place, len(part)) for place, part in zip(places, parts, strict=True)] == parts
    log.flush()
    first, second = (path.read_bytes() for path in sorted(tmp_path.iterdir())[:2])
    assert first.startswith(b"".join(parts[:4]))
    assert second.startswith(b"".join(parts[4:]))
    log.close()


def test_large_messages_reach_the_files_through_a_buffer_too(tmp_path: Path) -> None:
    log = CommitLog(Files(), tmp_path, 4 * CALLED_FROM)
    log.staging = Staging(BufferPool(2, 4 * CALLED_FROM))
    log.begin_at(0, flushed=0, clean=True)
    append(log, b"a" * CALLED_FROM)
    assert log.slice(0, CALLED_FROM) == bytes(CALLED_FROM)
    log.commit()
    assert log.slice(0, CALLED_FROM) == b"a" * CALLED_FROM
    log.close()


def test_pages_are_brought_in_ahead_of_small_messages_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warmed: list[int] = []
    monkeypatch.setattr(MappedFile, "warm", lambda _file, start, _size: warmed.append(start))
    log = CommitLog(Files(), tmp_path, 64 << 20)
    append(log, b"a" * CALLED_FROM)
    while log.reserve_ahead():
        pass
    assert not warmed
    append(log, b"b" * (CALLED_FROM - 1))
    while log.reserve_ahead():
        pass
    assert not warmed  # there is room enough
    while log._reserved - log.end >= RESERVE_AHEAD:
        append(log, b"c" * 1000)
    log.reserve_ahead()
    assert warmed
    log.close()


def test_a_disk_that_fails_is_told_and_nothing_is_appended(tmp_path: Path) -> None:
    log = CommitLog(Files(), tmp_path, 4 * CALLED_FROM)
    append(log, b"before")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MappedFile, "write", fail)
        with pytest.raises(StoreError, match="cannot be written"):
            append(log, b"x" * CALLED_FROM)
    assert (log.end, log.readable, append(log, b"after")) == (6, 6, 6)
    log.close()
