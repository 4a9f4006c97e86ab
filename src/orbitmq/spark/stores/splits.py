"""Splits a store into parts for single tasks. Ranges are split by arithmetic alone, so the same range has the same
splits in every run. Knows no Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from orbitmq.errors import SourceError, StoreError
from orbitmq.spark.fetch import data_loss
from orbitmq.spark.stores.log import next_unit
from orbitmq.spark.stores.options import EARLIEST, ScanOptions
from orbitmq.spark.stores.queues import places
from orbitmq.spark.topic_names import STAR, TopicNames
from orbitmq.store.reader import StoreDirectory

QUEUES_SHARE_MAX = 0.4  # of the log: beyond that, reading through queues costs more than a scan


@dataclass(frozen=True)
class Bounds:
    """A range of a log, by physical offsets. `end` is exclusive."""

    start: int
    end: int


@dataclass(frozen=True)
class LogSplit:
    """A range of a broker's log for one task. `is_aligned`: a message begins at its start. `range_end`: the end of the
    last split of the same range. `by_queues`: messages are found through the queues of their topics.
    """

    broker_name: str
    directory: StoreDirectory
    start: int
    end: int
    is_aligned: bool
    range_end: int
    by_queues: bool


@dataclass(frozen=True)
class QueueSplit:
    """Some queues of a broker."""

    broker_name: str
    directory: StoreDirectory
    queues: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class IndexSplit:
    """One file of a broker's key index."""

    broker_name: str
    directory: StoreDirectory
    name: str


Split = LogSplit | QueueSplit | IndexSplit


def checked(stores: dict[str, StoreDirectory]) -> dict[str, StoreDirectory]:
    """SourceError when one of them is not a readable store."""
    for directory in stores.values():
        try:
            directory.check()
        except (StoreError, OSError) as error:
            raise SourceError("ORBITMQ_STORE_UNREADABLE", str(error)) from error
    return stores


def known_bounds(directory: StoreDirectory, safe_end: str) -> Bounds:
    """The bounds of a log: from its first file to its safe end."""
    only_dispatched = safe_end == "dispatched" or (safe_end == "auto" and directory.is_live)
    end = directory.queued_end() if only_dispatched else directory.whole_end()
    start = directory.log().start
    return Bounds(start, max(start, end))


def wanted_bounds(options: ScanOptions, broker: str, directory: StoreDirectory, known: Bounds) -> Bounds:
    """The selected bounds, starting with a message. SourceError if data is lost, unless that is allowed."""
    start = options.bound("startingPhysicalOffset", options.start, broker)
    end = options.bound("endingPhysicalOffset", options.end, broker)
    last = known.end if isinstance(end, str) else min(end, known.end)
    if isinstance(start, str):
        first = known.start if start == EARLIEST else known.end
    else:
        if options.fail_on_data_loss:
            check_start(broker, start, known)
        first = next_unit(directory, max(start, known.start), known.end)
    return Bounds(first, max(first, last))


def check_start(broker: str, start: int, known: Bounds) -> None:
    """SourceError when a log does not have the starting offset (any more)."""
    text = f"store of {broker}: the read starts at {start}, but"
    if start < known.start:
        raise data_loss(f"{text} the log starts at {known.start}; {known.start - start} bytes are gone")
    if start > known.end:
        raise data_loss(f"{text} the log ends at {known.end}; it is another log, or has lost its end")


def log_splits(
    options: ScanOptions, broker: str, directory: StoreDirectory, bounds: Bounds, *, may_look: bool
) -> list[LogSplit]:
    """A range of a log in equal splits. `may_look`: the queues may be read to find out which way is less work."""
    size, share = bounds.end - bounds.start, 1.0
    if options.topics_by == "queues":
        share = 0.0
    elif options.topics_by == "auto" and may_look and size and _may_be_few(options.topic_names):
        _, sizes = places(directory, queue_topics(options), bounds.start, bounds.end)
        share = float(sizes.sum()) / size
    by_queues = bool(options.topic_names) and share <= QUEUES_SHARE_MAX
    count = -(-int(size * (max(share, 1 / 64) if by_queues else 1)) // options.split_size)
    cuts = [bounds.start + size * number // max(1, count) for number in range(max(1, count) + 1)]
    return [
        LogSplit(broker, directory, start, end, start == bounds.start, bounds.end, by_queues)
        for start, end in pairwise(cuts)
        if start < end
    ]


def _may_be_few(names: TopicNames) -> bool:
    """Whether to read the queues: for all topics they have many entries, and a scan of the log is cheaper anyway."""
    return bool(names) and STAR not in names.stars


def queue_topics(options: ScanOptions) -> TopicNames:
    """The topics whose queues may have the selected messages."""
    from orbitmq.spark.stores.columns import HIDING_TOPICS

    wanted = options.topic_names
    hiding = HIDING_TOPICS.to_pylist() if options.resolve_system_topics else ()
    return replace(wanted, names=(*wanted.names, *hiding))


def queue_splits(options: ScanOptions, broker: str, directory: StoreDirectory) -> list[QueueSplit]:
    """Whole queues, grouped to the size of a split."""
    names = options.topic_names
    splits: list[QueueSplit] = []
    held: list[tuple[str, int]] = []
    size = 0
    for topic, queue_id in directory.queues():
        if names and topic not in names:
            continue
        held.append((topic, queue_id))
        size += directory.queue_size(topic, queue_id)
        if size >= options.split_size:
            splits.append(QueueSplit(broker, directory, tuple(held)))
            held, size = [], 0
    return [*splits, QueueSplit(broker, directory, tuple(held))] if held else splits


def batch_splits(options: ScanOptions) -> list[Split]:
    """The splits of a batch read."""
    splits: list[Split] = []
    for broker, directory in checked(options.stores).items():
        if options.scan == "consumequeue":
            splits += queue_splits(options, broker, directory)
        elif options.scan == "index":
            splits += [IndexSplit(broker, directory, name) for name in directory.index_files()]
        else:
            bounds = wanted_bounds(options, broker, directory, known_bounds(directory, options.safe_end))
            splits += log_splits(options, broker, directory, bounds, may_look=True)
    return splits
