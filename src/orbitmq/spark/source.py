"""The data source `orbitmq`: topics of a cluster as a DataFrame, read over the network, in one batch or as a stream.

Spark calls `schema` and the readers where `load` is called, the planning in a process of the driver, and `read` in a
task. A batch must not hold connections between these calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from orbitmq.spark.body_columns import value_type, without_bodies
from orbitmq.spark.cluster_options import bad_option
from orbitmq.spark.forms import NATIVE, check_schema, require_corrupt, schema_read
from orbitmq.spark.options import ReadOptions, check_stream, read_options
from orbitmq.spark.pushdown import NOTHING_PUSHED, pushed
from orbitmq.spark.queue_selection import queue_selection
from orbitmq.spark.read_brokers import complete_queues
from orbitmq.spark.read_plan import mean_size, plan
from orbitmq.spark.read_tasks import RangeTasks, cluster_of
from orbitmq.spark.sample import newest_bodies
from orbitmq.spark.sink_columns import SinkColumns, sink_columns
from orbitmq.spark.sink_options import WriteOptions, write_options
from orbitmq.spark.stream import TopicStreamReader
from orbitmq.spark.topic_schema import with_topic_schema
from orbitmq.spark.versions import (
    PUSHES_FILTERS,
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
    admitted,
    lacking,
)


class TopicSource(DataSource):
    """`format("orbitmq")`. Reads take the options of `orbitmq.spark.options.ReadOptions`, writes those of
    `orbitmq.spark.sink_options.WriteOptions`."""

    @classmethod
    def name(cls) -> str:
        return "orbitmq"

    def schema(self) -> StructType:
        options = with_topic_schema(read_options(self.options))
        return schema_read(options, options.form, value_type(options, lambda: newest_bodies(options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = with_topic_schema(read_options(self.options))
        check_schema(without_bodies(options, schema), options.form)
        require_corrupt(schema, options)
        if options.pushes_filters and not PUSHES_FILTERS:
            raise lacking("option filterPushdown", "4.1", "leave it out, and narrow the read by its other options")
        return NarrowingTopicReader(options, schema) if options.pushes_filters else TopicReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return admitted(self.stream(schema))

    def stream(self, schema: StructType) -> TopicStreamReader:
        """The stream, before it is made to suit this version of Spark."""
        options = with_topic_schema(read_options(self.options))
        check_stream(options)
        check_schema(without_bodies(options, schema), options.form)
        require_corrupt(schema, options)
        return TopicStreamReader(options, schema)

    # Writers are imported here, so that executors that only read load nothing of them.

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from orbitmq.spark.sink import TopicWriter
        from orbitmq.spark.sink_brokers import known_brokers

        options, columns = self._checked(schema, overwrite=overwrite)
        return TopicWriter(options, columns, known_brokers(options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from orbitmq.spark.sink import TopicStreamWriter
        from orbitmq.spark.sink_brokers import known_brokers

        options, columns = self._checked(schema, overwrite=overwrite)
        return TopicStreamWriter(options, columns, known_brokers(options))  # Spark makes one for each batch

    def _checked(self, schema: StructType, *, overwrite: bool) -> tuple[WriteOptions, SinkColumns]:
        options = write_options(self.options)
        if overwrite:
            raise bad_option('a topic cannot be overwritten; use .mode("append"), for a stream outputMode("append")')
        return options, sink_columns(schema, topic_given=bool(options.topic), bodies=options)


class TopicReader(DataSourceReader):
    """Plans a batch read on the driver and runs its tasks. It is sent to the executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._selection = queue_selection(options)
        self._pushed = NOTHING_PUSHED
        self._tasks = RangeTasks(options, schema)

    def partitions(self) -> list[InputPartition]:
        """The tasks for the ranges of all queues."""
        cluster = cluster_of(self._options)
        places = complete_queues(cluster, self._options, self._selection)
        queues = {queue: place.addresses for queue, place in places.items()}
        ranges = plan(cluster, self._options, queues, self._pushed)
        return self._tasks.partitions(ranges, places, mean_size(cluster, self._options, queues, ranges))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task."""
        yield from self._tasks.read(partition)


class NarrowingTopicReader(TopicReader):
    """Uses conditions of the query to reduce what is read. Spark rejects such a reader unless its configuration allows
    it, so this is a class of its own."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Use the supported conditions. All are returned, so that Spark applies them to the rows."""
        self._pushed = pushed(filters) if self._options.form == NATIVE else NOTHING_PUSHED
        self._tasks = RangeTasks(self._options, self._schema, self._pushed)
        return filters
