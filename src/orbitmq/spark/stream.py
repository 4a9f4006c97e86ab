"""The stream `spark.readStream.format("orbitmq")`: the start of a query, the end of its next batch, and the tasks.

One object lives in a process of the driver as long as the query runs. Tasks get a copy. Spark calls initialOffset,
latestOffset, initialOffset again, and partitions. The checkpoint takes precedence over all state in memory.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from orbitmq.errors import SourceError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.admission import NO_LIMITS, MeanSize, TriggerLimits, is_due, rows_allowed, shares
from orbitmq.spark.cluster_client import require_open
from orbitmq.spark.cluster_monitor import ClusterMonitor, UnavailablePolicy
from orbitmq.spark.fetch import OffsetRange, data_loss
from orbitmq.spark.group_offsets import OffsetReporter
from orbitmq.spark.lag_meter import LagMeter
from orbitmq.spark.next_batch import ClusterSnapshot, NextBatch, next_batch
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.queue_selection import queue_selection
from orbitmq.spark.read_brokers import complete_queues
from orbitmq.spark.read_plan import archived_ends, begins
from orbitmq.spark.read_tasks import RangeTasks, cluster_of
from orbitmq.spark.stream_offset import StreamOffset, ranges
from orbitmq.spark.versions import (
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

LOG = logging.getLogger(__name__)

SAMPLED_QUEUES = 8  # queues sampled for message sizes in a batch, the longest ones


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream. `clock` returns seconds, `pause` sleeps for seconds."""

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._strict = options.fail_on_data_loss
        self._limits = TriggerLimits(options.rows_max, options.bytes_max, options.rows_min, options.delay_max_ms)
        self._tasks = RangeTasks(options, schema)
        self._selection = queue_selection(options)
        self._cluster = cluster_of(options)
        policy = UnavailablePolicy(options.unavailable == "hold", options.unavailable_timeout_ms)
        self._monitor = ClusterMonitor(
            self._cluster, self._selection, policy, options.broker_names, strict=self._strict, clock=clock
        )
        self._reporter = OffsetReporter(self._cluster, options.group) if options.commit_offsets else None
        self._archived = archived_ends(options)
        self._meter = LagMeter(self._cluster, options.pulling_group, options.description)
        self._clock = clock
        self._pause = pause
        self._initial: dict[str, Any] | None = None
        self._last_batch_at = -math.inf
        self._latest: dict[str, Any] | None = None
        self._target: dict[MessageQueue, int] | None = None
        self._down_at_target: frozenset[str] = frozenset()  # brokers that were down when the target was fixed
        self._sizes = MeanSize()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The start of the query. Computed once: Spark calls twice, and offsets advance meanwhile."""
        if self._initial is None:
            places = complete_queues(self._cluster, self._options, self._selection)
            queues = {queue: place.addresses for queue, place in places.items()}
            offsets = begins(self._cluster, self._options, queues, self._cluster.bounds(queues), stream=True)
            self._initial = StreamOffset(offsets, offsets).as_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that Spark shows. All limits of the options apply together."""
        limits = self._limits
        if limits.rows_max:
            return ReadMaxRows(limits.rows_max)
        if limits.bytes_max:
            return ReadMaxBytes(limits.bytes_max)
        return ReadMinRows(limits.rows_min) if limits.rows_min else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Set the target of this run: everything that is there now."""
        seen = self._monitor.snapshot(())
        self._target = {queue: high for queue, (_, high) in seen.bounds.items()}
        self._down_at_target = self._monitor.down

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch, or `start` itself when there is nothing to read.

        SourceError for data loss, for queues that may not be read any more, and for brokers that did not respond for
        longer than allowed.
        """
        if self._options.available_now and self._target is None:
            self.prepareForTriggerAvailableNow()
        begun = StreamOffset.of_json(start)
        limits = NO_LIMITS if isinstance(limit, ReadAllAvailable) else self._limits
        while True:
            seen = self._monitor.snapshot(begun.at)
            self._fix_late_targets(begun, seen)
            self._report(begun)
            found = next_batch(begun, seen, strict=self._strict, target=self._target, archived=self._archived)
            end = self._end(found, limits)
            self._latest = StreamOffset(found.highs).as_json() | self._meter.measure(end.at, seen, self._monitor.places)
            if (end.at, end.lost) != (begun.at, begun.lost):
                return end.as_json()
            if self._target is None or not self._is_short_of_target(begun, seen):
                return start
            # Without progress Spark would end the run.
            self._pause(self._options.fetch_retry_interval_ms / 1000)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the queues at the last snapshot, and how far the stream is behind: see `stream_lag`. Spark shows
        this in the progress of the query, and uses it for nothing else."""
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch, which depend only on the offsets and the options."""
        if start == end:
            return []
        between = ranges(StreamOffset.of_json(start), StreamOffset.of_json(end))
        wanted = [range_ for range_ in between if range_.start < range_.end]
        places = self._monitor.places
        if any(range_.queue not in places for range_ in wanted):  # the batch was planned before a restart
            found = self._selection.find(self._cluster)
            require_open(
                {range_.queue: found.closed[range_.queue] for range_ in wanted if range_.queue in found.closed}
            )
            places = dict(found.queues)
        there = [range_ for range_ in wanted if range_.queue in places or self._without(range_)]
        return self._tasks.partitions(there, places)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        yield from self._tasks.read(partition)

    def _end(self, found: NextBatch, limits: TriggerLimits) -> StreamOffset:
        waiting = found.waiting
        total = sum(waiting.values())
        now = self._clock()
        if self._target is None and not is_due(total, limits, (now - self._last_batch_at) * 1000):
            return found.advanced({})
        if total:
            self._last_batch_at = now
        size = self._size(found, waiting) if limits.bytes_max else 0.0
        return found.advanced(shares(waiting, rows_allowed(total, limits, size)))

    def _size(self, found: NextBatch, waiting: Mapping[MessageQueue, int]) -> float:
        """The estimated bytes of the backlog, from samples of the longest queues."""
        longest = sorted(waiting, key=lambda queue: waiting[queue], reverse=True)[:SAMPLED_QUEUES]
        addresses = {queue: self._monitor.places[queue].addresses for queue in longest}
        offsets = {queue: found.at[queue] for queue in longest}
        self._sizes.add(*self._cluster.sample(offsets, addresses, self._options.pulling_group))
        return self._sizes.estimate(sum(waiting.values()))

    def _report(self, begun: StreamOffset) -> None:
        """Commit the start of the next batch: Spark requests that batch when the previous one is done."""
        if self._reporter is not None:
            self._reporter.report(begun.at, self._monitor.places)

    def _fix_late_targets(self, begun: StreamOffset, seen: ClusterSnapshot) -> None:
        """Set the targets of brokers that were down when the others were set, at their first response."""
        if self._target is not None:
            for queue, (_, high) in seen.bounds.items():
                if queue in begun.at or queue.broker_name in self._down_at_target:
                    self._target.setdefault(queue, high)

    def _is_short_of_target(self, begun: StreamOffset, seen: ClusterSnapshot) -> bool:
        """Whether an unavailable broker has, or may have, messages of this run."""
        target = self._target or {}
        behind = any(queue not in target or begun.at[queue] < target[queue] for queue in seen.held)
        return behind or bool(self._down_at_target & self._monitor.down)

    def _without(self, range_: OffsetRange) -> bool:
        """Skip a range whose queue was deleted. SourceError when that is not allowed, or its broker is unknown."""
        if range_.queue.broker_name not in self._cluster.info().brokers:
            raise SourceError("ORBITMQ_BROKER_UNAVAILABLE", f"{range_}: no name server knows its broker")
        text = f"{range_} no longer exists, {len(range_)} messages from offset {range_.start} on are lost"
        if self._strict:
            raise data_loss(text)
        LOG.warning("event=data_loss text=%s", text)
        return False
