"""What a task does, for batches and streams alike: one range of a queue as Arrow batches. Travels to the executors,
so it holds settings and no connections."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from orbitmq.message.config import SUBSCRIBE_ALL
from orbitmq.spark.batches import BatchSettings, RangeBatches
from orbitmq.spark.cluster import Addresses, Cluster, Place, Retries
from orbitmq.spark.fetch import QueueRange
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.pulls import PullSettings


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """What one task reads, and the addresses of the broker that has it."""

    range: QueueRange
    addresses: Addresses


class RangeTasks:
    """Reads the partitions of one DataFrame."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._slaves = options.slaves
        self._pulls = PullSettings(
            group=options.pulling_group,
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

    def partition(self, range_: QueueRange, place: Place) -> RangePartition:
        """The task of a range that lives at `place`."""
        return RangePartition(range_, preferred(place, self._slaves))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one range; nothing for the partition Spark makes up when there is no range."""
        if isinstance(partition, RangePartition):
            yield from RangeBatches(partition.range, self._pulls, self._batches).read(partition.addresses)


def preferred(place: Place, slaves: str) -> Addresses:
    """The addresses in the order of option readFromSlave."""
    if not place.has_master or slaves == "auto":
        return place.addresses
    master, *others = place.addresses
    return (master,) if slaves == "never" else (*others, master)


def cluster_of(options: ReadOptions) -> Cluster:
    """The cluster a read asks."""
    retries = Retries(options.fetch_retries, options.fetch_retry_interval_ms)
    return Cluster(options.name_servers, options.pull_timeout_ms, retries, options.protection)
