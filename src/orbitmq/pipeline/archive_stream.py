"""The stream `format("orbitmq-archive")`: messages go from where they are into files of the lake inside the task that
reads them, and Spark carries only what is told about the files.

It plans as the stream of topics or of stores that it wraps. What a task has written counts when `orbitmq-lake` has
published it; a task that is repeated writes other files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StringType, StructField, StructType

from orbitmq.pipeline.lake import manifest
from orbitmq.pipeline.lake.manifest import LakeFile, Reached, TaskReport
from orbitmq.pipeline.lake.message_files import LakeWriter
from orbitmq.pipeline.lake.storage import StorageLocation
from orbitmq.pipeline.lake_options import BodyOptions
from orbitmq.runtime.options import option
from orbitmq.spark.cluster_options import bad_option, parse_declared
from orbitmq.spark.columns import COLUMNS
from orbitmq.spark.read_tasks import RangePartition
from orbitmq.spark.source import TopicSource
from orbitmq.spark.stores.source import StoreSource

STORED_SIZE = "size"  # of the unit in the log: the lake keeps the message, not the unit
MESSAGES = StructType([StructField(name, column.type) for name, column in COLUMNS.items() if name != STORED_SIZE])
REPORTS = StructType([StructField("report", StringType())])
ARROW_REPORTS = pa.schema([("report", pa.string())])
BATCH_PROPERTY = "streaming.sql.batchId"  # of a task; Spark tells Python sources no other way
WRITER = "archive"  # what names of files begin with
INPUTS: dict[str, type[DataSource]] = {"pull": TopicSource, "store": StoreSource}


@dataclass(frozen=True)
class ArchiveOptions(BodyOptions):
    """How messages go into the lake. Every other option is one of the stream that is read."""

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


class InnerStream(Protocol):
    """What both streams have that can be wrapped."""

    def initialOffset(self) -> dict[str, Any]: ...  # noqa: N802 - Spark's names
    def getDefaultReadLimit(self) -> ReadLimit: ...  # noqa: N802
    def prepareForTriggerAvailableNow(self) -> None: ...  # noqa: N802
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]: ...  # noqa: N802
    def reportLatestOffset(self) -> dict[str, Any] | None: ...  # noqa: N802
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]: ...
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]: ...


class ArchiveSource(DataSource):
    """`spark.readStream.format("orbitmq-archive")`; the options are those of `ArchiveOptions`, and those of `orbitmq`
    or `orbitmq-store`."""

    @classmethod
    def name(cls) -> str:
        return "orbitmq-archive"

    def schema(self) -> StructType:
        return REPORTS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's call
        options, rest = split_options(self.options)
        inner = INPUTS[options.input](rest).streamReader(MESSAGES)
        return ArchiveReader(inner, options)  # type: ignore[arg-type]


def split_options(given: Mapping[str, str]) -> tuple[ArchiveOptions, dict[str, str]]:
    """The archive's own options, and the rest. SourceError names the one at fault."""
    own = {key.lower() for key in ArchiveOptions.table()}
    mine = {key: value for key, value in given.items() if key.lower() in own}
    options = parse_declared(ArchiveOptions, mine, {})
    if not options.lake:
        raise bad_option("option lake is missing; give the folder or URI of the lake")
    return options, {key: value for key, value in given.items() if key.lower() not in own}


class ArchiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans as `inner` does; its tasks write what that one reads."""

    def __init__(self, inner: InnerStream, options: ArchiveOptions) -> None:
        self._inner = inner
        self._place = StorageLocation(options.lake)
        self._compression = options.compression
        self._bodies = options.bodies()

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
        """Write the messages of one task; one row tells where they are."""
        writer = LakeWriter(self._place, _writer_name(), self._compression)
        try:
            for batch in self._inner.read(partition):
                writer.add(self._bodies.add(batch))
            files = writer.finish()
        except BaseException:
            writer.abandon()
            raise
        report = TaskReport(files=files, reached=reached(partition, files))
        yield pa.RecordBatch.from_pydict({"report": [manifest.encode(report)]}, ARROW_REPORTS)


def reached(partition: InputPartition, files: list[LakeFile]) -> list[Reached]:
    """How far the task came in each queue: where its range ends, though a filter left the last messages out; of a
    stretch of the log behind the last message of each queue."""
    if isinstance(partition, RangePartition):
        queue = partition.range.queue
        return [Reached(topic=queue.topic, broker=queue.broker_name, queue=queue.queue_id, next=partition.range.end)]
    furthest: dict[tuple[str, str, int], int] = {}
    for span in (span for file in files for span in file.queues):
        key = span.topic, span.broker, span.queue
        furthest[key] = max(span.last + 1, furthest.get(key, 0))
    return [Reached(topic=key[0], broker=key[1], queue=key[2], next=offset) for key, offset in furthest.items()]


def _writer_name() -> str:
    """For people who look at a file and ask what made it."""
    context = TaskContext.get()
    if context is None:
        return WRITER
    return f"{WRITER}-{context.getLocalProperty(BATCH_PROPERTY)}-{context.partitionId()}-{context.attemptNumber()}"
