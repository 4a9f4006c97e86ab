"""Parquet files of messages: written by tasks of the archive, merged by compaction. Knows no commit.

A file has one topic and one day of store time, which is how the tables are partitioned. Rows of a row group are sorted
by broker, queue and offset.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.lake.layout import file_path
from orbitmq.lake.manifest import LakeFile, QueueSpan
from orbitmq.lake.schemas import DAY, TOPIC, plain_schema
from orbitmq.lake.storage import StorageLocation

ORDER = ("topic", "brokerName", "queueId", "queueOffset")
GROUP_ROWS_MAX = 100_000
GROUP_BYTES_MAX = 128 << 20  # of Arrow data: what a reader must load into memory at once
GROUP_BYTES_MIN = 16 << 20  # a smaller row group costs more than to copy its messages once more
OPEN_FILE_BYTES = 16 << 20  # a topic with less gets a closed file, so that thousands of topics are not open at once
NEW_BYTES_MAX = 64 << 20  # that are brought into order together: a task has them in memory two or three times
# Columns with mostly distinct values: a dictionary would be built and then dropped.
DISTINCT = frozenset(("queueOffset", "msgId", "keys", "body", "properties", "bodyCrc", "physOffset", "offsetMsgId"))
NEVER_COMPARED = frozenset(("body", "properties"))  # no reader leaves out row groups by the smallest of them
HELD_BYTES_MAX = 256 << 20  # in memory of one task: what waits for more of its topic
PORTION_BYTES_MAX = 1 << 30  # of Arrow data that a compaction sorts at once


@dataclass
class _Share:
    """One topic on one day: messages that are not written yet, each part in order, and the file once there is one."""

    held: list[pa.Table] = field(default_factory=list)
    size: int = 0
    rows: int = 0
    file: _File | None = None


class _File:
    """A Parquet file in flight."""

    def __init__(self, place: StorageLocation, topic: str, day: str, writer: str, compression: str) -> None:
        self._place = place
        self._topic = topic
        self._day = day
        self._compression = compression
        self._path = file_path(topic, day, writer, uuid.uuid4().hex)
        self._sink: pa.NativeFile | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._rows = 0
        self._first_ms = 1 << 62
        self._last_ms = 0
        self._spans: dict[tuple[str, str, int], QueueSpan] = {}

    def write(self, table: pa.Table) -> None:
        """Row groups; the rows are in order. Columns that partition the table are in the file, too: some engines look
        for them there, others in the table or in the path."""
        table = _with_partition(table, self._topic, self._day)
        if self._parquet is None:
            self._sink = self._place.open(self._path)
            self._parquet = pq.ParquetWriter(
                self._sink,
                table.schema,
                compression=self._compression,
                use_dictionary=leaves(table.schema, without=DISTINCT),
                write_statistics=leaves(table.schema, without=NEVER_COMPARED),
            )
        groups = max(-(-table.num_rows // GROUP_ROWS_MAX), -(-table.nbytes // GROUP_BYTES_MAX))
        self._parquet.write_table(table, row_group_size=-(-table.num_rows // groups))
        self._count(table)

    def close(self) -> LakeFile:
        assert self._parquet is not None, "a file is made with its first rows"
        assert self._sink is not None
        self._parquet.close()
        size = self._sink.tell()
        self._sink.close()
        return LakeFile(
            path=self._path,
            topic=self._topic,
            day=self._day,
            rows=self._rows,
            size=size,
            first_stored_ms=self._first_ms,
            last_stored_ms=self._last_ms,
            queues=[self._spans[key] for key in sorted(self._spans)],
        )

    def abandon(self) -> None:
        """Remove the file, closed or not; if the disk fails, a sweep does. The original error is the one to raise."""
        if self._sink is None:
            return
        with suppress(OSError):
            if self._parquet is not None:
                self._parquet.close()
        with suppress(OSError):
            self._sink.close()
        with suppress(OSError):
            self._place.remove(self._path)

    def _count(self, table: pa.Table) -> None:
        self._rows += table.num_rows
        stored = pc.min_max(table["storeTimestamp"].cast(pa.int64()))
        self._first_ms = min(self._first_ms, stored["min"].as_py() // 1000)
        self._last_ms = max(self._last_ms, stored["max"].as_py() // 1000)
        for span in spans(table):
            key = span.topic, span.broker, span.queue
            self._spans[key] = _joined(self._spans.get(key), span)


class LakeWriter:
    """The files of one task. `finish` returns them; after an error `abandon` removes them.

    Batches need the columns of ORDER and `storeTimestamp`; all have one schema. `writer` is part of the file names.
    """

    def __init__(self, place: StorageLocation, writer: str, compression: str = "zstd") -> None:
        self._place = place
        self._writer = writer
        self._compression = compression
        self._shares: dict[tuple[str, str], _Share] = {}
        self._held = 0
        self._new: list[pa.RecordBatch] = []
        self._new_rows = self._new_size = 0
        self._files: list[_File] = []
        self._closed: list[LakeFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._new.append(batch)
        self._new_rows += batch.num_rows
        self._new_size += batch.nbytes
        is_enough = self._new_rows >= GROUP_ROWS_MAX or self._new_size >= NEW_BYTES_MAX
        if is_enough or self._held + self._new_size > HELD_BYTES_MAX:
            self._part()

    def _part(self) -> None:
        """Distribute new rows to their topics. Most of them are sorted here, once."""
        parts = parted(pa.Table.from_batches(self._new)) if self._new_rows else ()
        self._new, self._new_rows, self._new_size = [], 0, 0
        for topic, day, part in parts:
            share = self._shares.setdefault((topic, day), _Share())
            is_group = not share.held and (part.num_rows >= GROUP_ROWS_MAX or part.nbytes >= GROUP_BYTES_MIN)
            # A copy, not a slice: a topic that waits for more must not keep the rows of the others in memory.
            share.held.append(part if is_group else part.take(pa.array(np.arange(part.num_rows))))
            share.size += part.nbytes
            share.rows += part.num_rows
            self._held += part.nbytes
            if is_group or share.rows >= GROUP_ROWS_MAX or share.size >= NEW_BYTES_MAX:
                self._write((topic, day))
        if self._held > HELD_BYTES_MAX:
            self._write_largest()

    def _write_largest(self) -> None:
        """Write the topics that hold most, until the rest is within the limit."""
        for key in sorted(self._shares, key=lambda key: self._shares[key].size, reverse=True):
            if self._held <= HELD_BYTES_MAX:
                return
            is_small = self._shares[key].file is None and self._shares[key].size < OPEN_FILE_BYTES
            self._write(key)
            if is_small:
                self._close(key)

    def finish(self) -> list[LakeFile]:
        """Write the buffered rows; returns every file, none without messages."""
        self._part()
        for key in sorted(self._shares):
            self._write(key)
            self._close(key)
        return self._closed

    def abandon(self) -> None:
        """Remove the written files."""
        for file in self._files:
            file.abandon()

    def _write(self, key: tuple[str, str]) -> None:
        share = self._shares[key]
        if not share.held:
            return
        if share.file is None:
            share.file = _File(self._place, *key, self._writer, self._compression)
            self._files.append(share.file)
        share.file.write(self._taken(key))

    def _close(self, key: tuple[str, str]) -> None:
        share = self._shares[key]
        if share.file is not None:
            self._closed.append(share.file.close())
            share.file = None

    def _taken(self, key: tuple[str, str]) -> pa.Table:
        """Take the buffered rows of a topic out of the buffer."""
        share = self._shares[key]
        held = share.held
        self._held -= share.size
        share.held, share.size, share.rows = [], 0, 0
        return held[0] if len(held) == 1 else in_order(pa.concat_tables(held))


def in_order(table: pa.Table, first: str | None = None) -> pa.Table:
    """The rows in ORDER, or by another column before."""
    columns = ORDER if first is None else (first, *ORDER)
    order = pc.sort_indices(table, [(name, "ascending") for name in columns])
    is_sorted = np.array_equal(order.to_numpy(), np.arange(len(order)))
    return table if is_sorted else table.take(order)


def parted(table: pa.Table) -> Iterator[tuple[str, str, pa.Table]]:
    """The messages of each topic on each day in their order, as slices of one table."""
    days = table["storeTimestamp"].cast(pa.date32())  # a timestamp in UTC, so a day in UTC
    table = in_order(table.append_column(DAY, days), DAY)
    days, topics = table[DAY], table["topic"]
    table = table.drop_columns(DAY)
    is_new = pc.or_(pc.not_equal(days[1:], days[:-1]), pc.not_equal(topics[1:], topics[:-1]))
    starts = [0, *(np.flatnonzero(is_new.to_numpy()) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], table.num_rows], strict=True):
        yield topics[start].as_py(), days[start].as_py().isoformat(), table.slice(start, end - start)


def leaves(schema: pa.Schema, without: Collection[str]) -> list[str]:
    """What Parquet calls the columns that hold values, but for those within the columns `without`."""
    return [path for field in schema if field.name not in without for path in _paths(field.name, field.type)]


def _paths(name: str, kind: pa.DataType) -> list[str]:
    if pa.types.is_struct(kind):
        return [path for field in kind for path in _paths(f"{name}.{field.name}", field.type)]
    if pa.types.is_list(kind):
        return _paths(f"{name}.list.element", kind.value_type)
    if pa.types.is_map(kind):
        return _paths(f"{name}.key_value.key", kind.key_type) + _paths(f"{name}.key_value.value", kind.item_type)
    return [name]


def spans(table: pa.Table) -> list[QueueSpan]:
    """The messages of each queue in a table with the columns of ORDER."""
    groups = table.group_by(["topic", "brokerName", "queueId"]).aggregate(
        [("queueOffset", "min"), ("queueOffset", "max"), ("queueOffset", "count")]
    )
    return [
        QueueSpan(
            topic=row["topic"], broker=row["brokerName"], queue=row["queueId"], first=row["queueOffset_min"],
            last=row["queueOffset_max"], rows=row["queueOffset_count"],
        )
        for row in groups.to_pylist()
    ]  # fmt: skip


def _joined(known: QueueSpan | None, more: QueueSpan) -> QueueSpan:
    if known is None:
        return more
    return QueueSpan(
        topic=more.topic, broker=more.broker, queue=more.queue, first=min(known.first, more.first),
        last=max(known.last, more.last), rows=known.rows + more.rows,
    )  # fmt: skip


def merged(place: StorageLocation, files: Sequence[LakeFile], writer: str, compression: str = "zstd") -> list[LakeFile]:
    """The messages of several files of one topic and day as one file, in the order of broker, queue and offset: of all
    of them where they fit into memory, else of PORTION_BYTES_MAX and the next. Without messages there is no file.
    """
    made = _File(place, files[0].topic, files[0].day, writer, compression)
    rows = 0
    try:
        for portion in _portions(place, files):
            made.write(in_order(portion))
            rows += portion.num_rows
        return [made.close()] if rows else []
    except BaseException:
        made.abandon()
        raise


def _portions(place: StorageLocation, files: Sequence[LakeFile]) -> Iterator[pa.Table]:
    """The messages of files as tables of one schema: that of the bodies may have got more fields."""
    schemas = [
        _with_partition(read_schema(place, file.path).empty_table(), file.topic, file.day).schema for file in files
    ]
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    held, size = [schema.empty_table()], 0
    for group in _row_groups(place, files):
        if size and size + group.nbytes > PORTION_BYTES_MAX:
            yield pa.concat_tables(held, promote_options="permissive")
            held, size = [schema.empty_table()], 0
        held.append(group)
        size += group.nbytes
    if size:
        yield pa.concat_tables(held, promote_options="permissive")


def _row_groups(place: StorageLocation, files: Sequence[LakeFile]) -> Iterator[pa.Table]:
    for file in files:
        with place.read(file.path) as source:
            parquet = pq.ParquetFile(source)
            for number in range(parquet.num_row_groups):
                group = parquet.read_row_group(number)
                yield _with_partition(group.cast(plain_schema(group.schema), safe=False), file.topic, file.day)


def _with_partition(table: pa.Table, topic: str, day: str) -> pa.Table:
    """With the columns that partition the table: engines of Delta write files without them."""
    values = {TOPIC: pa.scalar(topic, pa.string()), DAY: pa.scalar(date.fromisoformat(day), pa.date32())}
    for name, value in values.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.repeat(value, table.num_rows))
    return table


def read_schema(place: StorageLocation, path: str) -> pa.Schema:
    """The columns of a file of the lake, in plain types."""
    with place.read(path) as source:
        return plain_schema(pq.read_schema(source))


def read_row_count(place: StorageLocation, path: str) -> int:
    """How many rows a file has."""
    with place.read(path) as source:
        return int(pq.read_metadata(source).num_rows)
