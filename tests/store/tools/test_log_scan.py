"""The walk that tools take goes on behind damage, and says what lies there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.message.unit import BLANK, Unit, decode_unit
from orbitmq.store.files import Files
from orbitmq.store.pieces import Pieces
from orbitmq.store.tools.log_scan import Gap, LogScan, nowhere
from tests.support.stores import open_store, record

SIZE = 4096


@pytest.fixture
def places(tmp_path: Path) -> list[int]:
    """Where the messages of a log begin: three in each of its three files."""
    store = open_store(tmp_path)
    found = [int(store.put(record(b"%d" % number + bytes(1000))).physical_offset) for number in range(9)]
    store.close()
    return found


def scanned(root: Path, **limits: int) -> tuple[list[str], int]:
    """Bodies and gaps in their order, as short texts, and the end."""
    return scanned_with(root, nowhere, **limits)


def scanned_with(root: Path, known: Callable[[int, int], list[int]] | object, **limits: int) -> tuple[list[str], int]:
    pieces = Pieces(Files(), [root / "commitlog"], lambda *_: None)
    scan = LogScan(Files(), pieces, known_places=known, **limits)  # type: ignore[arg-type]
    texts = [
        found.body[:1].decode() if isinstance(found, Unit) else f"{found.start}-{found.end} {found.text}"
        for found in scan
    ]
    return texts, scan.end


def change(root: Path, place: int, data: bytes) -> None:
    with (root / "commitlog" / f"{place // SIZE * SIZE:020d}").open("r+b") as file:
        file.seek(place % SIZE)
        file.write(data)


def test_a_sound_log_is_walked_to_its_end(tmp_path: Path, places: list[int]) -> None:
    size = places[1]
    assert scanned(tmp_path) == (list("012345678"), places[-1] + size)
    assert scanned(tmp_path, start=SIZE + 5) == (list("345678"), places[-1] + size), "from the file on that holds it"
    assert scanned(tmp_path, limit=places[4]) == (list("0123"), places[4])


def test_behind_a_damaged_body_the_walk_goes_on(tmp_path: Path, places: list[int]) -> None:
    change(tmp_path, places[4] + 200, b"\xff")
    gap = f"{places[4]}-{places[5]} the body of a message of topic T does not match its checksum"
    assert scanned(tmp_path)[0] == [*"0123", gap, *"5678"]


def test_behind_a_damaged_head_it_needs_to_be_told_where(tmp_path: Path, places: list[int]) -> None:
    change(tmp_path, places[3], b"\xff" * 8)
    rest = f"{places[3]}-{2 * SIZE} no message begins here"
    assert scanned(tmp_path)[0] == [*"012", rest, *"678"]
    queues = lambda start, end: [place for place in places if start <= place < end]  # noqa: E731
    assert scanned_with(tmp_path, queues)[0] == [*"012", f"{places[3]}-{places[4]} no message begins here", *"45678"]


def test_a_message_of_another_place_is_named(tmp_path: Path, places: list[int]) -> None:
    log = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    change(tmp_path, places[4], log[: places[1]])
    gap = f"{places[4]}-{places[5]} a message of topic T lies here that belongs to 0"
    assert scanned(tmp_path)[0] == [*"0123", gap, *"5678"]


def test_zeros_are_a_gap_only_when_the_log_goes_on(tmp_path: Path, places: list[int]) -> None:
    change(tmp_path, places[7], bytes(3 * SIZE - places[7]))
    assert scanned(tmp_path) == (list("0123456"), places[7])
    change(tmp_path, places[5], bytes(2 * SIZE - places[5]))
    gap = f"{places[5]}-{places[6]} nothing was written here, but the log continues"
    assert scanned(tmp_path)[0] == [*"01234", gap, "6"]


def test_a_blank_record_must_reach_the_end_of_its_file(tmp_path: Path, places: list[int]) -> None:
    end = places[2] + places[1]
    change(tmp_path, end, BLANK.pack(99, BLANK.unpack_from((tmp_path / f"commitlog/{0:020d}").read_bytes(), end)[1]))
    text = f"the record at the end of the file has 99 bytes left, not {SIZE - end}"
    assert scanned(tmp_path)[0] == [*"012", f"{end}-{SIZE} {text}", *"345678"]


def test_a_file_that_goes_meanwhile_is_left_out(tmp_path: Path, places: list[int]) -> None:
    pieces = Pieces(Files(), [tmp_path / "commitlog"], lambda *_: None)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    found = list(LogScan(Files(), pieces))
    assert not any(isinstance(each, Gap) for each in found)
    assert [each.physical_offset for each in found if isinstance(each, Unit)] == places[3:]
    assert decode_unit(pieces.read(places[3], places[1])).body[:1] == b"3"
