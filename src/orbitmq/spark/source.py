"""The data source `orbitmq`: topics of a cluster as a DataFrame, read over the network, in one batch or as a stream.

Spark calls it in three places: `schema` and the readers where `load` is called, planning in a process of the driver,
`read` in a task. A batch must not hold connections between them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from orbitmq.spark.columns import check_schema, read_schema
from orbitmq.spark.options import ReadOptions, check_stream, read_options
from orbitmq.spark.planning import plan
from orbitmq.spark.reading import RangeTasks, cluster_of
from orbitmq.spark.selecting import selection
from orbitmq.spark.stream import TopicStreamReader
from orbitmq.spark.writing import TopicSink


class TopicSource(TopicSink):
    """`spark.read.format("orbitmq")`; the options are those of `orbitmq.spark.options.ReadOptions`. Writes go to the
    base class."""

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

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = read_options(self.options)
        check_stream(options)
        check_schema(schema)
        return TopicStreamReader(options, schema)


class TopicReader(DataSourceReader):
    """Plans a batch read on the driver and runs its tasks; it travels to the executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._selection = selection(options)
        self._tasks = RangeTasks(options, schema)

    def partitions(self) -> list[InputPartition]:
        """The ranges of all queues; the same for the same options and the same offsets of the brokers."""
        cluster = cluster_of(self._options)
        places = self._selection.queues(cluster)
        ranges = plan(cluster, self._options, {queue: place.addresses for queue, place in places.items()})
        return [self._tasks.partition(range_, places[range_.queue]) for range_ in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one range."""
        yield from self._tasks.read(partition)
