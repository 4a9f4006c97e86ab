"""One consume queue: entries, bounds, recovery."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.store.files import Files
from orbitmq.store.numbered import NumberedFiles
from orbitmq.store.queue import ENTRY, FILLER, ConsumeQueue

FILE_SIZE = 200  # ten entries


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "q"


def make(directory: Path) -> ConsumeQueue:
    queue = ConsumeQueue("T", 0, NumberedFiles(Files(), directory, FILE_SIZE))
    queue.files.load()
    return queue


@pytest.fixture
def queue(directory: Path) -> Iterator[ConsumeQueue]:
    made = make(directory)
    yield made
    made.close()


def fill(queue: ConsumeQueue, count: int) -> None:
    for number in range(count):
        queue.put(number, number * 100, 100, number)


def test_an_entry_is_the_one_of_the_sheet(queue: ConsumeQueue) -> None:
    queue.put(0, 7338, 1223, 2598919)
    assert queue.files.files[0].view[:20].hex() == "0000000000001caa000004c7000000000027a807"
    assert queue.entry(0) == (7338, 1223, 2598919)
    assert queue.max_physical_offset == 7338 + 1223


def test_entries_go_on_over_files(queue: ConsumeQueue, directory: Path) -> None:
    fill(queue, 25)
    assert sorted(path.name[-3:] for path in directory.iterdir()) == ["000", "200", "400"]
    assert [entry[2] for entry in queue.entries(7)] == list(range(7, 25))
    assert (queue.min_offset, queue.max_offset) == (0, 25)
    assert queue.entry(25) is None
    assert queue.entry(-1) is None


def test_a_message_that_is_there_is_not_entered_again(queue: ConsumeQueue) -> None:
    fill(queue, 5)
    queue.put(3, 300, 100, 99)
    assert [entry[2] for entry in queue.entries(0)] == [0, 1, 2, 3, 4]


def test_a_message_with_an_offset_that_is_taken_is_not_lost(
    queue: ConsumeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor are those behind it; the log tells it once."""
    fill(queue, 5)
    for claimed in (2, 3, 4):
        queue.put(claimed, 9000 + 100 * claimed, 100, 90 + claimed)
    assert [entry[2] for entry in queue.entries(0)] == [0, 1, 2, 3, 4, 92, 93, 94]
    assert caplog.text.count("event=queue_offset_skipped topic=T queue=0 expected=5 found=2") == 1
    assert caplog.text.count("event=queue_offset_skipped") == 1


def test_a_first_message_begins_the_queue_anew(queue: ConsumeQueue, directory: Path) -> None:
    """Its topic was removed and made anew. What is flushed is counted anew as well."""
    fill(queue, 25)
    queue.flush()
    queue.put(0, 9000, 100, 99)
    assert list(queue.entries(0)) == [(9000, 100, 99)]
    assert (queue.max_offset, queue.max_physical_offset, len(list(directory.rglob("0*")))) == (1, 9100, 1)
    assert queue.flushed < queue.end


def test_an_entry_that_skips_offsets_goes_to_the_end(queue: ConsumeQueue, caplog: pytest.LogCaptureFixture) -> None:
    """As RocketMQ does; the queue must not have holes."""
    fill(queue, 2)
    queue.put(9, 9000, 100, 9)
    assert queue.entry(2) == (9000, 100, 9)
    assert "event=queue_offset_skipped topic=T queue=0 expected=2 found=9" in caplog.text


@pytest.mark.parametrize("claimed", [6, 14, 23])
def test_a_queue_without_living_messages_goes_on_where_the_next_one_says(
    queue: ConsumeQueue, directory: Path, claimed: int
) -> None:
    """Its last file was lost, and with it the entries of messages that the log does not have any more, either."""
    fill(queue, 5)
    queue.forget_below(queue.max_physical_offset)
    queue.put(claimed, 9000, 100, 7)
    assert (queue.min_offset, queue.max_offset, queue.entry(claimed)) == (claimed, claimed + 1, (9000, 100, 7))
    again = make(directory)
    again.recover()
    again.forget_below(0)
    assert (again.min_offset, again.max_offset) == (claimed, claimed + 1)
    again.close()


