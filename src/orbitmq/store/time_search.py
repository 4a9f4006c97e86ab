"""Finds the offset of a queue where the messages of a time begin, or end.

The rule is that of RocketMQ 5: the first of several messages with one time, and the end of the queue for a time after
all of them. RocketMQ 4.9 returns the nearest message instead, any one of several with one time, and the last one for a
time after all; a group that is reset by that skips or repeats messages.
"""

from __future__ import annotations

from bisect import bisect_left

from orbitmq.message.unit import store_timestamp_of
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.positions import QueueOffset
from orbitmq.store.queue import ConsumeQueue


def store_time(log: CommitLog, physical_offset: int) -> int:
    """Store time of the message at `physical_offset`, -1 when it cannot be read."""
    unit = log.unit_at(physical_offset)
    return store_timestamp_of(unit) if unit is not None else -1


def offset_by_time(log: CommitLog, queue: ConsumeQueue, timestamp: int) -> QueueOffset:
    """The first message stored at or after `timestamp`, the end of the queue if there is none. If the broker's clock
    was set back, one of the positions where times pass `timestamp`.
    """

    def time_of(queue_offset: int) -> int:
        entry = queue.entry(queue_offset)
        assert entry is not None, "the search stays inside the queue"
        return store_time(log, entry[0])  # what cannot be read has expired, so it is older than all that remain

    low, end = queue.min_offset, queue.readable_offset
    return QueueOffset(bisect_left(range(end), timestamp, low, max(low, end), key=time_of))


def last_offset_by_time(log: CommitLog, queue: ConsumeQueue, timestamp: int) -> QueueOffset:
    """The last message stored at or before `timestamp`; the first one that still exists if there is none."""
    return QueueOffset(max(offset_by_time(log, queue, timestamp + 1) - 1, queue.min_offset))
