"""The stream `format("orbitmq-archive")`: tasks write the messages that they read directly into files of the lake, and
pass only reports about these files through Spark.

It plans like the stream of topics or stores that it wraps. Files of a task count once
`orbitmq-archive-sink` has published them. A repeated task writes new files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from orbitmq.lake import manifest
from orbitmq.lake.manifest import LakeFile, Reached, TaskReport
from orbitmq.lake.message_files import LakeWriter
from orbitmq.lake.storage import StorageLocation
from orbitmq.runtime.options import Options, option
from orbitmq.spark.bodies.options import BodyOptions
from orbitmq.spark.body_columns import body_fields
from orbitmq.spark.cluster_options import bad_option, parse_declared
from orbitmq.spark.columns import COLUMNS
from orbitmq.spark.read_tasks import RangePartition
from orbitmq.spark.source import TopicSource
from orbitmq.spark.stores.source import StoreSource
from orbitmq.spark.versions import (
    AdmittedStream,
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    ReadLimit,
    SupportsTriggerAvailableNow,
    admitted,
)

STORED_SIZE = "size"  # size of the unit in the log, which the lake does not keep
MESSAGES = StructType([StructField(name, column.type) for name, column in COLUMNS.items() if name != STORED_SIZE])
REPORTS = StructType([StructField("report", StringType())])
ARROW_REPORTS = pa.schema([("report", pa.string())])
BATCH_PROPERTY = "streaming.sql.batchId"  # local property of a task; Spark has no other way for Python sources
WRITER = "archive"  # what names of files begin with
INPUTS: dict[str, type[TopicSource | StoreSource]] = {"pull": TopicSource, "store": StoreSource}


@dataclass(frozen=True)
class ArchiveOptions(Options):
    """Options of the archive. Every other option is one of the wrapped stream."""

    lake: str = option("lake", "", "Folder or URI of the lake. Required.")
    compression: str = option(
        "lakeCompression", "zstd", "Compression of the Parquet files.", choices=("zstd", "snappy", "none")
    )
    input: str = option(
        "input",
        "pull",
        "Where messages come from: brokers over the network (pull), or store directories (store).",
        choices=tuple(INPUTS),
    )


class ArchiveSource(DataSource):
    """`spark.readStream.format("orbitmq-archive")`, with `ArchiveOptions` and those of `orbitmq` or its store."""

    @classmethod
    def name(cls) -> str:
        return "orbitmq-archive"

    def schema(self) -> StructType:
        return REPORTS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's call
        options, rest = split_options(self.options)
        bodies = parse_declared(BodyOptions, _those_of(BodyOptions, rest), {})
        messages = StructType([*MESSAGES, *body_fields(bodies)])
        return admitted(ArchiveReader(INPUTS[options.input](rest).stream(messages), options))


def split_options(given: Mapping[str, str]) -> tuple[ArchiveOptions, dict[str, str]]:
    """The options of the archive, and the others. SourceError names an invalid one."""
    mine = _those_of(ArchiveOptions, given)
    options = parse_declared(ArchiveOptions, mine, {})
    if not options.lake:
        raise bad_option("option lake is missing; set it to the folder or URI of the lake")
    return options, {key: value for key, value in given.items() if key not in mine}


def _those_of(kind: type[Options], given: Mapping[str, str]) -> dict[str, str]:
    """The options that a class declares. Spark passes their names on in lower case."""
    own = {key.lower() for key in kind.table()}
    return {key: value for key, value in given.items() if key.lower() in own}


class ArchiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans like `inner`. Its tasks write what `inner` reads."""

    def __init__(self, inner: AdmittedStream, options: ArchiveOptions) -> None:
        self._inner = inner
        self._place = StorageLocation(options.lake)
        self._compression = options.compression

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._inner.initialOffset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self._inner.getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._inner.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return self._inner.latestOffset(start, limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._inner.reportLatestOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self._inner.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the messages of one task, and return one row with the report."""
        writer = LakeWriter(self._place, _writer_name(), self._compression)
        try:
            for batch in self._inner.read(partition):
                writer.add(batch)
            files = writer.finish()
        except BaseException:
            writer.abandon()
            raise
        report = TaskReport(files=files, reached=reached(partition, files))
        yield pa.RecordBatch.from_pydict({"report": [manifest.encode(report)]}, ARROW_REPORTS)


def reached(partition: InputPartition, files: list[LakeFile]) -> list[Reached]:
    """The progress of the task in each queue: the ends of its ranges, even if a filter dropped the last messages; for a
    range of the log the offset after the last message of each queue."""
    if isinstance(partition, RangePartition):
        return [
            Reached(topic=each.queue.topic, broker=each.queue.broker_name, queue=each.queue.queue_id, next=each.end)
            for each in partition.ranges
        ]
    furthest: dict[tuple[str, str, int], int] = {}
    for span in (span for file in files for span in file.queues):
        key = span.topic, span.broker, span.queue
        furthest[key] = max(span.last + 1, furthest.get(key, 0))
    return [Reached(topic=key[0], broker=key[1], queue=key[2], next=offset) for key, offset in furthest.items()]


def _writer_name() -> str:
    """The part of file names that says what wrote a file."""
    context = TaskContext.get()
    if context is None:
        return WRITER
    return f"{WRITER}-{context.getLocalProperty(BATCH_PROPERTY)}-{context.partitionId()}-{context.attemptNumber()}"
