"""The tasks of batches and streams: each reads some ranges of queues of one broker as Arrow batches. They are sent to
the executors, so they hold settings and no connections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from orbitmq.message.config import SQL92, SUBSCRIBE_ALL, TAG
from orbitmq.message.model import MessageQueue
from orbitmq.message.properties import KEYS, TAGS
from orbitmq.spark.batches import BatchSettings, RangeBatches
from orbitmq.spark.body_columns import body_reader
from orbitmq.spark.cluster_client import Addresses, BrokerAddresses, ClusterClient, Retries
from orbitmq.spark.fetch import OffsetRange
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.pulls import FetchSettings
from orbitmq.spark.pushdown import NOTHING_PUSHED, Pushed
from orbitmq.spark.read_partitions import PartitionLimits, divided
from orbitmq.spark.row_filters import PropertyIn, RowFilter, Sql92
from orbitmq.spark.versions import InputPartition, arrow_schema

PROPERTY_OF = {"tags": TAGS, "keys": KEYS}  # columns conditions are pushed on


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """The ranges that one task reads, one after another, and the addresses of their broker."""

    ranges: tuple[OffsetRange, ...]
    addresses: Addresses


class RangeTasks:
    """Reads the partitions of one DataFrame."""

    def __init__(self, options: ReadOptions, schema: StructType, pushed: Pushed = NOTHING_PUSHED) -> None:
        self._slaves = options.slaves
        self._limits = PartitionLimits(options.partitions_min, options.partitions_max, options.partition_records_max)
        expression, kind, filters = filtering(options, pushed)
        self._pulls = FetchSettings(
            group=options.pulling_group,
            expression=expression,
            kind=kind,
            batch_size=options.pull_batch_size,
            pipeline=options.pull_pipeline,
            timeout_ms=options.pull_timeout_ms,
            strict=options.fail_on_data_loss,
            protection=options.protection,
        )
        self._batches = BatchSettings(
            schema=arrow_schema(schema),
            filters=filters,
            on_corrupt=options.on_corrupt_record,
            form=options.form,
            names=options.names,
            verify_crc=options.verify_crc,
            decompress=options.decompress,
            bodies=body_reader(options, schema),
        )

    def partitions(
        self, ranges: Iterable[OffsetRange], places: Mapping[MessageQueue, BrokerAddresses], message_size: float = 0
    ) -> list[InputPartition]:
        """The tasks for the ranges. `message_size` is the mean of messages in bytes, 0 if unknown."""
        return [
            RangePartition(partition, preferred(places[partition[0].queue], self._slaves))
            for partition in divided(ranges, self._limits, message_size)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task. Empty for the partition that Spark makes up when there is none."""
        if isinstance(partition, RangePartition):
            yield from RangeBatches(partition.ranges, self._pulls, self._batches).read(partition.addresses)


def filtering(options: ReadOptions, pushed: Pushed) -> tuple[str, str, tuple[RowFilter, ...]]:
    """The filter expression for brokers and its type, and the filters of tasks.

    Brokers compare hashes of tags, so tasks compare the tags themselves.
    """
    filters: list[RowFilter] = [PropertyIn(PROPERTY_OF[column], values) for column, values in pushed.values.items()]
    if options.tags:
        filters.append(PropertyIn(TAGS, options.tags))
    is_sql = options.filter_type == SQL92 and options.sub_expression != SUBSCRIBE_ALL
    if options.filter_side == "task":
        if is_sql:
            filters.append(Sql92(options.sub_expression))
        return SUBSCRIBE_ALL, TAG, tuple(filters)
    if is_sql:
        return options.sub_expression, SQL92, tuple(filters)
    tags = options.sub_expression if options.tags else " || ".join(sorted(pushed.plain_tags))
    return tags or SUBSCRIBE_ALL, TAG, tuple(filters)


def preferred(place: BrokerAddresses, slaves: str) -> Addresses:
    """The addresses in the order of option readFromSlave."""
    if not place.has_master or slaves == "auto":
        return place.addresses
    master, *others = place.addresses
    return (master,) if slaves == "never" else (*others, master)


def cluster_of(options: ReadOptions) -> ClusterClient:
    """The client for the cluster of a read."""
    retries = Retries(options.fetch_retries, options.fetch_retry_interval_ms)
    return ClusterClient(options.name_servers, options.pull_timeout_ms, retries, options.protection)
