"""Reads one split of a store as Arrow batches: scans, decodes, checks, filters. Runs in a task, knows no options."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.errors import SourceError, StoreError, UnitError
from orbitmq.message.flags import COMPRESSED
from orbitmq.spark.bodies.reader import BodyReader
from orbitmq.spark.columns import ColumnSource, record_batch
from orbitmq.spark.damage import CORRUPT, corrupt_batch
from orbitmq.spark.fetch import data_loss
from orbitmq.spark.stores.columns import (
    BODY,
    LOG_COLUMNS,
    RESOLVED,
    resolved_topics,
    table_batch,
)
from orbitmq.spark.stores.log import Damage, Found, Gone, LogWalk, Run
from orbitmq.spark.stores.queues import PlaceWalk, is_message, places, written
from orbitmq.spark.stores.splits import IndexSplit, LogSplit, QueueSplit, Split
from orbitmq.spark.topic_names import TopicNames
from orbitmq.spark.units import Units
from orbitmq.spark.versions import InputPartition

LOG = logging.getLogger(__name__)

RAW_SIZE_MAX = 4 << 20  # damaged bytes in one row; the largest message that brokers accept by default
PACKED_SIZE = 1 << 20  # bytes of compressed bodies decompressed at once; they may expand a hundredfold
INDEX_ENTRY = np.dtype([("hash", ">i4"), ("place", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
TABLE_ROWS = 100_000  # of queue and index entries in one batch


@dataclass(frozen=True)
class StoreSettings:
    """How a store becomes rows. `topics` are the selected ones, empty for all; `queue_topics` are those whose queues
    may have their messages. `strict`: a missing file is an error. `on_corrupt` is fail, skip or raw.
    """

    schema: pa.Schema
    topics: TopicNames
    queue_topics: TopicNames
    resolve: bool
    verify_crc: bool
    decompress: bool
    strict: bool
    on_corrupt: str
    bodies: BodyReader | None = None

    @property
    def reads_bodies(self) -> bool:
        return self.bodies is not None or BODY in self.schema.names


@dataclass(frozen=True)
class SplitPartition(InputPartition):
    """What one task reads."""

    split: Split


def read_partition(partition: InputPartition, settings: StoreSettings) -> Iterator[pa.RecordBatch]:
    """The batches of one split. Empty for the partition that Spark makes up when there is none."""
    split = partition.split if isinstance(partition, SplitPartition) else None
    if isinstance(split, LogSplit):
        return LogBatches(split, settings).read()
    if isinstance(split, QueueSplit):
        return queue_batches(split, settings)
    return iter(()) if split is None else index_batches(split, settings)


class LogBatches:
    """The rows of one split of the log."""

    def __init__(self, split: LogSplit, settings: StoreSettings) -> None:
        self._split = split
        self._settings = settings
        self._log = split.directory.log()
        self._columns = RESOLVED if settings.resolve else LOG_COLUMNS
        self._check_bodies = settings.verify_crc and settings.reads_bodies
        self._gone = 0

    def read(self) -> Iterator[pa.RecordBatch]:
        """The batches. SourceError when the split cannot be read completely."""
        for found in self._found():
            if isinstance(found, Run):
                for units in self._wanted(found.units):
                    yield from self._batches(units, found.path)
            elif isinstance(found, Damage):
                yield from self._damaged(found)
            else:
                self._lose(found)
        if self._gone:
            LOG.warning("event=data_loss store=%s bytes=%d", self._split.broker_name, self._gone)

    def _found(self) -> Iterator[Found]:
        split = self._split
        if split.by_queues:
            at, sizes = places(split.directory, self._settings.queue_topics, split.start, split.end)
            return iter(PlaceWalk(self._log, at, sizes))
        start = split.start if split.is_aligned else split.directory.behind_unit_at(split.start)
        return iter(LogWalk(self._log, start, split.end, is_aligned=split.is_aligned, range_end=split.range_end))

    def _wanted(self, units: Units) -> Iterator[Units]:
        """The messages of the selected topics, in portions that can be decompressed together."""
        if self._settings.topics:
            topics = resolved_topics(units) if self._settings.resolve else units.topics()
            there = pc.unique(topics).to_pylist()
            wanted = [topic for topic in there if topic in self._settings.topics]
            if not wanted:
                return
            if len(wanted) < len(there):
                units = units[pc.is_in(topics, pa.array(wanted)).to_numpy(False)]
        packed = units.field("sys_flag") & COMPRESSED != 0
        if not (self._settings.decompress and self._settings.reads_bodies and packed.any()):
            yield units
            return
        portions = np.cumsum(np.where(packed, units.field("size"), 0)) // PACKED_SIZE
        for portion in np.unique(portions):
            yield units[portions == portion]

    def _batches(self, units: Units, path: Path) -> Iterator[pa.RecordBatch]:
        """One batch; several around messages that cannot be decoded."""
        settings = self._settings
        try:
            if self._check_bodies:
                units.check_bodies()
            rows = ColumnSource(units, self._split.broker_name, settings.decompress)
            batch = record_batch(rows, settings.schema, self._columns, settings.bodies)
        except UnitError as error:
            if len(units) == 1:
                start = int(units.field("physical_offset")[0])
                damage = Damage(start, start + int(units.field("size")[0]), path, str(error))
                yield from self._damaged(damage)
                return
            middle = np.arange(len(units)) < len(units) // 2
            yield from self._batches(units[middle], path)
            yield from self._batches(units[~middle], path)
            return
        yield batch

    def _damaged(self, damage: Damage) -> Iterator[pa.RecordBatch]:
        start = self._log.start_of(damage.start)
        place = f"{damage.path} at {damage.start - start}, physical offset {damage.start} to {damage.end}"
        if self._settings.on_corrupt == "fail":
            raise SourceError("ORBITMQ_CORRUPT_RECORD", f"{place}: {damage.text}")
        LOG.warning("event=corrupt_record place=%s text=%s", place, damage.text)
        if self._settings.on_corrupt == "raw":
            size = max(1, min(damage.end - damage.start, RAW_SIZE_MAX))
            body = self._log.read(damage.start, size)
            text = f"{place}: {damage.text}"
            known = {"brokerName": self._split.broker_name, "physOffset": damage.start, BODY: body, CORRUPT: text}
            yield corrupt_batch(self._settings.schema, known)

    def _lose(self, gone: Gone) -> None:
        text = f"{gone.path} is gone, with {gone.end - gone.start} bytes of the range from {gone.start} on"
        if self._settings.strict:
            raise data_loss(f"store of {self._split.broker_name}: {text}")
        self._gone += gone.end - gone.start


def queue_batches(split: QueueSplit, settings: StoreSettings) -> Iterator[pa.RecordBatch]:
    """The queue entries whose messages are still in the log."""
    log_start = split.directory.log().start
    for topic, queue_id in split.queues:
        for first, data in split.directory.entries(topic, queue_id):
            entries = written(data)
            mask = is_message(entries) & (entries["place"] >= log_start)
            offsets = np.flatnonzero(mask) + int(first)
            entries = entries[mask]
            for start in range(0, len(entries), TABLE_ROWS):
                part = entries[start : start + TABLE_ROWS]
                values = {
                    "topic": pa.repeat(topic, len(part)),
                    "brokerName": pa.repeat(split.broker_name, len(part)),
                    "queueId": pa.repeat(queue_id, len(part)),
                    "queueOffset": pa.array(offsets[start : start + TABLE_ROWS]),
                    "physOffset": pa.array(part["place"].astype(np.int64)),
                    "size": pa.array(part["size"].astype(np.int32)),
                    "tagsCode": pa.array(part["code"].astype(np.int64)),
                }
                yield table_batch(values, settings.schema)


def index_batches(split: IndexSplit, settings: StoreSettings) -> Iterator[pa.RecordBatch]:
    """The entries of one file of the key index. SourceError for a damaged head, unless it may be skipped."""
    try:
        begin_ms, data = split.directory.index_entries(split.name)
    except StoreError as error:
        if settings.on_corrupt == "fail":
            raise SourceError("ORBITMQ_CORRUPT_RECORD", str(error)) from error
        LOG.warning("event=corrupt_record text=%s", error)
        return
    entries = np.frombuffer(data, INDEX_ENTRY)
    for start in range(0, len(entries), TABLE_ROWS):
        part = entries[start : start + TABLE_ROWS]
        times_ms = begin_ms + part["seconds"].astype(np.int64) * 1000
        values = {
            "brokerName": pa.repeat(split.broker_name, len(part)),
            "indexFile": pa.repeat(split.name, len(part)),
            "entry": pa.array(np.arange(start + 1, start + 1 + len(part), dtype=np.int32)),
            "keyHash": pa.array(part["hash"].astype(np.int32)),
            "physOffset": pa.array(part["place"].astype(np.int64)),
            "storeTimestamp": pa.array(times_ms * 1000).view(pa.timestamp("us", tz="UTC")),
            "previousEntry": pa.array(part["previous"].astype(np.int32)),
        }
        yield table_batch(values, settings.schema)
