"""The data source `orbitmq`: a topic of a cluster as a DataFrame, read over the network in one batch.

Spark calls it in three places: `schema` and `reader` where `load` is called, `partitions` in a planning process of
the driver, `read` in a task. It must not hold connections between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from orbitmq.message.config import SUBSCRIBE_ALL
from orbitmq.spark.batches import BatchSettings, RangeBatches
from orbitmq.spark.cluster import Addresses, Cluster, Retries
from orbitmq.spark.columns import check_schema, read_schema
from orbitmq.spark.fetch import QueueRange
from orbitmq.spark.options import ReadOptions, read_options
from orbitmq.spark.planning import plan
from orbitmq.spark.pulls import PullSettings


class TopicSource(DataSource):
    """`spark.read.format("orbitmq")`; the options are those of `orbitmq.spark.options.ReadOptions`."""

    @classmethod
    def name(cls) -> str:
        return "orbitmq"

    def schema(self) -> StructType:
        options = read_options(self.options)
        return read_schema(options.column_names, options.include_properties)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        check_schema(schema)
        return TopicReader(options, schema)


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """What one task reads, and the addresses of the broker that has it."""

    range: QueueRange
    addresses: Addresses


class TopicReader(DataSourceReader):
    """Plans a batch read on the driver and runs its tasks; it travels to the executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._pulls = PullSettings(
            group=options.group_id,
            expression=options.sub_expression if options.tags else SUBSCRIBE_ALL,
            batch_size=options.pull_batch_size,
            pipeline=options.pull_pipeline,
            timeout_ms=options.pull_timeout_ms,
            strict=options.fail_on_data_loss,
            protection=options.protection,
        )
        self._batches = BatchSettings(
            schema=to_arrow_schema(schema, timezone="UTC"),
            tags=options.tags,
            verify_crc=options.verify_crc,
            decompress=options.decompress,
        )

    def partitions(self) -> list[InputPartition]:
        """The ranges of all queues; the same for the same options and the same offsets of the brokers."""
        options = self._options
        retries = Retries(options.fetch_retries, options.fetch_retry_interval_ms)
        cluster = Cluster(options.name_servers, options.pull_timeout_ms, retries, options.protection)
        queues = {queue: addresses for topic in options.topics for queue, addresses in cluster.queues(topic).items()}
        return [RangePartition(range_, queues[range_.queue]) for range_ in plan(cluster, options, queues)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one range; nothing for the partition Spark makes up when there is no range."""
        if isinstance(partition, RangePartition):
            yield from RangeBatches(partition.range, self._pulls, self._batches).read(partition.addresses)
