"""The batch rules of a pull. Statuses and next offsets are also held to RocketMQ's in tests/golden/test_stores.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.message.java_hash import tags_code
from orbitmq.message.unit import decode_unit, decode_units
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.engine import MessageStore
from orbitmq.store.extended_queue import Extension
from orbitmq.store.pull_batch import GetStatus, Matcher, Selection
from orbitmq.store.queue import ENTRY, ENTRY_SIZE
from tests.support.stores import open_store, record, units_of

BIG_FILES = {"mapped_file_size_commit_log": 4 << 20, "mapped_file_size_consume_queue": 40_000}


FAR_AWAY = (1 << 63) - 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    made = open_store(tmp_path, **BIG_FILES)
    yield made
    made.close()


def put(store: MessageStore, count: int, size: int = 10, tag: str = "A") -> None:
    for _ in range(count):
        store.put(record(bytes(size), properties=f"TAGS\x01{tag}".encode()))


def test_at_most_as_many_as_asked_for_and_32(store: MessageStore) -> None:
    put(store, 50)
    assert len(units_of(store.get("T", 0, 0, 5))) == 5
    result = store.get("T", 0, 10, 1000)
    assert (result.status, len(units_of(result)), result.next_offset) == (GetStatus.FOUND, 32, 42)
    assert (result.min_offset, result.max_offset, result.is_behind) == (0, 50, False)


def test_at_most_256_kib_but_always_one(store: MessageStore) -> None:
    put(store, 3, size=300_000)
    put(store, 5, size=100_000)
    assert len(units_of(store.get("T", 0, 0, 32))) == 1
    result = store.get("T", 0, 3, 32)
    assert len(units_of(result)) == 2
    assert result.size == sum(map(len, result.buffers)) <= 256 << 10


def test_fewer_when_they_are_no_longer_in_memory(tmp_path: Path) -> None:
    store = open_store(tmp_path, **BIG_FILES, access_message_in_memory_max_ratio=0)
    put(store, 20)
    result = store.get("T", 0, 0, 32)
    assert (len(units_of(result)), result.is_behind) == (8, True)
    assert store.is_on_disk("T", 0, 0)
    assert not store.is_on_disk("T", 0, 20)
    put(store, 3, size=40_000)
    assert len(units_of(store.get("T", 0, 20, 32))) == 1
    store.close()


def test_in_bulk_only_bytes_are_limited(tmp_path: Path) -> None:
    for number, ratio in enumerate((40, 0)):
        store = open_store(tmp_path / str(number), **BIG_FILES, access_message_in_memory_max_ratio=ratio)
        put(store, 200, size=1000)
        put(store, 5, size=100_000)
        assert len(units_of(store.get("T", 0, 0, 150, bulk=True))) == 150
        result = store.get("T", 0, 0, 1000, bulk=True)
        assert len(units_of(result)) == 200
        assert result.size <= 256 << 10
        assert len(units_of(store.get("T", 0, 200, 1000, bulk=True))) == 2
        store.close()


def test_messages_that_do_not_match_are_passed_over(store: MessageStore) -> None:
    put(store, 3, tag="A")
    put(store, 2, tag="B")
    put(store, 3, tag="A")
    result = store.get("T", 0, 0, 32, Selection({tags_code("B")}.__contains__))
    assert (len(units_of(result)), result.next_offset) == (2, 8)
    result = store.get("T", 0, 0, 1, Selection({tags_code("B")}.__contains__))
    assert (len(units_of(result)), result.next_offset) == (1, 4)


def test_units_that_follow_one_another_are_one_buffer(tmp_path: Path) -> None:
    """Two queues that take turns, then one alone, over the end of a file: each buffer ends where the next unit is
    somebody else's, not wanted, or in another file; together they are what was stored, in order.
    """
    store = open_store(tmp_path, mapped_file_size_consume_queue=20 * 100)
    for number, queue_id in enumerate([0, 1, 0, 0, 1, *[0] * 60]):
        tag = "B" if number == 3 else "A"
        store.put(record(b"%02d" % number, queue_id=queue_id, properties=f"TAGS\x01{tag}".encode()))

    def bodies_of(offset: int, count: int, *matcher: Matcher) -> list[list[bytes]]:
        result = store.get("T", 0, offset, count, Selection(*matcher))
        units_of(result)
        return [[unit.body for unit in decode_units(buffer)] for buffer in result.buffers]

    assert bodies_of(0, 3) == [[b"00"], [b"02", b"03"]], "what another queue has between them parts them"
    assert bodies_of(0, 5) == [[b"00"], [b"02", b"03"], [b"05", b"06"]]
    assert bodies_of(0, 4, {tags_code("A")}.__contains__) == [[b"00"], [b"02"], [b"05", b"06"]]
    assert [sum(map(len, bodies_of(3, count))) for count in (1, 2, 7)] == [1, 2, 7]
    first, second = store.get("T", 0, 20, 32).buffers
    last, following = decode_units(first)[-1], decode_units(second)[0]
    assert (following.queue_offset, following.physical_offset) == (last.queue_offset + 1, 4096)
    store.close()


class Longer:
    """Wants units of more than so many bytes, and of extensions those that were stored at an even time."""

    def __init__(self, size: int, reads_max: int = 800) -> None:
        self.size = size
        self.reads_max = reads_max
        self.asked: list[Extension] = []

    def may_take(self, extension: Extension) -> bool:
        self.asked.append(extension)
        return extension.store_timestamp % 2 == 0

    def takes(self, unit: memoryview) -> bool:
        return len(unit) > self.size


def test_a_closer_look_decides_about_each_message(store: MessageStore) -> None:
    put(store, 2, size=10, tag="A")
    put(store, 2, size=500, tag="A")
    put(store, 2, size=500, tag="B")
    result = store.get("T", 0, 0, 32, Selection(None, Longer(400)))
    assert (result.status, len(units_of(result)), result.next_offset) == (GetStatus.FOUND, 4, 6)
    result = store.get("T", 0, 0, 32, Selection({tags_code("B")}.__contains__, Longer(400)))
    assert (len(units_of(result)), result.next_offset) == (2, 6)
    result = store.get("T", 0, 0, 32, Selection(None, Longer(4000)))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 6)


def test_a_closer_look_leaves_out_what_lies_between_units_it_takes(store: MessageStore) -> None:
    for size in (500, 10, 500, 500, 10):
        put(store, 1, size=size)
    result = store.get("T", 0, 0, 32, Selection(None, Longer(400)))
    assert [decode_unit(unit).queue_offset for unit in units_of(result)] == [0, 2, 3]
    assert result.next_offset == 5


@pytest.mark.parametrize("more", [-1 << 31, -1, 0, 1, 4096, (1 << 31) - 1, None])
@pytest.mark.parametrize("is_adjacent", [True, False])
def test_a_damaged_entry_costs_no_other_message(tmp_path: Path, more: int | None, is_adjacent: bool) -> None:
    """Its size, or its place, is overwritten: of it comes what the log has there, if anything; the others as ever."""
    store = open_store(tmp_path)
    for number in range(5):
        store.put(record(b"%d" % number))
    queue = store._queues.table["T", 0]
    place, size, code = store.entries("T", 0, 2, 1)[0]
    damaged = (place if is_adjacent else FAR_AWAY, size if more is None else more, code)
    queue._data[2 * ENTRY_SIZE : 3 * ENTRY_SIZE] = ENTRY.pack(*damaged)
    offset, units = 0, b""
    while offset < 5:
        result = store.get("T", 0, offset, 32)
        assert result.next_offset > offset
        offset, units = result.next_offset, units + b"".join(result.buffers)
    whole = [store.unit_at(store.entries("T", 0, number, 1)[0][0]) for number in (0, 1, 3, 4)]
    before, behind = b"".join(filter(None, whole[:2])), b"".join(filter(None, whole[2:]))
    assert units.startswith(before)
    assert units.endswith(behind)
    found = store._log.slice(*damaged[:2])
    assert units[len(before) : len(units) - len(behind)] == (found or b"")
    store.close()


def test_a_pull_looks_closely_at_so_many(store: MessageStore) -> None:
    put(store, 5, size=10)
    put(store, 5, size=500)
    put(store, 5, size=500, tag="B")
    result = store.get("T", 0, 0, 32, Selection(None, Longer(400, reads_max=4)))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 4)
    result = store.get("T", 0, 4, 32, Selection(None, Longer(400, reads_max=4)))
    assert (result.status, len(units_of(result)), result.next_offset) == (GetStatus.FOUND, 3, 8)
    wanted = {tags_code("B")}.__contains__
    result = store.get("T", 0, 0, 32, Selection(wanted, Longer(400, reads_max=4)))
    assert (len(units_of(result)), result.next_offset) == (4, 14), "what its tag rules out is not looked at"


def test_an_extension_is_asked_before_its_message_is_read(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock, **BIG_FILES, enable_consume_queue_ext=True)
    for _ in range(4):
        put(store, 1)
        clock.advance(1)
    look = Longer(0)
    result = store.get("T", 0, 0, 32, Selection(None, look))
    assert len(look.asked) == 4
    assert [decode_unit(unit).store_timestamp % 2 for unit in units_of(result)] == [0, 0]
    store.close()


def test_a_pull_looks_at_800_messages_for_a_match(store: MessageStore) -> None:
    put(store, 1000)
    result = store.get("T", 0, 0, 32, Selection(lambda _: False))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 800)
    result = store.get("T", 0, 0, 900, Selection(lambda _: False))
    assert result.next_offset == 900


def test_a_pull_stays_in_one_queue_file(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, 25)
    assert store.get("T", 0, 4, 32).next_offset == 10
    assert store.get("T", 0, 10, 32).next_offset == 20
    store.close()


def test_entries_whose_file_is_gone_are_passed_over(tmp_path: Path) -> None:
    """A queue loses its first files while its smallest offset is about to follow."""
    store = open_store(tmp_path)
    put(store, 25)
    store._queues.table["T", 0].files.remove_first()
    result = store.get("T", 0, 4, 32)
    assert (result.status, result.next_offset, result.buffers) == (GetStatus.OFFSET_FOUND_NULL, 10, [])
    assert store.get("T", 0, result.next_offset, 32).next_offset == 20
    store.close()


def test_messages_whose_file_is_gone_are_passed_over(store: MessageStore) -> None:
    put(store, 3)
    store._log.files._stream = (1 << 40, [])
    result = store.get("T", 0, 0, 32)
    assert (result.status, result.next_offset, result.buffers) == (GetStatus.MESSAGE_WAS_REMOVING, 3, [])


@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
        (3, GetStatus.OFFSET_OVERFLOW_ONE, 3),
        (4, GetStatus.OFFSET_OVERFLOW_BADLY, 3),
    ],
)
def test_outside_of_the_queue(store: MessageStore, offset: int, status: GetStatus, following: int) -> None:
    put(store, 3)
    result = store.get("T", 0, offset, 32)
    assert (result.status, result.next_offset, result.max_offset) == (status, following, 3)


def test_a_queue_that_does_not_exist_is_empty(store: MessageStore) -> None:
    result = store.get("T", 7, 5, 32)
    assert (result.status, result.next_offset, result.max_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0)


def test_buffers_stay_valid_while_the_log_goes_on(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put(record(b"first"))
    (buffer,) = store.get("T", 0, 0, 32).buffers
    for _ in range(100):
        store.put(record(bytes(500)))
    list(store.remove_topic("T"))
    store.close()
    assert b"first" in bytes(buffer)
