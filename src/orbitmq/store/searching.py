"""Finds the message of a queue that was stored nearest to a time. The rules are RocketMQ's, odd corners included."""

from __future__ import annotations

from orbitmq.message.unit import store_timestamp_of
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.positions import QueueOffset
from orbitmq.store.queue import ENTRY_SIZE, ConsumeQueue


def store_time(log: CommitLog, physical_offset: int) -> int:
    """Store time of the message at `physical_offset`, -1 when it cannot be read."""
    unit = log.unit_at(physical_offset)
    return store_timestamp_of(unit) if unit is not None else -1


def offset_by_time(log: CommitLog, queue: ConsumeQueue, timestamp: int) -> QueueOffset:
    """The nearest message, the last one for a time in the future; 0 for an empty queue.

    Only one file of the queue is searched, the first that was written at or after `timestamp`; a time between two
    files therefore finds a message of the later one.
    """
    files = queue.files.files
    if not files:
        return QueueOffset(0)
    index = next((i for i, file in enumerate(files) if file.modified_ms() >= timestamp), len(files) - 1)
    file_start = (queue.files.start + index * queue.files.file_size) // ENTRY_SIZE
    file_end = min(file_start + queue.files.file_size // ENTRY_SIZE, queue.readable_offset)
    return _search(log, queue, timestamp, max(file_start, queue.min_offset), file_end - 1)


def _search(log: CommitLog, queue: ConsumeQueue, timestamp: int, low: int, high: int) -> QueueOffset:
    left: tuple[int, int] | None = None  # the last entry before the time, and its distance
    right: tuple[int, int] | None = None
    while high >= low:
        middle = (low + high) // 2
        entry = queue.entry(middle)
        assert entry is not None, "the search stays inside the queue"
        found = store_time(log, entry[0])
        if found < 0:
            return QueueOffset(0)
        if found == timestamp:
            return QueueOffset(middle)
        if found > timestamp:
            high = middle - 1
            right = (middle, found - timestamp)
        else:
            low = middle + 1
            left = (middle, timestamp - found)
    if left is None or right is None:
        nearest = left or right
        return QueueOffset(nearest[0] if nearest else 0)
    return QueueOffset(right[0] if left[1] > right[1] else left[0])
