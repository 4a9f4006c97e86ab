"""Divides the ranges of a read into partitions, of which each is one task: joins small ranges of one broker, cuts long
ones. Pure and deterministic: a repeated batch of a stream must have the same partitions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise

from orbitmq.spark.fetch import OffsetRange

# What one more task costs, as messages of about 1 KiB that are read in the same time. So ranges are joined until a task
# has as much work as its start costs: joining more saves less than half, and takes tasks away from idle cores. No piece
# of a long range is shorter.
TASK_COST = 20_000
TASK_BYTES = 64 << 20  # that are read in the time of TASK_COST messages; above 3 KiB a message the bytes decide
RANGE_COST = 50  # what one more range costs, which needs a pull of its own, in messages

Partition = tuple[OffsetRange, ...]


@dataclass(frozen=True)
class PartitionLimits:
    """How a read is divided. 0 is no limit."""

    partitions_min: int = 0
    partitions_max: int = 0
    records_max: int = 0
    """Messages of one partition."""


def divided(ranges: Iterable[OffsetRange], limits: PartitionLimits, message_size: float = 0) -> list[Partition]:
    """The partitions of a read, in the order of broker, topic, queue and offset. Empty ranges are left out.

    `message_size` is the mean size of messages in bytes, 0 if unknown. Ranges are joined up to TASK_COST messages and
    TASK_BYTES; further, while there are more than `partitions_max`, as long as they are of one broker. If there are
    fewer than `partitions_min`, long ranges are cut in proportion to their length, but no piece is shorter than
    TASK_COST, then joined ranges are separated. No partition has more than `records_max` messages.
    """
    filled = sorted((range_ for range_ in ranges if range_.start < range_.end), key=_place)
    weight = max(1.0, message_size * TASK_COST / TASK_BYTES)
    pieces = _cut(filled, 0, limits.records_max)
    partitions = _joined(pieces, TASK_COST, weight, limits.records_max)
    if len(partitions) < limits.partitions_min:
        pieces = _cut(filled, limits.partitions_min, limits.records_max)
        partitions = _joined(pieces, TASK_COST, weight, limits.records_max)
    if 0 < limits.partitions_max < len(partitions):
        partitions = _joined_to(pieces, limits.partitions_max, weight)
    return _separated(partitions, limits.partitions_min)


def _place(range_: OffsetRange) -> tuple[str, str, int, int]:
    queue = range_.queue
    return queue.broker_name, queue.topic, queue.queue_id, range_.start


def _cut(ranges: list[OffsetRange], partitions_min: int, records_max: int) -> list[OffsetRange]:
    """The ranges, with long ones cut into equal pieces."""
    total = sum(map(len, ranges))
    pieces: list[OffsetRange] = []
    for range_ in ranges:
        count = max(1, min(round(partitions_min * len(range_) / total), len(range_) // TASK_COST))
        if records_max:
            count = max(count, -(-len(range_) // records_max))
        cuts = [range_.start + len(range_) * number // count for number in range(count + 1)]
        pieces += [OffsetRange(range_.queue, start, end) for start, end in pairwise(cuts)]
    return pieces


def _joined(ranges: list[OffsetRange], cost_max: float, weight: float, records_max: int = 0) -> list[Partition]:
    """Neighbours of one broker together, as long as their messages of this weight cost no more."""
    joined: list[list[OffsetRange]] = []
    cost, records = 0.0, 0
    for range_ in ranges:
        cost += len(range_) * weight + RANGE_COST
        records += len(range_)
        is_full = cost > cost_max or 0 < records_max < records
        if not joined or is_full or joined[-1][-1].queue.broker_name != range_.queue.broker_name:
            joined.append([])
            cost, records = len(range_) * weight + RANGE_COST, len(range_)
        joined[-1].append(range_)
    return list(map(tuple, joined))


def _joined_to(ranges: list[OffsetRange], partitions_max: int, weight: float) -> list[Partition]:
    """Neighbours together until there are so many partitions at most, each as small as possible."""
    everything = int(sum(map(len, ranges)) * weight) + RANGE_COST * len(ranges) + 1
    costs = range(everything)
    least = bisect_left(costs, True, key=lambda cost: len(_joined(ranges, cost, weight)) <= partitions_max)
    return _joined(ranges, least, weight)


def _separated(partitions: list[Partition], partitions_min: int) -> list[Partition]:
    """The longest partitions of several ranges halved, until there are so many partitions or all have one range."""
    done: list[Partition] = [ranges for ranges in partitions if len(ranges) == 1]
    heap = [_longest_first(ranges) for ranges in partitions if len(ranges) > 1]
    heapify(heap)
    while heap and len(heap) + len(done) < partitions_min:
        *_, ranges = heappop(heap)
        middle = len(ranges) // 2
        for half in (ranges[:middle], ranges[middle:]):
            if len(half) > 1:
                heappush(heap, _longest_first(half))
            else:
                done.append(half)
    return sorted([*done, *(ranges for *_, ranges in heap)], key=lambda ranges: _place(ranges[0]))


def _longest_first(ranges: Partition) -> tuple[int, tuple[str, str, int, int], Partition]:
    return -sum(map(len, ranges)), _place(ranges[0]), ranges
