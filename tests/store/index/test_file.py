"""One index file: its bytes, its chains, its end."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message.properties import encode_properties
from orbitmq.message.unit import pack_unit, unit_size
from orbitmq.store.files import Files
from orbitmq.store.index.file import ENTRY, FOUND_MAX, HEADER, IndexFile, IndexShape
from orbitmq.store.index.log_keys import scan_hashes
from orbitmq.store.index.loops import enter
from tests.support.disk import FaultyDisk
from tests.support.indexes import SHAPE, T0, Row, add, new_file, rows
from tests.support.stores import HOST

FOREVER = 1 << 62


def test_the_default_file_has_rocketmqs_size() -> None:
    assert IndexShape(5_000_000, 20_000_000).file_size == 420_000_040


def test_every_byte_has_its_place(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    add(file, [(9, 0, T0), (2, 100, T0 + 2500), (16, 300, T0 + 61_000)])  # 9, 2 and 16 share slot 2 of 7
    data = bytes(file.file.view)
    assert data[:40] == b"".join(
        [
            T0.to_bytes(8, "big"), (T0 + 61_000).to_bytes(8, "big"), (0).to_bytes(8, "big"), (300).to_bytes(8, "big"),
            (1).to_bytes(4, "big"), (4).to_bytes(4, "big"),
        ]
    )  # fmt: skip
    assert data[40:68] == bytes(8) + (3).to_bytes(4, "big") + bytes(16)
    assert data[68:88] == bytes(20)
    assert data[88:148] == ENTRY.pack(9, 0, 0, 0) + ENTRY.pack(2, 100, 2, 1) + ENTRY.pack(16, 300, 61, 2)
    assert data[148:] == bytes(SHAPE.file_size - 148)


def test_a_file_takes_what_fits(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    room = SHAPE.entries - 1  # number 0 is never used
    assert add(file, [(key, 0, T0) for key in range(room + 5)]) == room
    assert file.is_full
    assert add(file, [(1, 0, T0)]) == 0


def test_a_large_file_takes_keys_as_they_are_found(tmp_path: Path) -> None:
    def unit(number: int) -> bytes:
        text = encode_properties({"KEYS": f"k{number} k{number % 3}"}).encode()
        size, stored = unit_size(0, b"b", b"T", text), T0 + 1500 * number
        return pack_unit(size, 0, 0, 0, 0, 0, 0, 1, HOST, stored, HOST, 0, 0, b"b", b"T", text)

    units = b"".join(map(unit, range(50)))
    shape = IndexShape(7, FOUND_MAX + 50)
    together, one_by_one = new_file(tmp_path, "a", shape), new_file(tmp_path, "b", shape)
    assert together.add_found(units, 0, 99) == 0, "the first entry gives the time from which others count"
    for file in (together, one_by_one):
        file.add([5], [0], [T0])
    size, found = scan_hashes(units, 100, 30)
    assert one_by_one.add(*found) == 60
    assert together.add_found(units, 100, 30) == size
    assert bytes(together.file.view) == bytes(one_by_one.file.view)
    assert (together.count, together.slots_used, together.end_timestamp, together.end_offset) == (
        one_by_one.count, one_by_one.slots_used, one_by_one.end_timestamp, one_by_one.end_offset
    )  # fmt: skip
    assert together.add_found(units, 100, 30) == 0, "it is nearly full"


def some_rows(step_ms: st.SearchStrategy[int]) -> st.SearchStrategy[list[Row]]:
    steps = st.tuples(st.integers(0, 20), st.integers(0, 3), step_ms)
    return st.lists(steps, max_size=SHAPE.entries - 1).map(rows)


def file_with(directory: Path, stored: list[Row], data: st.DataObject) -> IndexFile:
    """The rows, added in pieces of any size."""
    file = new_file(directory)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stored)), max_size=3)))
    for start, stop in zip([0, *cuts], [*cuts, len(stored)], strict=True):
        add(file, stored[start:stop])
    return file


@given(data=st.data(), stored=some_rows(st.sampled_from([0, 900, 1500, -4000, 10**13])))
def test_one_by_one_rows_are_entered_like_together(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, stored: list[Row]
) -> None:
    """Where nothing is compiled the file enters them together; compiled, both are the loop."""
    file = file_with(tmp_path_factory.mktemp("index"), stored, data)
    table, begin, used = bytearray(SHAPE.file_size), 0, 0
    for number, (key_hash, offset, timestamp) in enumerate(stored, start=1):
        used += enter(table, SHAPE.slots, number, begin, [key_hash], [offset], [timestamp])
        begin = begin or timestamp
    assert table[HEADER.size :] == file.file.view[HEADER.size :]
    assert used == file.slots_used


@pytest.mark.parametrize(
    ("slots", "number", "offsets"),
    [
        (7, 20, [0]),
        (7, 0, [0]),
        (7, -1, [0]),
        (7, 1 << 40, [0]),
        (0, 1, [0]),
        (-7, 1, [0]),
        (1 << 40, 1, [0]),
        (7, 1, []),
    ],
)
def test_no_row_is_entered_outside_its_file(slots: int, number: int, offsets: list[int]) -> None:
    table = bytearray(SHAPE.file_size)
    with pytest.raises(IndexError, match=f"no place for 1 entries from {number} on"):
        enter(table, slots, number, 0, [3], offsets, [T0])
    assert not any(table)


@given(some_rows(st.integers(-3000, 9000)), st.data())
def test_a_file_finds_like_a_list(
    tmp_path_factory: pytest.TempPathFactory, stored: list[Row], data: st.DataObject
) -> None:
    """Newest first; clocks may be set back."""
    file = file_with(tmp_path_factory.mktemp("index"), stored, data)
    for wanted in range(21):
        assert list(file.find(wanted, 0, FOREVER)) == [place for key, place, _ in reversed(stored) if key == wanted]
    assert (file.count, file.slots_used) == (len(stored) + 1, len({key % SHAPE.slots for key, _, _ in stored}))
    file.file.close()


@given(some_rows(st.integers(0, 9000)), st.data())
def test_a_time_range_is_one_of_whole_seconds_since_the_first_entry(
    tmp_path_factory: pytest.TempPathFactory, stored: list[Row], data: st.DataObject
) -> None:
    file = file_with(tmp_path_factory.mktemp("index"), stored, data)
    begin = data.draw(st.integers(T0 - 5000, T0 + 60_000))
    end = data.draw(st.integers(begin, T0 + 90_000))
    for wanted in range(21):
        first = stored[0][2] if stored else 0
        known = [(place, when - (when - first) % 1000) for key, place, when in reversed(stored) if key == wanted]
        assert list(file.find(wanted, begin, end)) == [place for place, when in known if begin <= when <= end]
    file.file.close()


def test_the_second_file_counts_its_first_seconds_from_the_end_of_the_first(tmp_path: Path) -> None:
    """So does RocketMQ. The first entry is found at its true time all the same."""
    first, second = new_file(tmp_path, "1"), new_file(tmp_path, "2")
    add(first, [(1, 0, T0)])
    second.begin_after(first)
    assert (second.begin_offset, second.end_timestamp) == (0, T0)
    later = T0 + 3_600_000
    add(second, [(1, 100, later), (2, 200, later + 1500)])
    assert [second.entry(number)[2] for number in (1, 2)] == [3600, 1]
    assert (second.begin_timestamp, second.begin_offset) == (later, 100)
    assert list(second.find(1, later, later)) == [100]
    assert list(second.find(2, later + 1000, FOREVER)) == [200]


def test_what_was_added_is_there_after_a_restart(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    add(file, [(1, 0, T0), (8, 50, T0 + 5000)])
    file.file.close()
    again = IndexFile(Files().open(tmp_path / "1", SHAPE.file_size, writable=True), SHAPE)
    add(again, [(1, 90, T0 + 7000)])
    assert list(again.find(1, 0, FOREVER)) == [90, 0]
    assert (again.begin_timestamp, again.end_timestamp, again.begin_offset, again.end_offset) == (T0, T0 + 7000, 0, 90)
    assert (again.count, again.slots_used) == (4, 1)


def test_a_chain_that_leads_nowhere_ends(tmp_path: Path) -> None:
    """Damage must not send a search round in circles."""
    file = new_file(tmp_path)
    add(file, [(1, 0, T0), (1, 10, T0), (1, 20, T0)])
    for previous in (2, 3, 1_000, -1):
        ENTRY.pack_into(file.file.data, SHAPE.entry_position(2), 1, 10, 0, previous)
        assert list(islice(file.find(1, 0, FOREVER), 10)) == [20, 10]


def test_a_search_survives_the_removal_of_its_file(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    add(file, [(1, 0, T0), (1, 10, T0)])
    search = file.find(1, 0, FOREVER)
    assert next(search) == 10
    file.file.close()
    assert list(search) in ([], [0])
    assert list(file.find(1, 0, FOREVER)) == []


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.room = 0
    file = IndexFile(disk.create(tmp_path / "1", SHAPE.file_size), SHAPE)
    with pytest.raises(OSError, match="full"):
        add(file, [(1, 0, T0)])
    assert (file.count, bytes(file.file.view)) == (1, bytes(SHAPE.file_size))
    disk.room = None
    assert add(file, [(1, 0, T0)]) == 1


def test_a_header_that_counts_more_slots_than_there_are_stops_nothing(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    add(file, [(9, 0, T0)])
    file.slots_used = 0x7FFFFFFF
    assert add(file, [(3, 100, T0)]) == 1
    assert file.slots_used == SHAPE.slots
    assert list(file.find(3, 0, FOREVER)) == [100]
