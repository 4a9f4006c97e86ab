"""A store directory as a stream: every micro-batch is the next range of each broker's log.

An offset is `{"b": {"broker-a": physical offset}, "from": {...}, "v": 1}`. Spark keeps only end offsets, and requests
the initial one again when the first batch has failed. So the first end offset contains its start as `from`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from orbitmq.errors import SourceError
from orbitmq.spark.cluster_options import bad_option
from orbitmq.spark.fetch import data_loss
from orbitmq.spark.stores.batches import SplitPartition, StoreSettings, read_partition
from orbitmq.spark.stores.log import LogWalk, Run, next_unit
from orbitmq.spark.stores.options import LATEST, ScanOptions
from orbitmq.spark.stores.splits import Bounds, check_start, checked, known_bounds, log_splits, wanted_bounds
from orbitmq.spark.versions import (
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from orbitmq.store.reader import LogFiles

LOG = logging.getLogger(__name__)

VERSION = 1
UNREACHED = 1 << 62  # a row limit that no batch of this machine reaches

Offsets = dict[str, int]


class StoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver and runs their tasks. It lives as long as its query."""

    def __init__(self, options: ScanOptions, settings: StoreSettings) -> None:
        if options.scan != "commitlog":
            raise bad_option("option scan: only the commit log can be read as a stream")
        if options.end != LATEST:
            raise bad_option("option endingPhysicalOffset: a stream has no end; stop it, or use trigger availableNow")
        self._options = options
        self._settings = settings
        self._initial: Offsets | None = None
        self._target: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The start of the stream. Computed once: a second `latest` would skip messages that arrived meanwhile."""
        if self._initial is None:
            self._initial = {
                broker: wanted_bounds(self._options, broker, self._options.stores[broker], known).start
                for broker, known in self._known().items()
            }
        return {"b": self._initial, "v": VERSION}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limits of the options. Both apply when both are set."""
        if self._options.rows_max:
            return ReadMaxRows(self._options.rows_max)
        return ReadMaxBytes(self._options.bytes_max) if self._options.bytes_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Set the target of this run: everything that is there now."""
        self._target = {broker: known.end for broker, known in self._known().items()}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The ends of the logs, for the progress of the query."""
        return {"b": {broker: known.end for broker, known in self._known().items()}, "v": VERSION}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch, or `start` itself when nothing is new. SourceError for data loss, which is
        detected here: a batch in Spark's log would be retried forever.
        """
        if self._options.available_now and self._target is None:
            self.prepareForTriggerAvailableNow()
        known, begun = self._known(), offsets_of(start)
        starts = {broker: self._start(broker, begun, bounds) for broker, bounds in known.items()}
        wanted = {broker: Bounds(starts[broker], self._end(broker, starts[broker], known[broker])) for broker in known}
        after = {**begun, **self._limited(wanted, limit)}
        moved = starts if begun == self._initial else {b: at for b, at in starts.items() if begun.get(b) != at}
        if after == begun and not moved.keys() - begun.keys():
            return start
        carried = {"from": dict(sorted(moved.items()))} if moved else {}
        return {"b": dict(sorted(after.items())), **carried, "v": VERSION}

    def _start(self, broker: str, begun: Offsets, known: Bounds) -> int:
        """The start for a broker's log. A broker that is new to the query starts at its first message."""
        start = begun.get(broker, known.start)
        if start > known.end:  # after a crash a broker has not yet put everything into queues
            known = Bounds(known.start, max(known.end, self._options.stores[broker].whole_end()))
        if self._settings.strict:
            check_start(broker, start, known)
        elif start > known.end:
            LOG.warning("event=data_loss store=%s asked=%d end=%d", broker, start, known.end)
            return known.start
        return start

    def _end(self, broker: str, start: int, known: Bounds) -> int:
        target = known.end if self._target is None else self._target.get(broker, start)
        return max(start, min(target, known.end))

    def _limited(self, wanted: dict[str, Bounds], limit: ReadLimit) -> Offsets:
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else UNREACHED
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else UNREACHED
        if not isinstance(limit, ReadAllAvailable):
            rows = min(rows, self._options.rows_max or UNREACHED)
            size = min(size, self._options.bytes_max or UNREACHED)
        return limited(self._options, wanted, rows, size)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The splits between two offsets, the same at each call."""
        begun = {**offsets_of(start), **end.get("from", {})}
        options, stores = self._options, self._options.stores
        missing = sorted(offsets_of(end).keys() - stores.keys())
        if missing and options.fail_on_data_loss:
            raise data_loss(f"option path no longer names the store of {', '.join(missing)}, which the query has read")
        return [
            SplitPartition(split)
            for broker, last in sorted(offsets_of(end).items())
            if broker in stores
            for split in log_splits(options, broker, stores[broker], Bounds(begun.get(broker, 0), last), may_look=False)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one split."""
        return read_partition(partition, self._settings)

    def _known(self) -> dict[str, Bounds]:
        options = self._options
        return {broker: known_bounds(each, options.safe_end) for broker, each in checked(options.stores).items()}


def offsets_of(offset: dict[str, Any]) -> Offsets:
    """The physical offset of each broker. SourceError for an offset of another version."""
    if offset.get("v") != VERSION:
        raise SourceError("ORBITMQ_BAD_CHECKPOINT", f"the checkpoint is of another version: {offset}")
    return {str(broker): int(place) for broker, place in offset["b"].items()}


def limited(options: ScanOptions, wanted: dict[str, Bounds], rows: int, size: int) -> Offsets:
    """The ends of a micro-batch of about `rows` messages and `size` bytes, divided in proportion to each log, at least
    one message each. Every end is the start of a message, or the end of the log.
    """
    whole = sum(bounds.end - bounds.start for bounds in wanted.values())
    found: Offsets = {}
    for broker, (start, end) in ((broker, (bounds.start, bounds.end)) for broker, bounds in wanted.items()):
        directory, share = options.stores[broker], (end - start) / max(1, whole)
        if size < whole:
            end = next_unit(directory, min(end, start + max(1, int(size * share))), end)
        if rows < UNREACHED and start < end:
            end = rows_end(directory.log(), Bounds(start, end), max(1, int(rows * share)))
        found[broker] = end
    return found


def rows_end(log: LogFiles, bounds: Bounds, rows: int) -> int:
    """The offset after that many messages from the start, or the end of the bounds."""
    for found in LogWalk(log, bounds.start, bounds.end, is_aligned=True):
        if isinstance(found, Run):
            if rows <= len(found.units):
                last = found.units.field("physical_offset")[rows - 1] + found.units.field("size")[rows - 1]
                return min(bounds.end, int(last))
            rows -= len(found.units)
    return bounds.end
