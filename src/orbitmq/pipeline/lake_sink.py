"""The sink `format("orbitmq-archive-sink")`: publishes the files of `orbitmq-archive`, each batch once, then
commits the progress of the archive to the brokers.

The order matters: after a crash between the two, brokers keep more of their log than necessary until the next batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from orbitmq.errors import LakeError, SourceError
from orbitmq.lake import manifest
from orbitmq.lake.manifest import Reached
from orbitmq.message.model import MessageQueue
from orbitmq.pipeline.archive_stream import REPORTS
from orbitmq.pipeline.lake_options import LakeOptions
from orbitmq.spark.cluster_client import ClusterClient, Retries
from orbitmq.spark.cluster_options import ClusterOptions, parse_declared
from orbitmq.spark.group_offsets import OffsetReporter
from orbitmq.spark.sink_options import OF_SPARK
from orbitmq.spark.versions import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

LOG = logging.getLogger(__name__)

QUERY_PROPERTY = "sql.streaming.queryId"  # local property of a task; kept after a restart from the checkpoint
TIMEOUT_MS = 10_000
RETRIES = Retries(2, 500)  # brokers that are down get the offsets with the next batch
BUSY = "stop them, or set --archive-group (and archiveGuardGroup of the brokers) to a group of its own"


@dataclass(frozen=True)
class SinkOptions(LakeOptions, ClusterOptions):
    """The lake, and the cluster to commit its progress to."""


class LakeSink(DataSource):
    """`.writeStream.format("orbitmq-archive-sink")` with `SinkOptions`. Without `nameServer` it commits no progress."""

    OPTIONS = SinkOptions

    @classmethod
    def name(cls) -> str:
        return "orbitmq-archive-sink"

    def schema(self) -> StructType:
        return REPORTS

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        given = {key: value for key, value in self.options.items() if key.lower() not in OF_SPARK}
        options = parse_declared(SinkOptions, given, {})
        if overwrite:
            raise SourceError("ORBITMQ_BAD_MODE", "the lake is append-only: use outputMode append")
        if schema.names != REPORTS.names:
            raise SourceError("ORBITMQ_BAD_SCHEMA", f"{self.name()} needs the unchanged rows of format orbitmq-archive")
        options.open()  # fail early for an unsuitable place
        return LakePublisher(options)


@dataclass(frozen=True)
class ArchiveReports(WriterCommitMessage):
    """The reports of one task, and the query they belong to."""

    query_id: str
    reports: tuple[str, ...]


class LakePublisher(DataSourceStreamArrowWriter):
    """Tasks forward reports, the driver publishes. They are separate processes and share only messages."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query_id = context.getLocalProperty(QUERY_PROPERTY) if context is not None else None
        if not query_id:
            raise LakeError(f"this task has no {QUERY_PROPERTY}: orbitmq-archive-sink is a sink of streams only")
        return ArchiveReports(query_id, tuple(text for batch in iterator for text in batch.column(0).to_pylist()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish the batch, unless it was published before a crash."""
        written = [message for message in messages if isinstance(message, ArchiveReports)]
        reports = [manifest.decode(text) for message in written for text in message.reports]
        files, reached = [file for report in reports for file in report.files], manifest.furthest(reports)
        if files:
            is_new = self._options.open().commit(written[0].query_id, batchId, files, reached)
            LOG.info("event=lake_batch batch=%d files=%d rows=%d new=%s", batchId, len(files),
                     sum(file.rows for file in files), is_new)  # fmt: skip
        if self._options.name_servers:
            commit_progress(self._options, reached)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing was published. The files are swept later."""
        LOG.warning("event=lake_batch_aborted batch=%d tasks=%d", batchId, len(messages))


def commit_progress(options: SinkOptions, points: Sequence[Reached]) -> None:
    """Commit the progress of the archive to the brokers. Failures are logged, as the next batch commits more. Deleted
    topics and brokers that are not registered are skipped."""
    offsets = {MessageQueue(point.topic, point.broker, point.queue): point.next for point in points}
    cluster = ClusterClient(options.name_servers, TIMEOUT_MS, RETRIES, options.protection)
    try:
        places = cluster.look_up(sorted({queue.topic for queue in offsets})).queues
        if strangers := sorted(offsets.keys() - places.keys()):
            first = f"{strangers[0].topic}/{strangers[0].broker_name}/{strangers[0].queue_id}"
            text = "event=archive_progress_not_committed group=%s queues=%d first=%s error=no name server knows it"
            LOG.warning(text, options.group, len(strangers), first)
        OffsetReporter(cluster, options.group, "archiveGroup", BUSY).report(offsets, places)
    except SourceError as error:
        LOG.warning("event=archive_progress_not_committed group=%s error=%s", options.group, error)
