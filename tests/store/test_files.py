"""Mapped files and access to the file system."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from orbitmq.errors import StoreDamaged, StoreError, StoreLocked
from orbitmq.runtime import limits
from orbitmq.runtime.refusals import Refusals
from orbitmq.store import files, memory
from orbitmq.store.files import MANY, DirectoryLock, Disk, Files, MappedFile
from tests.support.mounts import CannotMount, after_power_cut, mounted


def lock_in_child(path: Path, answer: multiprocessing.Queue[str]) -> None:
    try:
        DirectoryLock(path)
        answer.put("locked")
    except StoreLocked as error:
        answer.put(str(error))


def test_a_directory_has_one_owner_among_processes(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path / "lock")
    context = multiprocessing.get_context("spawn")
    answer: multiprocessing.Queue[str] = context.Queue()
    child = context.Process(target=lock_in_child, args=(tmp_path / "lock", answer))
    child.start()
    assert answer.get(timeout=30) == f"the store directory {tmp_path} is in use by another process"
    child.join()
    lock.release()


def test_a_directory_has_one_owner_within_a_process(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path / "lock")
    with pytest.raises(StoreLocked, match=str(tmp_path)):
        DirectoryLock(tmp_path / "lock")
    assert (tmp_path / "lock").read_bytes() == b"lock"
    lock.release()
    DirectoryLock(tmp_path / "lock").release()


def test_slices_outlive_the_file(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "f", 8192, create=True, writable=True)
    file.data[100:105] = b"hello"
    held = file.view[100:105]
    file.close()
    Files().remove(tmp_path / "f")
    assert bytes(held) == b"hello"


def descriptors() -> set[str]:
    """Of this process, those that lead to files."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(f"{link.name} {link.readlink()}")
    return found


def test_a_file_that_is_written_takes_one_descriptor(tmp_path: Path) -> None:
    """Python's own map would take a second one."""
    path = tmp_path / "f"
    for create in (True, False):
        file = MappedFile(path, 8192, create=create, writable=True)
        assert len([name for name in descriptors() if name.endswith(str(path))]) == 1
        file.data[8190:] = b"ab"
        assert path.read_bytes()[8190:] == b"ab"
        assert len(file.data) == 8192
        file.close()
    assert not [name for name in descriptors() if name.endswith(str(path))]


@pytest.mark.parametrize(("mapped", "fits"), [(1900 - 1, True), (1900, False), (3000, False)])
def test_mapped_files_take_what_connections_leave(monkeypatch: pytest.MonkeyPatch, mapped: int, fits: bool) -> None:
    monkeypatch.setattr(files, "_mapped", SimpleNamespace(value=mapped, add=lambda _: None))
    monkeypatch.setattr(files, "open_files", lambda: 3000)
    with (
        contextlib.nullcontext()
        if fits
        else pytest.raises(BlockingIOError, match=f"{mapped} files are mapped, of 3000")
    ):
        files.check_spare_files()


@pytest.mark.parametrize(("mapped", "fits"), [(700 - 1, True), (700, False), (800, False)])
def test_queues_leave_one_of_eight_maps_to_the_log(monkeypatch: pytest.MonkeyPatch, mapped: int, fits: bool) -> None:
    monkeypatch.setattr(files, "_mapped", SimpleNamespace(value=mapped, add=lambda _: None))
    monkeypatch.setattr(files, "open_files", lambda: 1 << 20)
    monkeypatch.setattr(files, "memory_maps", lambda: 800)
    with contextlib.nullcontext() if fits else pytest.raises(BlockingIOError, match=f"{mapped} files .* of 800 maps"):
        files.check_spare_files()


def test_the_limit_of_maps_is_the_kernels_or_what_is_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Path("/proc/sys/vm/max_map_count").read_text()
    assert limits.memory_maps() == int(told)
    monkeypatch.setattr(limits, "MAPS_FILE", tmp_path / "not told")
    assert limits.memory_maps() == 65_530


def no_map(*_: object, **__: object) -> None:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


def test_a_new_file_without_a_map_leaves_nothing_and_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files, "_refusals", Refusals())
    before = descriptors()
    with monkeypatch.context() as full:
        full.setattr(files.memory, "map_file", no_map)
        for _ in range(3):
            with pytest.raises(BlockingIOError, match=f"{tmp_path}/1: cannot be mapped.* maps that there may be"):
                Files().create(tmp_path / "1", 4096)
    assert caplog.text.count(f"event=map_refused path={tmp_path}/1") == 1
    assert "vm.max_map_count" in caplog.text
    assert list(tmp_path.iterdir()) == []
    assert {name for name in descriptors() - before if name.endswith("/1")} == set()
    Files().create(tmp_path / "1", 4096).close()


