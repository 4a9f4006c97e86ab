"""Which ranges of which queues a read covers: options and the state of the cluster in, ranges out."""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.errors import SourceError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster import Addresses, Cluster
from orbitmq.spark.fetch import QueueRange
from orbitmq.spark.offsets import Bounds, ends, parse_offsets, split, starts
from orbitmq.spark.options import ReadOptions


def plan(cluster: Cluster, options: ReadOptions, queues: Mapping[MessageQueue, Addresses]) -> list[QueueRange]:
    """The ranges to read, cut as the options want it. SourceError when they cannot be read as promised."""
    bounds = cluster.bounds(queues)
    begin = _starts(cluster, options, queues, bounds)
    end = _ends(cluster, options, queues, bounds)
    return split(
        (QueueRange(queue, begin[queue], end[queue]) for queue in queues),
        partitions_min=options.partitions_min,
        records_max=options.partition_records_max,
    )


def _starts(
    cluster: Cluster, options: ReadOptions, queues: Mapping[MessageQueue, Addresses], bounds: Bounds
) -> dict[MessageQueue, int]:
    strict = options.fail_on_data_loss
    if options.starting_timestamp < 0:
        given = parse_offsets("startingOffsets", options.starting_offsets, queues, "earliest", strict=strict)
        return starts(given, bounds, strict=strict)
    found = _offsets_at(cluster, options, queues, bounds, options.starting_timestamp)
    late = sorted(queue for queue, offset in found.items() if offset == bounds[queue][1])
    if late and options.late_start == "error":
        raise SourceError(
            "ORBITMQ_BAD_OPTION",
            f"option startingTimestamp: {late[0]} and {len(late) - 1} other queues have no message stored at or after "
            f"{options.starting_timestamp}; set startingOffsetsByTimestampStrategy=latest to begin at their ends",
        )
    return found


def _ends(
    cluster: Cluster, options: ReadOptions, queues: Mapping[MessageQueue, Addresses], bounds: Bounds
) -> dict[MessageQueue, int]:
    strict = options.fail_on_data_loss
    if options.ending_timestamp < 0:
        given = parse_offsets("endingOffsets", options.ending_offsets, queues, "latest", strict=strict)
        return ends(given, bounds, strict=strict)
    return _offsets_at(cluster, options, queues, bounds, options.ending_timestamp)


def _offsets_at(
    cluster: Cluster, options: ReadOptions, queues: Mapping[MessageQueue, Addresses], bounds: Bounds, timestamp: int
) -> dict[MessageQueue, int]:
    return {
        queue: cluster.offset_at(queue, addresses, bounds[queue], timestamp, options.group_id)
        for queue, addresses in queues.items()
    }
