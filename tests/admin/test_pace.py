"""Several looks at a group tell whether its offsets move, since when they stand, and how fast they are committed."""

from __future__ import annotations

import msgspec
import pytest

from orbitmq.admin.pace import Pace, Paces
from orbitmq.admin.progress import GroupProgress, GroupQueue, QueueState

SECOND = 1000
KEY = "T/broker-a/0"


def look(paces: Paces, at_s: float, offset: int | None, end: int = 100) -> Pace:
    lag = end - (offset or 0)
    queue = GroupQueue("T", "broker-a", 0, QueueState.BEHIND, 0, end, offset, lag_messages=lag)
    retry = msgspec.structs.replace(queue, topic="%RETRY%g")
    known = dict.fromkeys(GroupProgress.__struct_fields__)
    told = GroupProgress(**{**known, "group": "g", "queues": [queue, retry]})  # type: ignore[arg-type]
    return paces.seen(told, round(at_s * SECOND))


def test_an_offset_that_stays_stands_since_the_first_look_that_found_messages_waiting() -> None:
    paces = Paces()
    look(paces, 0, 100)  # nothing waits
    look(paces, 50, 100, end=103)
    mark = look(paces, 120, 100, end=105).marks[KEY]
    assert (mark.offset, mark.waits, mark.since_ms, mark.moved_ms) == (100, True, 50 * SECOND, None)


def test_an_offset_that_rises_has_moved_and_one_that_is_set_back_has_not() -> None:
    paces = Paces()
    look(paces, 0, 10)
    assert look(paces, 5, 20).marks[KEY].moved_ms == 5 * SECOND
    assert look(paces, 9, 20).marks[KEY].since_ms == 5 * SECOND
    back = look(paces, 12, 0).marks[KEY]
    assert (back.since_ms, back.moved_ms) == (12 * SECOND, 5 * SECOND)


def test_the_first_offset_that_is_stored_is_no_progress() -> None:
    paces = Paces()
    look(paces, 0, None)
    assert look(paces, 5, 0).marks[KEY].moved_ms is None


def test_what_is_committed_a_second_is_told_of_the_last_minute_once_looks_are_far_enough_apart() -> None:
    paces = Paces()
    assert look(paces, 0, 10).committed_tps is None
    assert look(paces, 5, 30).committed_tps is None
    assert look(paces, 20, 50).committed_tps == pytest.approx(2)
    look(paces, 70, 50)
    assert look(paces, 140, 50).committed_tps == 0
    assert set(look(paces, 140, 50).marks) == {KEY}, "retries are no messages of their own"
