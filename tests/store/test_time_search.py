"""Offsets by time."""

from __future__ import annotations

import os
import tempfile
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
    """Messages stored 0, 10, 20 ... 90 s after START."""
    clock = ManualClock(START)
    made = open_store(tmp_path_factory.mktemp("s"), clock, mapped_file_size_consume_queue=20_000)
    for _ in range(10):
        made.put(record())
        clock.advance(10_000)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("seconds", "first", "last"),
    [
        (-5, 0, 0),
        (0, 0, 0),
        (4, 1, 0),
        (10, 1, 1),
        (34.9, 4, 3),
        (35, 4, 3),
        (90, 9, 9),
        (90.001, 10, 9),
        (1000, 10, 9),
    ],
)
def test_the_first_message_since_and_the_last_until_are_found(
    store: MessageStore, seconds: float, first: int, last: int
) -> None:
    assert store.offset_by_time("T", 0, START + int(seconds * 1000)) == first
    assert store.last_offset_by_time("T", 0, START + int(seconds * 1000)) == last


@given(
    steps=st.lists(st.integers(0, 2), min_size=1, max_size=60),
    written=st.lists(st.integers(-3, 3), max_size=6),
    removed=st.integers(0, 2),
)
@settings(max_examples=60, deadline=None)
def test_no_message_since_a_time_is_skipped(steps: list[int], written: list[int], removed: int) -> None:
    """Against a list: times that repeat within files of ten entries and across them, gaps, files that are gone, and
    whatever the file system says of when a file was written.
    """
    clock, times = ManualClock(START), []
    with tempfile.TemporaryDirectory() as home:
        store = open_store(Path(home), clock, mapped_file_size_commit_log=1 << 16)
        for step in steps:
            clock.advance(step)
            times.append(clock.now_ms())
            store.put(record())
        files = sorted((Path(home) / "consumequeue" / "T" / "0").iterdir())
        for file, shift in zip(files, written, strict=False):
            os.utime(file, (0, (START + shift) / 1000))
        low = min(removed * 10, len(times) - 1)
        store._queues.table["T", 0].forget_below(store.entries("T", 0, low, 1)[0][0])
        for time in range(START - 1, times[-1] + 3):
            since = (offset for offset in range(low, len(times)) if times[offset] >= time)
            until = (offset for offset in range(low, len(times)) if times[offset] <= time)
            assert store.offset_by_time("T", 0, time) == next(since, len(times))
            assert store.last_offset_by_time("T", 0, time) == max(until, default=low)
        store.close()


def test_an_empty_queue_has_offset_zero(store: MessageStore) -> None:
    assert store.offset_by_time("T", 9, START) == 0


def test_the_first_message_tells_the_earliest_time(store: MessageStore) -> None:
    assert store.earliest_store_time("T", 0) == store.earliest_message_time == START
    assert store.earliest_store_time("T", 9) == -1
