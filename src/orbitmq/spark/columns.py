"""The columns of a topic: a table of names, Spark types, and how each column is decoded from message units.

The user's schema selects the columns of a read, else the option `columns`, else the default set. Python data sources
get no column pruning from Spark, so only selected columns are decoded. Knows no brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    TimestampType,
)

from orbitmq.message.namespace import NO_NAMESPACE, Namespace
from orbitmq.message.properties import KEYS, TAGS, UNIQ_KEY
from orbitmq.schemas.model import SCHEMA_ID
from orbitmq.spark.bodies.reader import BodyReader
from orbitmq.spark.units import Units

PROPERTIES = "properties"
PROPERTIES_TYPES: dict[str, DataType] = {"map": MapType(StringType(), StringType()), "string": StringType()}


class ColumnSource(NamedTuple):
    """The input of a column: units of one broker, whether to decompress bodies, the namespace to remove."""

    units: Units
    broker_name: str
    decompress: bool
    names: Namespace = NO_NAMESPACE


class MessageColumn(NamedTuple):
    """A column: its Spark type and how to decode its values."""

    type: DataType
    values: Callable[[ColumnSource], pa.Array]


def _number(field: str) -> Callable[[ColumnSource], pa.Array]:
    return lambda rows: pa.array(rows.units.field(field))


def _timestamp(field: str) -> Callable[[ColumnSource], pa.Array]:
    return lambda rows: pa.array(rows.units.field(field) * 1000).view(pa.timestamp("us", tz="UTC"))


def _topics(rows: ColumnSource) -> pa.Array:
    topics = rows.units.topics()
    if not rows.names:
        return topics
    encoded = topics.dictionary_encode()
    return pa.array(map(rows.names.unwrap, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)


def _property(name: str) -> Callable[[ColumnSource], pa.Array]:
    return lambda rows: rows.units.properties.column(name)


def _message_ids(rows: ColumnSource) -> pa.Array:
    """The producer's unique id, else the offset id, as consumers report it."""
    unique = rows.units.properties.column(UNIQ_KEY)
    return pc.coalesce(unique, rows.units.offset_ids()) if unique.null_count else unique


COLUMNS: dict[str, MessageColumn] = {
    "topic": MessageColumn(StringType(), _topics),
    "brokerName": MessageColumn(StringType(), lambda rows: pa.repeat(rows.broker_name, len(rows.units))),
    "queueId": MessageColumn(IntegerType(), _number("queue_id")),
    "queueOffset": MessageColumn(LongType(), _number("queue_offset")),
    "msgId": MessageColumn(StringType(), _message_ids),
    "tags": MessageColumn(StringType(), _property(TAGS)),
    "keys": MessageColumn(StringType(), _property(KEYS)),
    "body": MessageColumn(
        BinaryType(), lambda rows: rows.units.bodies() if rows.decompress else rows.units.stored_bodies()
    ),
    PROPERTIES: MessageColumn(PROPERTIES_TYPES["map"], lambda rows: rows.units.properties.maps()),
    "bornTimestamp": MessageColumn(TimestampType(), _timestamp("born_timestamp")),
    "storeTimestamp": MessageColumn(TimestampType(), _timestamp("store_timestamp")),
    "bornHost": MessageColumn(StringType(), lambda rows: rows.units.born_hosts),
    "storeHost": MessageColumn(StringType(), lambda rows: rows.units.store_hosts),
    "reconsumeTimes": MessageColumn(IntegerType(), _number("reconsume_times")),
    "sysFlag": MessageColumn(IntegerType(), _number("sys_flag")),
    "flag": MessageColumn(IntegerType(), _number("flag")),
    "bodyCrc": MessageColumn(IntegerType(), _number("body_crc")),
    "physOffset": MessageColumn(LongType(), _number("physical_offset")),
    "preparedTransactionOffset": MessageColumn(LongType(), _number("prepared_transaction_offset")),
    "offsetMsgId": MessageColumn(StringType(), lambda rows: rows.units.offset_ids()),
    "size": MessageColumn(IntegerType(), _number("size")),
}
DEFAULT_COLUMNS = tuple(COLUMNS)[: tuple(COLUMNS).index("bornHost") + 1]


def record_batch(
    rows: ColumnSource,
    schema: pa.Schema,
    columns: Mapping[str, MessageColumn] = COLUMNS,
    reader: BodyReader | None = None,
) -> pa.RecordBatch:
    """The rows as one batch of `schema`, the Arrow schema of the read. `columns` must contain its columns, except those
    of the `reader` of bodies, which may leave rows out. SourceError for a body that does not fit, if that is an error.
    """
    if reader is None:
        return pa.RecordBatch.from_arrays([_values(rows, field, columns) for field in schema], schema=schema)
    bodies = rows.units.bodies()
    schema_ids = rows.units.properties.column(SCHEMA_ID) if reader.schema.is_named_by_property else None
    read = reader.read(bodies, lambda row: _place(rows, row), schema_ids)
    made = {"body": bodies, **read.columns}
    values = [made[field.name] if field.name in made else _values(rows, field, columns) for field in schema]
    batch = pa.RecordBatch.from_arrays(values, schema=schema)
    return batch if read.kept is None else batch.filter(read.kept)


def _place(rows: ColumnSource, row: int) -> str:
    """A message in the words of errors."""
    topic = rows.names.unwrap(rows.units.topics()[row].as_py())
    queue, offset = rows.units.field("queue_id")[row], rows.units.field("queue_offset")[row]
    return f"queue {queue} of topic {topic} on {rows.broker_name} at offset {offset}"


def _values(rows: ColumnSource, field: pa.Field, columns: Mapping[str, MessageColumn]) -> pa.Array:
    column = columns[field.name]
    if isinstance(column.type, MapType) and pa.types.is_string(field.type):
        return rows.units.properties_text()
    return column.values(rows)
