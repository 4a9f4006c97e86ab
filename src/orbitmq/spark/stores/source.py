"""The data source `orbitmq-store`: a broker's store directory as a DataFrame, read from the disk without any broker.

Spark calls `schema`, `reader` and `streamReader` where `load` is called, `partitions` on the driver, and `read` in a
task. Nothing stays open between these calls.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from orbitmq.spark.body_columns import body_reader, value_type, without_bodies
from orbitmq.spark.forms import require_corrupt, schema_read
from orbitmq.spark.stores.batches import SplitPartition, StoreSettings, read_partition
from orbitmq.spark.stores.columns import (
    INDEX_COLUMNS,
    QUEUE_COLUMNS,
    check_schema,
    log_types,
    schema_of,
)
from orbitmq.spark.stores.options import ScanOptions, scan_options
from orbitmq.spark.stores.sample import newest_bodies
from orbitmq.spark.stores.splits import batch_splits, queue_topics
from orbitmq.spark.stores.stream import StoreStreamReader
from orbitmq.spark.versions import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    admitted,
    arrow_schema,
)


class StoreSource(DataSource):
    """`spark.read.format("orbitmq-store")`; the options are those of `orbitmq.spark.stores.options.ScanOptions`."""

    @classmethod
    def name(cls) -> str:
        return "orbitmq-store"

    def schema(self) -> StructType:
        options = scan_options(self.options)
        if options.scan != "commitlog":
            types = QUEUE_COLUMNS if options.scan == "consumequeue" else INDEX_COLUMNS
            return schema_of(types, options.column_names or tuple(types))
        return schema_read(options, value=value_type(options, lambda: newest_bodies(options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = scan_options(self.options)
        return StoreBatchReader(options, settings(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return admitted(self.stream(schema))

    def stream(self, schema: StructType) -> StoreStreamReader:
        """The stream, before it is made to suit this version of Spark."""
        options = scan_options(self.options)
        return StoreStreamReader(options, settings(options, schema))


def settings(options: ScanOptions, schema: StructType) -> StoreSettings:
    """The settings for tasks. SourceError for a schema that cannot be read."""
    types = {"consumequeue": QUEUE_COLUMNS, "index": INDEX_COLUMNS}.get(options.scan)
    check_schema(without_bodies(options, schema), types or log_types(options.include_properties))
    if options.scan == "commitlog":
        require_corrupt(schema, options)
    return StoreSettings(
        schema=arrow_schema(schema),
        topics=options.topic_names,
        queue_topics=queue_topics(options),
        resolve=options.resolve_system_topics,
        verify_crc=options.verify_crc,
        decompress=options.decompress,
        strict=options.fail_on_data_loss,
        on_corrupt=options.on_corrupt_record,
        bodies=body_reader(options, schema),
    )


class StoreBatchReader(DataSourceReader):
    """Plans a batch read on the driver and runs its tasks. It is sent to the executors."""

    def __init__(self, options: ScanOptions, settings: StoreSettings) -> None:
        self._options = options
        self._settings = settings

    def partitions(self) -> list[InputPartition]:
        """The splits of all directories as they are now."""
        return [SplitPartition(split) for split in batch_splits(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one split."""
        return read_partition(partition, self._settings)