def test_an_old_file_without_a_map_stays_and_says_what_to_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1").write_bytes(bytes(4096))
    monkeypatch.setattr(files.memory, "map_file", no_map)
    monkeypatch.setattr(files, "memory_maps", lambda: 800)
    with pytest.raises(StoreError, match=r"/1: cannot be mapped: .*; raise vm\.max_map_count of sysctl, now 800"):
        Files().open(tmp_path / "1", 4096, writable=True)
    assert (tmp_path / "1").stat().st_size == 4096


def test_a_map_that_the_system_refuses_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(8192))
    unreadable = os.open(tmp_path / "f", os.O_WRONLY)
    with pytest.raises(PermissionError):
        memory.map_file(unreadable, 8192, writable=True)
    os.close(unreadable)


def test_a_closed_file_has_nothing_to_sync(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "f", 4096, create=True, writable=True)
    file.close()
    file.sync()


def test_a_closed_file_does_not_pretend_to_take_something(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "f", 4096, create=True, writable=True)
    file.close()
    with pytest.raises(OSError, match="is closed"):
        file.write(0, b"lost")


def test_writes_reach_the_file_and_clear_takes_them_away(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "f", 8192, create=True, writable=True)
    file.data[:] = b"x" * 8192
    file.sync()
    assert (tmp_path / "f").read_bytes() == b"x" * 8192
    file.clear_from(5000)
    assert bytes(file.view) == (tmp_path / "f").read_bytes() == b"x" * 5000 + bytes(3192)
    file.close()


def test_readers_cannot_write(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "f", 4096, create=True, writable=True)
    with pytest.raises(TypeError):
        file.view[0] = 1
    file.close()


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(100))
    with pytest.raises(StoreDamaged, match="has 100 bytes, not 4096"):
        MappedFile(tmp_path / "f", 4096, create=False, writable=True)


