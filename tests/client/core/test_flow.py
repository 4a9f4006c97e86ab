"""Pulling waits above a threshold, not at it."""

from __future__ import annotations

from orbitmq.client.core.flow import MIB, PullPause, Thresholds
from orbitmq.client.core.process_queue import ProcessQueue
from orbitmq.message.model import MessageExt


def cached(*offsets: int, size: int = 1) -> ProcessQueue:
    queue = ProcessQueue()
    queue.put([MessageExt("T", bytes(size), queue_offset=offset) for offset in offsets])
    return queue


def test_more_messages_than_the_threshold_hold() -> None:
    assert Thresholds(count=3).hold(cached(1, 2, 3)) is None
    assert Thresholds(count=3).hold(cached(1, 2, 3, 4)) is PullPause.COUNT


def test_bytes_count_in_whole_mebibytes() -> None:
    assert Thresholds(size_mib=1).hold(cached(1, size=2 * MIB - 1)) is None
    assert Thresholds(size_mib=1).hold(cached(1, size=2 * MIB)) is PullPause.SIZE


def test_one_old_message_holds_the_queue() -> None:
    assert Thresholds(span=10).hold(cached(1, 11)) is None
    assert Thresholds(span=10).hold(cached(1, 12)) is PullPause.SPAN


def test_thresholds_of_a_topic_are_divided_and_come_back() -> None:
    own = Thresholds(count=1000, size_mib=100)
    assert own.shared(100, -1, queues=8) == Thresholds(count=12, size_mib=100)
    assert own.shared(4, 4, queues=8) == Thresholds(count=1, size_mib=1)
    assert own.shared(-1, -1, queues=8) == own
    assert own.shared(100, 100, queues=0) == own
