"""The start and the end of a read in each queue, from its options and the offsets of the cluster.

Batches and streams start by the same rules. Only batches have ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from orbitmq.errors import SourceError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster_client import Addresses, ClusterClient
from orbitmq.spark.fetch import OffsetRange, queue_name
from orbitmq.spark.group_offsets import stored_offsets
from orbitmq.spark.offsets import EARLIEST, LATEST, Bounds, Offsets, ends, listed_offsets, parse_offsets, starts
from orbitmq.spark.options import GROUP, ReadOptions
from orbitmq.spark.pushdown import NOTHING_PUSHED, Pushed
from orbitmq.spark.read_partitions import TASK_COST

Queues = Mapping[MessageQueue, Addresses]
SAMPLES = 16  # messages at most, with those behind them, that tell the mean size: some milliseconds and megabytes
WORDS = {"earliest": EARLIEST, "latest": LATEST}


def plan(
    cluster: ClusterClient, options: ReadOptions, queues: Queues, pushed: Pushed = NOTHING_PUSHED
) -> list[OffsetRange]:
    """The range of each queue of a batch. SourceError when they cannot be read completely."""
    bounds = cluster.bounds(queues)
    begin = begins(cluster, options, queues, bounds, stream=False)
    end = _ends(cluster, options, queues, bounds)
    wanted = [queue for queue in queues if pushed.includes(options.names.unwrap_queue(queue))]
    first, last = pushed.offsets
    ranges = {queue: (max(begin[queue], first), min(end[queue], last)) for queue in wanted}
    for place, time in enumerate(pushed.times_ms):
        if time != NOTHING_PUSHED.times_ms[place]:
            found = cluster.offsets_at(queues, ranges, dict.fromkeys(wanted, time), options.pulling_group)
            ranges = {
                queue: (found[queue], high) if place == 0 else (low, found[queue])
                for queue, (low, high) in ranges.items()
            }
    return [OffsetRange(queue, low, high) for queue, (low, high) in ranges.items() if low < high]


def mean_size(cluster: ClusterClient, options: ReadOptions, queues: Queues, ranges: Sequence[OffsetRange]) -> float:
    """The mean size of the messages in short ranges, in bytes, from samples evenly spread over them; 0 if unknown.

    It decides how many of them share a task. Nothing is requested when there is nothing to share.
    """
    short = [range_ for range_ in ranges if len(range_) < TASK_COST]
    if len(short) < 2:
        return 0
    count, size = cluster.sample(sample_offsets(short), queues, options.pulling_group)
    return size / count if count else 0


def sample_offsets(ranges: Sequence[OffsetRange]) -> dict[MessageQueue, int]:
    """The queues and offsets of SAMPLES messages at most, at equal distances if the ranges are one long sequence."""
    ends = list(accumulate(map(len, ranges)))
    places = [ends[-1] * number // SAMPLES for number in range(SAMPLES)]
    found = [(bisect_right(ends, place), place) for place in places]
    return {ranges[number].queue: ranges[number].end - (ends[number] - place) for number, place in found}


def begins(
    cluster: ClusterClient, options: ReadOptions, queues: Queues, bounds: Bounds, *, stream: bool
) -> dict[MessageQueue, int]:
    """The first offset to read of each queue. SourceError when it does not exist."""
    strict = options.fail_on_data_loss
    times = _times("startingTimestamp", options.starting_timestamp, options.starting_timestamps, options, queues)
    if options.archived_offsets:
        archived = starts(archived_ends(options), bounds, strict=strict)
        found = {} if times is None else _offsets_at(cluster, options, queues, bounds, times)
        return {queue: max(at, found.get(queue, at)) for queue, at in archived.items()}
    if times is not None:
        found = _offsets_at(cluster, options, queues, bounds, times)
        _check_late(options, found, bounds)
        return starts(found, bounds, strict=strict)
    given = _starting_offsets(cluster, options, queues, stream=stream)
    if not stream and LATEST in given.values():
        raise SourceError("ORBITMQ_BAD_OPTION", "option startingOffsets: a batch cannot start at latest")
    return starts(given, bounds, strict=strict)


def archived_ends(options: ReadOptions) -> Offsets:
    """Where the archive of each queue ended, of all queues that the option lists. Empty without it."""
    if not options.archived_offsets:
        return {}
    return listed_offsets("archivedOffsets", options.archived_offsets, options.names)


def _starting_offsets(cluster: ClusterClient, options: ReadOptions, queues: Queues, *, stream: bool) -> Offsets:
    text = options.starting_offsets.strip() or ("latest" if stream else "earliest")
    if text.lower() == GROUP:
        return stored_offsets(cluster, options.group, queues)
    if text.lower() in WORDS:
        return dict.fromkeys(queues, WORDS[text.lower()])
    return parse_offsets("startingOffsets", text, queues, strict=options.fail_on_data_loss, names=options.names)


def _ends(cluster: ClusterClient, options: ReadOptions, queues: Queues, bounds: Bounds) -> dict[MessageQueue, int]:
    strict = options.fail_on_data_loss
    times = _times("endingTimestamp", options.ending_timestamp, options.ending_timestamps, options, queues)
    if times is not None:
        return ends(_offsets_at(cluster, options, queues, bounds, times), bounds, strict=strict)
    text = options.ending_offsets.strip()
    given: Offsets = {}
    if text.lower() != "latest":
        given = parse_offsets("endingOffsets", text, queues, strict=strict, names=options.names)
    return ends(given, bounds, strict=strict)


def _times(
    option: str, for_all: int, for_each: str, options: ReadOptions, queues: Iterable[MessageQueue]
) -> Mapping[MessageQueue, int] | None:
    """The time given for each queue; None when offsets decide."""
    if for_all >= 0:
        return dict.fromkeys(queues, for_all)
    if not for_each:
        return None
    option = option.replace("Timestamp", "OffsetsByTimestamp")
    times = parse_offsets(option, for_each, queues, strict=options.fail_on_data_loss, names=options.names)
    if any(time < 0 for time in times.values()):
        raise SourceError("ORBITMQ_BAD_OPTION", f"option {option}: a time is at least 0 ms since 1970")
    return times


def _check_late(options: ReadOptions, found: Offsets, bounds: Bounds) -> None:
    late = sorted(queue for queue, offset in found.items() if offset == bounds[queue][1])
    if late and options.late_start == "error":
        raise SourceError(
            "ORBITMQ_BAD_OPTION",
            f"option {'startingTimestamp' if options.starting_timestamp >= 0 else 'startingOffsetsByTimestamp'}: "
            f"{queue_name(late[0])} and {len(late) - 1} other queues have no message stored at or after that time; "
            "set startingOffsetsByTimestampStrategy=latest to start at their ends",
        )


def _offsets_at(
    cluster: ClusterClient, options: ReadOptions, queues: Queues, bounds: Bounds, times: Mapping[MessageQueue, int]
) -> dict[MessageQueue, int]:
    return cluster.offsets_at(queues, bounds, times, options.pulling_group)
