"""Whatever a crash has cost a file, what is believed of it afterwards is the beginning of what was written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.store.files import Files
from orbitmq.store.index.file import ENTRY, HEADER, NUMBER, IndexFile, IndexShape
from orbitmq.store.index.proof import proven_entries
from tests.support.indexes import Row, add, rows

SHAPE = IndexShape(slots=7, entries=60)
SECTOR = 64  # what a disk writes as a whole; it holds an entry and the pieces of two more
LOG_END = 1 << 40

ROWS = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 2), st.integers(0, 4000)), max_size=59).map(rows)


def versions(directory: Path, batches: list[list[Row]]) -> list[bytes]:
    """The bytes of a file from its creation on, after each batch."""
    file = IndexFile(Files().create(directory / "1", SHAPE.file_size), SHAPE)
    found = [bytes(file.file.view)]
    for batch in batches:
        add(file, batch)
        found.append(bytes(file.file.view))
    file.file.close()
    return found


def entries(data: bytes, count: int) -> bytes:
    return data[SHAPE.entry_position(1) : SHAPE.entry_position(count)]


def slots(data: bytes) -> list[int]:
    return [slot for (slot,) in NUMBER.iter_unpack(data[HEADER.size : SHAPE.entries_start])]


@given(ROWS)
def test_of_a_whole_file_all_but_the_last_entry_is_proven(
    tmp_path_factory: pytest.TempPathFactory, stored: list[Row]
) -> None:
    directory = tmp_path_factory.mktemp("index")
    _, *before, whole = versions(directory, [stored[:-1], stored[-1:]])
    count, heads = proven_entries(memoryview(whole), SHAPE, LOG_END)
    assert count == max(1, len(stored))
    assert list(heads) == slots(before[0])


@given(ROWS, st.data())
def test_sectors_of_any_age_prove_a_beginning(
    tmp_path_factory: pytest.TempPathFactory, stored: list[Row], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stored)), max_size=6)))
    batches = [stored[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stored)], strict=True)]
    history = versions(tmp_path_factory.mktemp("index"), batches)
    ages = data.draw(st.lists(st.integers(0, len(batches)), min_size=1, max_size=40))
    disk = b"".join(
        history[ages[number % len(ages)]][start : start + SECTOR]
        for number, start in enumerate(range(0, SHAPE.file_size, SECTOR))
    )
    count, heads = proven_entries(memoryview(disk), SHAPE, LOG_END)
    assert entries(disk, count) == entries(history[-1], count)
    assert list(heads) == slots(versions(tmp_path_factory.mktemp("index"), [stored[: count - 1]])[-1])


@given(ROWS, st.integers(0, 6000))
def test_nothing_behind_the_end_of_the_log_is_believed(
    tmp_path_factory: pytest.TempPathFactory, stored: list[Row], log_end: int
) -> None:
    data = versions(tmp_path_factory.mktemp("index"), [stored])[-1]
    count, _ = proven_entries(memoryview(data), SHAPE, log_end)
    below = sum(offset < log_end for _, offset, _ in stored)
    assert count == max(1, below)


def test_entries_that_did_not_follow_one_another_are_not_believed(tmp_path: Path) -> None:
    """Bytes that look like entries, left over from something else."""
    data = bytearray(versions(tmp_path, [[(3, 100, 1_000), (5, 200, 1_000), (3, 300, 1_000)]])[-1])
    ENTRY.pack_into(data, SHAPE.entry_position(3), 3, 300, 0, 2)
    assert proven_entries(memoryview(data), SHAPE, LOG_END)[0] == 2
    ENTRY.pack_into(data, SHAPE.entry_position(3), 3, 150, 0, 1)
    assert proven_entries(memoryview(data), SHAPE, LOG_END)[0] == 2