@pytest.mark.parametrize("first", [1, 10, 23, 40])
def test_a_queue_that_begins_in_the_middle_is_filled_up(queue: ConsumeQueue, directory: Path, first: int) -> None:
    queue.put(first, 5000, 100, 7)
    assert (queue.min_offset, queue.max_offset) == (first, first + 1)
    assert queue.entry(first) == (5000, 100, 7)
    fillers = first % 10
    assert queue.files.start == (first - fillers) * 20
    assert queue.files.files[0].view[: fillers * 20] == FILLER * fillers
    assert FILLER.hex() == "00000000000000007fffffff0000000000000000"
    again = make(directory)
    again.recover()
    again.forget_below(0)
    assert (again.min_offset, again.max_offset, again.max_physical_offset) == (first, first + 1, 5100)
    again.close()


def test_truncation_keeps_what_lies_before(queue: ConsumeQueue, directory: Path) -> None:
    fill(queue, 25)
    queue.truncate(1500)
    assert (queue.max_offset, queue.max_physical_offset) == (15, 1500)
    assert len(list(directory.iterdir())) == 2
    queue.put(15, 1500, 50, 1)
    assert queue.entry(15) == (1500, 50, 1)
    queue.truncate(0)
    assert (queue.max_offset, queue.max_physical_offset) == (0, -1)


def test_the_minimum_follows_the_log(queue: ConsumeQueue) -> None:
    fill(queue, 25)
    queue.forget_below(1200)
    assert queue.min_offset == 12
    queue.forget_below(1250)
    assert queue.min_offset == 13
    queue.forget_below(99999)
    assert queue.min_offset == 25


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 25])
def test_the_end_is_found_again(queue: ConsumeQueue, directory: Path, count: int) -> None:
    fill(queue, count)
    again = make(directory)
    again.recover()
    assert (again.max_offset, again.max_physical_offset) == (count, count * 100 if count else -1)
    again.put(count, count * 100, 100, count)
    assert [entry[2] for entry in again.entries(0)] == list(range(count + 1))
    again.close()


@pytest.mark.parametrize("empty", [1, 2])
@pytest.mark.parametrize("count", [0, 5, 10, 15])
def test_empty_files_behind_the_end_take_no_entry(directory: Path, count: int, empty: int) -> None:
    """A power cut may bring back files that were made ahead and removed when the queue was closed."""
    before = make(directory)
    fill(before, count)
    begin = before.files.end
    before.close()
    for number in range(empty):
        directory.mkdir(exist_ok=True)
        (directory / f"{begin + number * FILE_SIZE:020}").write_bytes(bytes(FILE_SIZE))
    again = make(directory)
    again.recover()
    again.put(count, count * 100, 100, count)
    assert [entry[2] for entry in again.entries(0)] == list(range(count + 1))
    again.close()
    (at,) = [path.read_bytes()[count * 20 % FILE_SIZE :][:20] for path in sorted(directory.iterdir())][-1:]
    assert at == ENTRY.pack(count * 100, 100, count)


@pytest.mark.parametrize("end", [0, 1, 10, 11, 25])
def test_what_is_cut_off_stays_cut_off(queue: ConsumeQueue, directory: Path, end: int) -> None:
    fill(queue, 25)
    queue.cut(end)
    assert (queue.max_offset, queue.max_physical_offset) == (end, end * 100 if end else -1)
    assert sum(path.read_bytes().rstrip(b"\0") != b"" for path in directory.iterdir()) == -(-end // 10)
    queue.put(end, 9000, 100, 9)
    assert queue.entry(end) == (9000, 100, 9)


def test_a_queue_of_which_nothing_is_left_may_begin_earlier(queue: ConsumeQueue) -> None:
    queue.put(23, 5000, 100, 7)
    queue.cut(20)
    queue.put(12, 3000, 100, 7)
    assert (queue.min_offset, queue.max_offset) == (12, 13)
    assert queue.entry(12) == (3000, 100, 7)
