"""The data source `orbitmq-lake`: archived messages, with the columns of a topic.

Spark calls `schema` and `reader` where `load` is called, `partitions` on the driver, and `read` in a task. The files
are those of one version of the table, chosen when the query is planned.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StringType, StructType

from orbitmq.errors import SourceError
from orbitmq.spark.bodies.options import RAW
from orbitmq.spark.bodies.reader import RESCUED, VALUE
from orbitmq.spark.body_columns import body_reader, require_part, value_type
from orbitmq.spark.columns import COLUMNS, PROPERTIES
from orbitmq.spark.forms import check_schema, read_schema
from orbitmq.spark.lake.files import LakeFiles, LakePartition
from orbitmq.spark.lake.options import LakeReadOptions, lake_options, require_body_schema
from orbitmq.spark.lake.plan import plan
from orbitmq.spark.versions import DataSource, DataSourceReader, InputPartition, arrow_schema

NOT_ARCHIVED = ("size", "corrupt")  # columns of a topic that tell how it is stored


class LakeSource(DataSource):
    """`spark.read.format("orbitmq-lake")`; the options are those of `orbitmq.spark.lake.options.LakeReadOptions`."""

    @classmethod
    def name(cls) -> str:
        return "orbitmq-lake"

    def schema(self) -> StructType:
        options = lake_options(self.options)
        require_body_schema(options)
        value = _archived_value(options) if options.body_format == RAW else value_type(options, list)
        schema = read_schema(options.column_names, options.include_properties, value=value)
        _check_archived(schema)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        return LakeReader(lake_options(self.options), schema)


class LakeReader(DataSourceReader):
    """Plans a read on the driver and runs its tasks. It is sent to the executors."""

    def __init__(self, options: LakeReadOptions, schema: StructType) -> None:
        self._options = options
        _check_archived(schema)
        if options.body_format == RAW:
            _check_values(options, schema)
        check_schema(StructType([field for field in schema if field.name not in (VALUE, RESCUED)]))
        self._files = LakeFiles(
            place=options.place,
            schema=arrow_schema(schema),
            topics=options.topic_names,
            begin_ms=options.begin_ms,
            end_ms=options.end_ms,
            bodies=body_reader(options, schema),
        )

    def partitions(self) -> list[InputPartition]:
        """The tasks for the files of the version that the options name, or of the newest."""
        return plan(self._options.snapshot(), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task. Empty for the partition that Spark makes up when there is none."""
        if isinstance(partition, LakePartition):
            yield from self._files.read(partition)


def _archived_value(options: LakeReadOptions) -> StructType | None:
    """The type of the bodies that were archived as columns; None in a lake without them."""
    columns = options.snapshot().schema
    if VALUE not in columns.names:
        return None
    found = from_arrow_type(columns.field(VALUE).type)
    assert isinstance(found, StructType), "the type of a struct"
    return found


def _check_archived(schema: StructType) -> None:
    if missing := [field.name for field in schema if field.name in NOT_ARCHIVED]:
        raise SourceError("ORBITMQ_BAD_SCHEMA", f"a lake has no column {missing[0]}; leave it out")
    if PROPERTIES in schema.names and schema[PROPERTIES].dataType != COLUMNS[PROPERTIES].type:
        kind = COLUMNS[PROPERTIES].type.simpleString()
        raise SourceError("ORBITMQ_BAD_SCHEMA", f"column {PROPERTIES} of a lake is {kind}, not the stored text")


def _check_values(options: LakeReadOptions, schema: StructType) -> None:
    """SourceError for columns of bodies that the lake does not have."""
    if not {VALUE, RESCUED} & set(schema.names):
        return
    has = _archived_value(options)
    if has is None:
        text = "the bodies of this lake are no columns; set bodyFormat and bodySchema to parse them, or read body"
        raise SourceError("ORBITMQ_BAD_SCHEMA", text)
    for name, kind in ((VALUE, has), (RESCUED, StringType())):
        if name in schema.names:
            _require(schema[name].dataType, kind, name, is_nullable=schema[name].nullable)


def _require(wanted: DataType, known: DataType, name: str, *, is_nullable: bool) -> None:
    if not is_nullable:
        raise SourceError("ORBITMQ_BAD_SCHEMA", f"column {name} is nullable")
    require_part(wanted, known, name)
