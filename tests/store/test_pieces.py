"""What is on disk is listed as far as it makes sense, and told where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.store.files import Files
from orbitmq.store.numbered import file_name
from orbitmq.store.pieces import Pieces, read_at, written_parts

SIZE = 4096


def laid(directory: Path, *starts: int) -> None:
    directory.mkdir(exist_ok=True)
    for start in starts:
        (directory / file_name(start)).write_bytes(start.to_bytes(8, "big").ljust(SIZE, b"\1"))


def listed(*directories: Path, is_live: bool = False) -> tuple[Pieces, list[str]]:
    told: list[str] = []
    pieces = Pieces(Files(), directories, lambda path, _, text: told.append(f"{path.name}: {text}"), is_live=is_live)
    return pieces, told


def test_a_whole_stream_is_read_across_directories(tmp_path: Path) -> None:
    laid(tmp_path / "a", 0, 2 * SIZE)
    laid(tmp_path / "b", SIZE)
    pieces, told = listed(tmp_path / "a", tmp_path / "b")
    assert (pieces.starts, pieces.file_size, pieces.start, pieces.end, pieces.size, told) == (
        [0, SIZE, 2 * SIZE], SIZE, 0, 3 * SIZE, 3 * SIZE, [],
    )  # fmt: skip
    assert pieces.path(SIZE) == tmp_path / "b" / file_name(SIZE)
    assert pieces.read(SIZE, 8) == SIZE.to_bytes(8, "big")
    assert pieces.read(2 * SIZE - 3, 8) == b"\1" * 3, "a read ends with its file"
    assert pieces.read(3 * SIZE, 8) == b""
    assert (pieces.start_of(SIZE + 5), pieces.path(3 * SIZE)) == (SIZE, tmp_path / "a" / file_name(3 * SIZE))


def test_what_was_cut_off_a_file_begins_anywhere(tmp_path: Path) -> None:
    laid(tmp_path / "log", SIZE + 77)
    pieces = Pieces(Files(), [tmp_path / "log"], lambda path, _, text: pytest.fail(text), begins_anywhere=True)
    assert (pieces.starts, pieces.start_of(SIZE + 100)) == ([SIZE + 77], SIZE + 77)
    assert pieces.read(SIZE + 77, 8) == (SIZE + 77).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("stray", "size", "told"),
    [
        ("notes.txt", 5, "notes.txt: does not belong here; a broker refuses to start on this directory"),
        (file_name(4 * SIZE), SIZE, f"{file_name(4 * SIZE)}: follows a gap: {file_name(2 * SIZE)} is missing"),
        (file_name(2 * SIZE), 100, f"{file_name(2 * SIZE)}: has 100 bytes where the other files have 4096"),
        (file_name(9000), SIZE, f"{file_name(9000)}: begins at no multiple of 4096, the size of the files"),
        (file_name(2 * SIZE), 0, f"{file_name(2 * SIZE)}: has 0 bytes where the other files have 4096"),
    ],
)
def test_what_makes_no_sense_is_told_and_the_rest_is_read(tmp_path: Path, stray: str, size: int, told: str) -> None:
    laid(tmp_path / "log", 0, SIZE)
    (tmp_path / "log" / stray).write_bytes(bytes(size))
    pieces, found = listed(tmp_path / "log")
    assert found == [told]
    assert pieces.starts[:2] == [0, SIZE]
    assert pieces.read(0, 8) == bytes(8)


def test_the_same_part_in_two_directories_is_taken_once(tmp_path: Path) -> None:
    laid(tmp_path / "a", 0)
    laid(tmp_path / "b", 0, SIZE)
    pieces, told = listed(tmp_path / "a", tmp_path / "b")
    assert pieces.starts == [0, SIZE]
    assert told == [f"{file_name(0)}: is the same part as {tmp_path / 'a' / file_name(0)}"]


def test_a_running_broker_may_be_about_to_give_a_file_its_size(tmp_path: Path) -> None:
    laid(tmp_path / "log", 0)
    (tmp_path / "log" / file_name(SIZE)).touch()
    pieces, told = listed(tmp_path / "log", is_live=True)
    assert (pieces.starts, told) == ([0], [])


def test_nothing_is_an_empty_stream(tmp_path: Path) -> None:
    pieces, told = listed(tmp_path / "missing")
    assert (pieces.starts, pieces.start, pieces.end, pieces.start_of(7), pieces.read(0, 1), told) == (
        [],
        0,
        0,
        0,
        b"",
        [],
    )


def test_a_file_that_has_gone_reads_as_nothing(tmp_path: Path) -> None:
    assert read_at(tmp_path / "gone", 0, 10) == b""


def test_parts_without_blocks_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 20)
        file.seek(512 << 10)
        file.write(b"x" * 10)
    (part,) = written_parts(path, 0)
    assert part[0] <= 512 << 10 < part[1] < 1 << 20
    assert list(written_parts(path, part[1])) == []
