"""The writing half of the data source: options and columns are checked here, the rest is loaded when a write begins.
Executors that only read import nothing of it."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from orbitmq.spark.cluster_options import bad_option
from orbitmq.spark.sink_columns import SinkColumns, sink_columns
from orbitmq.spark.sink_options import WriteOptions, write_options


class TopicSink(DataSource):
    """`df.write.format("orbitmq")`; the options are those of `orbitmq.spark.sink_options.WriteOptions`."""

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
        return options, sink_columns(schema, topic_given=bool(options.topic))
