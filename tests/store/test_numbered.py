"""Directories of files that are named by their offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import StoreDamaged
from orbitmq.store.files import Files
from orbitmq.store.numbered import NumberedFiles, file_name
from tests.support.disk import FaultyDisk
from tests.support.golden import vectors

SIZE = 4096


def stream(directory: Path, *starts: int) -> NumberedFiles:
    files = NumberedFiles(Files(), directory, SIZE)
    for start in starts:
        files.add(files.create(start))
    return files


def test_names_are_those_of_rocketmq() -> None:
    for row in vectors()["offset_file_name"]:
        assert file_name(row["offset"]) == row["fileName"]


def test_bytes_are_found_by_their_offset(tmp_path: Path) -> None:
    files = stream(tmp_path, 2 * SIZE, 3 * SIZE)
    assert (files.start, files.end) == (2 * SIZE, 4 * SIZE)
    assert files.find(2 * SIZE - 1) is None
    assert files.find(2 * SIZE) is files.files[0]
    assert files.find(3 * SIZE - 1) is files.files[0]
    assert files.find(3 * SIZE) is files.files[1]
    assert files.find(4 * SIZE) is None
    assert files.start_of(3 * SIZE + 5) == 3 * SIZE
    files.close()


def test_loading_finds_what_was_made(tmp_path: Path) -> None:
    stream(tmp_path, SIZE, 2 * SIZE).close()
    files = NumberedFiles(Files(), tmp_path, SIZE)
    files.load()
    assert (files.start, files.end) == (SIZE, 3 * SIZE)
    files.close()


@pytest.mark.parametrize(
    ("name", "size", "cause"),
    [
        ("notes.txt", SIZE, "does not belong"),
        (file_name(3 * SIZE), SIZE, f"{file_name(2 * SIZE)} is missing"),
        (file_name(2 * SIZE), 100, "has 100 bytes, not 4096"),
        ("notes.txt", 0, "does not belong"),
    ],
)
def test_a_directory_that_is_not_whole_is_refused(tmp_path: Path, name: str, size: int, cause: str) -> None:
    stream(tmp_path, 0, SIZE).close()
    (tmp_path / name).write_bytes(bytes(size))
    with pytest.raises(StoreDamaged, match=cause) as caught:
        NumberedFiles(Files(), tmp_path, SIZE).load()
    assert str(tmp_path / name) in str(caught.value)


def test_a_file_that_a_crash_left_without_a_size_never_was(tmp_path: Path) -> None:
    stream(tmp_path, 0, SIZE).close()
    for start in (2 * SIZE, 3 * SIZE):
        (tmp_path / file_name(start)).touch()
    reader, files = (NumberedFiles(Files(), tmp_path, SIZE) for _ in range(2))
    reader.load(writable=False)
    assert reader.end == 2 * SIZE
    assert (tmp_path / file_name(3 * SIZE)).exists(), "a reader changes nothing"
    files.load()
    files.add(files.create(files.end))
    assert files.end == 3 * SIZE
    assert not (tmp_path / file_name(3 * SIZE)).exists()
    reader.close()
    files.close()


def test_a_directory_among_the_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / file_name(0)).mkdir()
    with pytest.raises(StoreDamaged, match="does not belong"):
        NumberedFiles(Files(), tmp_path, SIZE).load()


def test_cutting_removes_later_files_and_clears_the_rest(tmp_path: Path) -> None:
    files = stream(tmp_path, 0, SIZE, 2 * SIZE)
    for file in files.files:
        file.data[:] = b"x" * SIZE
    files.cut(SIZE + 10)
    assert files.end == 2 * SIZE
    assert not (tmp_path / file_name(2 * SIZE)).exists()
    assert (tmp_path / file_name(SIZE)).read_bytes() == b"x" * 10 + bytes(SIZE - 10)
    assert (tmp_path / file_name(0)).read_bytes() == b"x" * SIZE
    files.cut(0)
    assert list(tmp_path.iterdir()) == []


def test_destroying_leaves_no_trace(tmp_path: Path) -> None:
    files = stream(tmp_path / "a", 0, SIZE)
    files.destroy()
    assert not (tmp_path / "a").exists()


def test_of_files_that_can_be_made_anew_those_behind_a_gap_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream(tmp_path, 0, SIZE, 2 * SIZE, 3 * SIZE, 4 * SIZE).close()
    whole = NumberedFiles(Files(), tmp_path, SIZE)
    assert whole.load_up_to_gap()
    assert whole.end == 5 * SIZE
    whole.close()
    (tmp_path / file_name(2 * SIZE)).unlink()
    files = NumberedFiles(Files(), tmp_path, SIZE)
    assert not files.load_up_to_gap()
    assert (files.start, files.end) == (0, 2 * SIZE)
    assert sorted(path.name for path in tmp_path.iterdir()) == [file_name(0), file_name(SIZE)]
    assert f"event=file_missing path={tmp_path / file_name(2 * SIZE)}" in caplog.text
    files.add(files.create(files.end))
    files.close()


def test_what_no_crash_leaves_is_refused_all_the_same(tmp_path: Path) -> None:
    stream(tmp_path, 0, SIZE).close()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(StoreDamaged, match="does not belong"):
        NumberedFiles(Files(), tmp_path, SIZE).load_up_to_gap()
    assert len(list(tmp_path.iterdir())) == 3


def test_a_file_that_gets_no_blocks_does_not_stay(tmp_path: Path) -> None:
    disk = FaultyDisk()
    files = NumberedFiles(disk, tmp_path, SIZE)
    disk.room = 99
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            files.create_with(0, 100)
        assert list(tmp_path.iterdir()) == []
    disk.room = 100
    files.add(files.create_with(0, 100))
    assert (files.end, disk.room) == (SIZE, 0)
    files.close()


def test_one_of_several_directories_that_cannot_be_synced_keeps_no_file(tmp_path: Path) -> None:
    disk = FaultyDisk()
    files = NumberedFiles(disk, tmp_path / "a", SIZE, more=(tmp_path / "b",))
    disk.fails_to_sync = True
    with pytest.raises(OSError, match="failed"):
        files.create(0)
    assert list((tmp_path / "a").iterdir()) == []
    disk.fails_to_sync = False
    files.add(files.create(0))
    files.close()