def test_an_empty_file_cannot_be_mapped(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be mapped"):
        MappedFile(tmp_path / "f", 0, create=True, writable=True)
    assert not (tmp_path / "f").exists()


def test_small_files_are_overwritten_in_place(tmp_path: Path) -> None:
    fs = Files()
    assert fs.read(tmp_path / "f") is None
    fs.write(tmp_path / "f", b"abcdef")
    fs.write(tmp_path / "f", b"XY")
    assert fs.read(tmp_path / "f") == b"XYcdef"
    assert fs.size(tmp_path / "f") == 6
    assert fs.size(tmp_path) == -1
    assert fs.names(tmp_path) == ["f"]
    assert fs.names(tmp_path / "missing") == []
    fs.remove_directory(tmp_path)
    assert tmp_path.exists(), "a directory with content stays"


def test_the_names_of_new_directories_are_synced_with_the_first_file_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_directory", synced.append)
    first = Files().create(tmp_path / "a" / "b" / "1", 4096)
    second = Files().create(tmp_path / "a" / "c" / "1", 4096)
    assert synced == [], "whoever makes a queue does not wait"
    second.sync()
    assert synced == [tmp_path / "a" / "c", tmp_path / "a", tmp_path]
    synced.clear()
    first.sync()
    second.sync()
    assert synced == [tmp_path / "a" / "b"]
    first.close()
    second.close()


def test_all_names_of_a_tree_are_synced_its_own_included(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("T/0", "T/1", "U/0"):
        Files().create(tmp_path / "queues" / name / "1", 4096).close()
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_directory", synced.append)
    Files().sync_names(tmp_path / "queues")
    assert synced[0] == tmp_path, "which holds the name of the tree"
    below = {path for path in (tmp_path / "queues").rglob("*") if path.is_dir()}
    assert set(synced[1:]) == {tmp_path / "queues", *below}
    synced.clear()
    Files().sync_names(tmp_path / "missing")
    assert synced == []


def test_a_file_that_cannot_be_given_its_size_leaves_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name would keep it from being made when the disk has room again."""
    with monkeypatch.context() as full:
        full.setattr(files.os, "ftruncate", refuse)
        with pytest.raises(OSError, match="No space"):
            Files().create(tmp_path / "1", 4096)
    Files().create(tmp_path / "1", 4096).close()


def refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_queue_may_be_removed_while_it_is_synced(tmp_path: Path) -> None:
    file = Files().create(tmp_path / "a" / "1", 4096)
    Files().remove(file.path)
    Files().remove_directory(tmp_path / "a")
    file.sync()
    file.close()


class Calls:
    """What an ext4 was asked for. `refused` are descriptors whose fdatasync fails; some page failed unless it
    `is_well`. It does `meanwhile` in the middle of a whole call.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_well: bool = True) -> None:
        self.is_well = is_well
        self.meanwhile: Callable[[], object] = lambda: None
        self.wholes: list[int] = []
        self.singles: list[int] = []
        self.directories: list[Path] = []
        self.refused: set[int] = set()
        monkeypatch.setattr(files, "_linux", lambda: (5, 8))
        monkeypatch.setattr(files, "_file_system", lambda _: files.EXT_MAGIC)
        monkeypatch.setattr(files, "_syncfs", self._syncfs)
        monkeypatch.setattr(files, "sync_directory", self.directories.append)
        monkeypatch.setattr(os, "fdatasync", self._fdatasync)

    def _syncfs(self, descriptor: int) -> bool:
        self.wholes.append(descriptor)
        self.meanwhile()
        return self.is_well

    def _fdatasync(self, descriptor: int) -> None:
        self.singles.append(descriptor)
        if descriptor in self.refused:
            raise OSError(errno.EIO, "the disk failed")


class Many:
    """Many queue files, and more that come later, on one disk."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.disk = Disk(directory)
        self.files: list[MappedFile] = []
        for number in range(MANY):
            self.add(str(number))

    def add(self, name: str) -> MappedFile:
        self.files.append(Files().create(self.directory / "queues" / name / "1", 4096))
        return self.files[-1]

    def close(self) -> None:
        for file in self.files:
            file.close()
        self.disk.close()


@pytest.fixture
def many(tmp_path: Path) -> Iterator[Many]:
    with contextlib.closing(Many(tmp_path)) as made:
        yield made


def test_many_files_come_to_disk_with_one_call_and_so_do_their_names(
    tmp_path: Path, many: Many, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    many.disk.sync(many.files)
    assert len(calls.wholes) == 1
    assert calls.singles == calls.wholes, "the second call is told what the first one may not be told"
    many.files[0].sync()
    assert calls.directories == []
    later = many.add("later")
    later.sync()
    assert calls.directories == [later.path.parent, tmp_path / "queues"], "what is above came with the others"


def test_a_name_that_is_made_while_a_disk_is_synced_is_synced_again(
    tmp_path: Path, many: Many, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, before = Calls(monkeypatch), tuple(many.files)
    calls.meanwhile = lambda: many.add("during")
    many.disk.sync(before)
    many.files[-1].sync()
    assert calls.directories == [tmp_path / "queues" / "during", tmp_path / "queues"]


def test_a_disk_that_could_not_write_some_page_asks_each_file_whether_it_was_its_own(
    tmp_path: Path, many: Many, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(monkeypatch, is_well=False)
    many.disk.sync(many.files)
    assert len(calls.wholes) == 1
    assert len(set(calls.singles)) == MANY
    assert caplog.text.count(f"event=page_not_written directory={tmp_path}") == 1
    calls.is_well = True
    calls.refused = {calls.singles[5]}
    with pytest.raises(OSError, match="the disk failed"):
        many.disk.sync(many.files)
    assert len(calls.wholes) == 1, "a failure is told once, and the page may be of a file whose turn came later"


def test_a_file_system_that_has_stopped_is_told_by_the_second_call(many: Many, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux before 5.17 says that all went well."""
    calls = Calls(monkeypatch)
    many.disk.sync(many.files)
    calls.refused = set(calls.wholes)
    with pytest.raises(OSError, match="the disk failed"):
        many.disk.sync(many.files)


@pytest.mark.parametrize("reason", ["few", "old kernel", "tmpfs", "other disk", "closed"])
def test_files_come_to_disk_one_by_one_where_one_call_would_not_do(
    tmp_path: Path, many: Many, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    made, calls = many.files[reason == "few" :], Calls(monkeypatch)
    if reason == "old kernel":
        monkeypatch.setattr(files, "_linux", lambda: (5, 7))
    if reason == "tmpfs":
        monkeypatch.setattr(files, "_file_system", lambda _: files.TMPFS_MAGIC)
    disk = Disk(tmp_path)  # it looks at its file system when it is made
    if reason == "other disk":
        made[7].device += 1
    if reason == "closed":
        disk.close()
    disk.sync(made)
    assert calls.wholes == []
    assert len(set(calls.singles)) == len(made)
    disk.close()


def test_what_came_to_disk_with_one_call_survives_a_power_cut(tmp_path: Path) -> None:
    try:
        with mounted("ext4", tmp_path / "disk", 16 << 20) as place:
            _come_to_disk(place)
            with after_power_cut(place) as found:
                assert {path.read_bytes()[:5] for path in found.glob("queues/*/1")} == {
                    b"%05d" % number for number in range(MANY)
                }
    except CannotMount as error:
        pytest.skip(f"no file system of our own: {error}")


def _come_to_disk(place: Path) -> None:
    with contextlib.closing(Many(place)) as many:
        for number, file in enumerate(many.files):
            file.reserve(0, 4096)
            file.data[:5] = b"%05d" % number
        many.disk.sync(many.files)
        assert all(file.name_synced for file in many.files)


@pytest.mark.parametrize("can_punch", [True, False])
def test_clearing_keeps_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_punch: bool) -> None:
    """A crash in the middle must not leave a file of another size, which no start takes."""
    monkeypatch.setattr(files.os, "ftruncate", None)
    if not can_punch:
        monkeypatch.setattr(files, "_punch_hole", lambda *_: False)
    (tmp_path / "f").write_bytes(b"x" * (3 << 20))
    file = MappedFile(tmp_path / "f", 3 << 20, create=False, writable=True)
    file.clear_from(5000)
    assert bytes(file.view) == (tmp_path / "f").read_bytes() == b"x" * 5000 + bytes((3 << 20) - 5000)
    file.close()


def test_the_filled_part_of_a_file_is_all_of_it_but_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Files().create(tmp_path / "1", 64 << 10)
    file.data[20_000] = 1
    file.sync()
    monkeypatch.setattr(files, "_is_in_memory", lambda _: False)
    assert len(file.filled) == 64 << 10
    monkeypatch.setattr(files, "_is_in_memory", lambda _: True)
    assert 20_000 < len(file.filled) <= 20_480
    assert bytes(file.filled[20_000:20_001]) == b"\1"
    file.close()


def test_the_use_of_a_disk_is_rounded_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that only the superuser may take do not count as free."""
    fs = Files()
    assert 0 <= fs.used_ratio(tmp_path) <= 1
    assert fs.used_ratio(tmp_path / "not/made/yet") == fs.used_ratio(tmp_path), "a new store has no directories"
    assert fs.space(tmp_path / "not/made/yet")[0] == fs.space(tmp_path)[0] > 0
    assert fs.used_ratio(tmp_path / ("x" * 300)) == -1
    stat = SimpleNamespace(f_blocks=2000, f_bfree=1200, f_bavail=300)
    monkeypatch.setattr("os.statvfs", lambda _: stat)
    assert fs.used_ratio(tmp_path) == 0.73
    stat.f_blocks = stat.f_bfree = stat.f_bavail = 0
    assert fs.used_ratio(tmp_path) == -1


def test_what_is_in_memory_is_read_at_once(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "f", 8192, create=True, writable=True)
    file.data[:] = bytes(range(256)) * 32
    try:
        assert file.read_at_once(4090, 12) == file.read(4090, 12) == bytes(range(250, 256)) + bytes(range(6))
    except BlockingIOError as error:
        pytest.skip(f"{tmp_path}: {error}")
    assert file.read_at_once(8190, 100) == b"\xfe\xff"
    assert file.read_at_once(8192, 1) == b""
    file.close()
    assert file.read_at_once(0, 1) == b""


@pytest.mark.parametrize("found", [100, OSError(errno.EAGAIN, "not there"), OSError(errno.EOPNOTSUPP, "cannot tell")])
def test_what_is_not_in_memory_is_not_read_at_once(
    tmp_path: Path, found: int | OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def preadv(*_: object) -> int:
        if isinstance(found, OSError):
            raise found
        return found

    file = MappedFile(tmp_path / "f", 8192, create=True, writable=True)
    monkeypatch.setattr(os, "preadv", preadv)
    with pytest.raises(BlockingIOError):
        file.read_at_once(0, 101)
    file.close()


def test_a_disk_that_fails_is_no_page_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def preadv(*_: object) -> int:
        raise OSError(errno.EIO, "input/output error")

    file = MappedFile(tmp_path / "f", 8192, create=True, writable=True)
    monkeypatch.setattr(os, "preadv", preadv)
    with pytest.raises(OSError, match="input/output error"):
        file.read_at_once(0, 101)
    file.close()
