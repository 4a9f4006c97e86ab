"""Ranges become partitions: every message once and in order, short queues together, long ones cut, limits kept."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.spark.fetch import OffsetRange
from orbitmq.spark.read_partitions import RANGE_COST, TASK_BYTES, TASK_COST, Partition, PartitionLimits, divided
from tests.spark.scripted_peer import queue

LENGTHS = st.one_of(st.integers(0, 300), st.integers(0, 300_000))
PLACES = st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["orders", "payments"]), st.integers(0, 20))
RANGES = st.dictionaries(PLACES, st.tuples(st.integers(0, 99), LENGTHS)).map(
    lambda found: [
        OffsetRange(queue(number, topic, broker), start, start + size)
        for (broker, topic, number), (start, size) in found.items()
    ]
)
LIMITS = st.one_of(
    st.builds(PartitionLimits, partitions_min=st.integers(0, 40), records_max=st.integers(1000, 300_000)),
    st.builds(
        lambda least, more: PartitionLimits(least, least + more), least=st.integers(0, 40), more=st.integers(1, 20)
    ),
)


def brokers(ranges: list[OffsetRange]) -> set[str]:
    return {range_.queue.broker_name for range_ in ranges if len(range_)}


def messages(partition: Partition) -> int:
    return sum(map(len, partition))


@given(RANGES, LIMITS, st.sampled_from([0, 500, 10_000]))
def test_every_message_is_in_one_partition_and_the_limits_hold(
    ranges: list[OffsetRange], limits: PartitionLimits, size: float
) -> None:
    partitions = divided(ranges, limits, size)
    pieces = list(chain.from_iterable(partitions))
    for range_ in ranges:
        mine = [piece for piece in pieces if piece.queue == range_.queue]
        bounds = [range_.start, *(piece.end for piece in mine)]
        assert [piece.start for piece in mine] == bounds[:-1]
        assert bounds[-1] == range_.end
        assert all(map(len, mine))
    assert all(len({piece.queue.broker_name for piece in partition}) == 1 for partition in partitions)
    if limits.records_max:
        assert max(map(messages, partitions), default=0) <= limits.records_max
    if limits.partitions_max:
        assert len(partitions) <= max(limits.partitions_max, len(brokers(ranges)))
    if limits.partitions_min > len(partitions):  # nothing is left to be separated
        assert all(len(partition) == 1 for partition in partitions)
    assert divided(list(reversed(ranges)), limits, size) == partitions


@given(RANGES, st.sampled_from([0, 500, 10_000]))
def test_no_more_partitions_than_needed_are_made(ranges: list[OffsetRange], size: float) -> None:
    partitions = divided(ranges, PartitionLimits(), size)
    weight = max(1.0, size * TASK_COST / TASK_BYTES)
    work = [sum(len(range_) * weight + RANGE_COST for range_ in partition) for partition in partitions]
    for partition, cost in zip(partitions, work, strict=True):
        assert len(partition) == 1 or cost <= TASK_COST
    for first, second, one, other in zip(partitions, partitions[1:], work, work[1:], strict=False):
        if first[0].queue.broker_name == second[0].queue.broker_name:
            head = len(second[0]) * weight + RANGE_COST
            assert one + head > TASK_COST, f"{second[0]} would fit to the partition before, of {other}"


def short(count: int, size: int = 20, broker: str = "broker-a") -> list[OffsetRange]:
    return [OffsetRange(queue(number, "orders", broker), 5, 5 + size) for number in range(count)]


LONG = OffsetRange(queue(0, "payments"), 0, 30 * TASK_COST)


@pytest.mark.parametrize(
    ("ranges", "limits", "size", "count"),
    [
        (short(1000), PartitionLimits(), 0, 4),
        (short(1000), PartitionLimits(), 1000, 4),
        (short(1000), PartitionLimits(), 1 << 20, 334),  # three queues of 20 MiB in 64 MiB
        ([*short(50), *short(50, broker="broker-b")], PartitionLimits(), 0, 2),
        (short(10_000), PartitionLimits(partitions_max=3), 0, 3),
        (short(10_000), PartitionLimits(partitions_max=1), 1 << 20, 1),
        ([*short(50), *short(50, broker="broker-b")], PartitionLimits(partitions_max=1), 0, 2),
        (short(1000), PartitionLimits(partitions_min=64), 0, 64),
        (short(10), PartitionLimits(partitions_min=64), 0, 10),
        (short(10), PartitionLimits(partitions_min=7, partitions_max=7), 0, 7),
        (short(100), PartitionLimits(records_max=60), 0, 34),
        ([*short(1000), LONG], PartitionLimits(partitions_min=11), 0, 4 + 11),
        ([*short(1000), LONG], PartitionLimits(partitions_min=4), 0, 4 + 1),
        ([LONG], PartitionLimits(partitions_min=1000), 0, 30),
        ([LONG], PartitionLimits(partitions_min=1000, partitions_max=1000), 0, 30),
        ([OffsetRange(queue(0), 5, 5), OffsetRange(queue(1), 7, 3)], PartitionLimits(4, 0, 10), 0, 0),
    ],
)
def test_so_many_partitions_are_made(
    ranges: list[OffsetRange], limits: PartitionLimits, size: float, count: int
) -> None:
    assert len(divided(ranges, limits, size)) == count


def test_long_queues_are_cut_evenly() -> None:
    pieces = [partition[0] for partition in divided([LONG], PartitionLimits(partitions_min=7))]
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


def test_work_is_spread_over_the_partitions_that_are_allowed() -> None:
    sizes = list(map(messages, divided(short(10_000), PartitionLimits(partitions_max=4))))
    assert sizes == [50_000] * 4
