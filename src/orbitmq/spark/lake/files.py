"""Reads files of a lake into rows. Runs in tasks; knows no table format.

Engines write files with other types for the same values, without the columns that partition the table, and without
columns that came later: rows get the types of the read's schema, and null for what a file does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.lake.schemas import MICROSECONDS, TOPIC, plain
from orbitmq.lake.storage import StorageLocation
from orbitmq.spark.bodies.reader import RESCUED, VALUE, BodyReader
from orbitmq.spark.lake.options import Unreadable
from orbitmq.spark.topic_names import TopicNames
from orbitmq.spark.versions import InputPartition

STORED = "storeTimestamp"
BODY = "body"
PLACE = ("brokerName", "queueId", "queueOffset")
BATCH_ROWS_MAX = 10_000
BATCH_BYTES_MAX = 8 << 20  # uncompressed, by the mean of a row group: what a task holds two or three times


@dataclass(frozen=True)
class FilePart:
    """One of `parts` equal parts of a file, by row groups. An empty topic means that the file tells the topics."""

    path: str
    topic: str
    part: int = 0
    parts: int = 1


@dataclass(frozen=True)
class LakePartition(InputPartition):
    """What one task reads, one after another."""

    files: tuple[FilePart, ...]


@dataclass(frozen=True)
class LakeFiles:
    """Reads the partitions of one DataFrame: its columns, the topics it wants (all when empty), and messages stored
    from `begin_ms` on and before `end_ms`, where these are not below zero."""

    place: StorageLocation
    schema: pa.Schema
    topics: TopicNames
    begin_ms: int
    end_ms: int
    bodies: BodyReader | None

    def read(self, partition: LakePartition) -> Iterator[pa.RecordBatch]:
        """The batches of a task. SourceError ORBITMQ_LAKE_UNREADABLE for a file that is gone or damaged."""
        for file in partition.files:
            with Unreadable(self.place.uri(file.path)), self.place.read(file.path) as source:
                parquet = pq.ParquetFile(source)
                for group in self._groups(parquet, file):
                    for batch in parquet.iter_batches(
                        _batch_rows(parquet, group), row_groups=[group], columns=self._paths(parquet.schema_arrow)
                    ):
                        yield self._rows(batch, file.topic)

    def _groups(self, parquet: pq.ParquetFile, file: FilePart) -> list[int]:
        """The row groups of the part that may hold messages of the wanted time."""
        total = parquet.num_row_groups
        groups = range(total * file.part // file.parts, total * (file.part + 1) // file.parts)
        return [group for group in groups if self._may_hold(parquet, group)]

    def _may_hold(self, parquet: pq.ParquetFile, group: int) -> bool:
        if not self._is_timed:
            return True
        metadata = parquet.metadata.row_group(group)
        for number in range(metadata.num_columns):
            column = metadata.column(number)
            if column.path_in_schema == STORED and column.is_stats_set and column.statistics.has_min_max:
                low, high = column.statistics.min, column.statistics.max
                if isinstance(low, datetime) and isinstance(high, datetime):
                    return _micros(high) >= self.begin_ms * 1000 and (
                        self.end_ms < 0 or _micros(low) < self.end_ms * 1000
                    )
        return True

    @property
    def _is_timed(self) -> bool:
        return self.begin_ms >= 0 or self.end_ms >= 0

    def _paths(self, has: pa.Schema) -> list[str]:
        """The columns of the file to read; of a struct the wanted fields."""
        names = [field.name for field in self.schema if field.name not in self._parsed]
        if self.bodies is not None:
            names += [BODY, *PLACE]
        if self._is_timed:
            names.append(STORED)
        if self.topics:
            names.append(TOPIC)
        paths = []
        for name in dict.fromkeys(name for name in names if name in has.names):
            kind = has.field(name).type
            wanted = self.schema.field(name).type if name in self.schema.names else kind
            paths += _fields(name, kind, wanted)
        return paths

    @property
    def _parsed(self) -> Sequence[str]:
        return (VALUE, RESCUED) if self.bodies is not None else ()

    def _rows(self, batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if TOPIC not in columns:
            columns[TOPIC] = pa.repeat(pa.scalar(topic or None, pa.string()), batch.num_rows)
        if (wanted := self._wanted(columns, topic)) is not None:
            columns = {name: values.filter(wanted) for name, values in columns.items()}
        kept = None
        if self.bodies is not None:
            read = self.bodies.read(conformed(columns[BODY], pa.binary()), lambda row: _place(columns, row))
            columns |= read.columns
            kept = read.kept
        count = len(columns[TOPIC])
        values = [
            conformed(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in self.schema
        ]
        made = pa.RecordBatch.from_arrays(values, schema=self.schema)
        return made if kept is None else made.filter(kept)

    def _wanted(self, columns: dict[str, pa.Array], topic: str) -> pa.BooleanArray | None:
        """Which rows are of the wanted topics and time; None for all."""
        masks = []
        if self.topics and not topic:
            names = columns[TOPIC].cast(pa.string()).dictionary_encode()
            ours = pa.array([name in self.topics for name in names.dictionary.to_pylist()], pa.bool_())
            masks.append(ours.take(names.indices))
        if self._is_timed:
            stored = columns[STORED].cast(MICROSECONDS, safe=False).cast(pa.int64())
            masks.append(pc.greater_equal(stored, self.begin_ms * 1000))
            if self.end_ms >= 0:
                masks.append(pc.less(stored, self.end_ms * 1000))
        return reduce(pc.and_, masks) if masks else None


def conformed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values as the type, fields of structs by their names: null for those that a file does not have."""
    if values.type == kind:
        return values
    if pa.types.is_struct(values.type) and pa.types.is_struct(kind):
        has = {field.name: number for number, field in enumerate(values.type)}
        fields = [
            conformed(values.field(has[field.name]), field.type)
            if field.name in has
            else pa.nulls(len(values), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=values.is_null())
    if _is_list(values.type) and _is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())
        ends = pc.cumulative_sum(lengths)
        offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(pa.int32())
        return pa.ListArray.from_arrays(
            offsets, conformed(values.flatten(), kind.value_type), type=kind, mask=values.is_null()
        )
    return values.cast(plain(values.type), safe=False).cast(kind, safe=False)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _fields(name: str, has: pa.DataType, wanted: pa.DataType) -> list[str]:
    """A column as names of Parquet: of a struct only the wanted fields, if the file has any of them."""
    if not (pa.types.is_struct(has) and pa.types.is_struct(wanted)):
        return [name]
    known = {field.name for field in has}
    return [f"{name}.{field.name}" for field in wanted if field.name in known] or [name]


def _batch_rows(parquet: pq.ParquetFile, group: int) -> int:
    metadata = parquet.metadata.row_group(group)
    mean = metadata.total_byte_size // max(1, metadata.num_rows)
    return int(max(1, min(BATCH_ROWS_MAX, BATCH_BYTES_MAX // max(1, mean))))


def _micros(time: datetime) -> int:
    """Since 1970; times of Parquet without a zone are in UTC."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (aware - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def _place(columns: dict[str, pa.Array], row: int) -> str:
    """A message in the words of errors."""
    broker, queue, offset = (columns[name][row].as_py() if name in columns else None for name in PLACE)
    return f"queue {queue} of topic {columns[TOPIC][row].as_py()} on {broker} at offset {offset}, which is archived,"
