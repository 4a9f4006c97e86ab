"""Offsets by time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.runtime.clock import ManualClock
from orbitmq.store.engine import MessageStore
from tests.support.stores import open_store, record

START = 1_700_000_000_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    """Messages stored 0, 10, 20 ... 90 s after START; the eight last share a time with their successor."""
    clock = ManualClock(START)
    made = open_store(tmp_path_factory.mktemp("s"), clock, mapped_file_size_consume_queue=20_000)
    for _ in range(10):
        made.put(record())
        clock.advance(10_000)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("seconds", "offset"),
    [(-5, 0), (0, 0), (4, 0), (5, 0), (5.001, 1), (6, 1), (10, 1), (34.9, 3), (35, 3), (36, 4), (90, 9), (1000, 9)],
)
def test_the_nearest_message_is_found_and_the_earlier_of_two(store: MessageStore, seconds: float, offset: int) -> None:
    assert store.offset_by_time("T", 0, START + int(seconds * 1000)) == offset


@given(st.integers(-10_000, 110_000))
@settings(max_examples=50)
def test_no_message_is_nearer(store: MessageStore, after_ms: int) -> None:
    found = store.offset_by_time("T", 0, START + after_ms)
    nearest = min(range(10), key=lambda number: (abs(number * 10_000 - after_ms), number))
    assert found == nearest


def test_an_empty_queue_has_offset_zero(store: MessageStore) -> None:
    assert store.offset_by_time("T", 9, START) == 0


def test_the_first_message_tells_the_earliest_time(store: MessageStore) -> None:
    assert store.earliest_store_time("T", 0) == store.earliest_message_time == START
    assert store.earliest_store_time("T", 9) == -1


def test_only_the_file_written_at_that_time_is_searched(tmp_path: Path) -> None:
    """RocketMQ looks at the modification times of the queue's files; so a copied store must keep them."""
    clock = ManualClock(START)
    store = open_store(tmp_path, clock)
    for _ in range(20):
        store.put(record())
        clock.advance(1000)
    first, second = sorted((tmp_path / "consumequeue" / "T" / "0").iterdir())
    os.utime(first, (0, (START + 3000) / 1000))
    os.utime(second, (0, (START + 30_000) / 1000))
    assert store.offset_by_time("T", 0, START + 3000) == 3
    assert store.offset_by_time("T", 0, START + 5000) == 10, "the message is in the first file, which is not searched"
    store.close()
