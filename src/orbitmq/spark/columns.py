"""The columns a topic is read as: one table of names, Spark types and how each is made from message units.

Which of them a read has is decided by the user's schema, else by `columns`, else by the default set. Python data
sources get no column pruning from Spark, so what is not named here is not decoded. Must not know brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    StructField,
    StructType,
    TimestampType,
)

from orbitmq.errors import SourceError
from orbitmq.message.properties import KEYS, TAGS, UNIQ_KEY
from orbitmq.spark.units import Units

PROPERTIES = "properties"
PROPERTIES_TYPES: dict[str, DataType] = {"map": MapType(StringType(), StringType()), "string": StringType()}


class Rows(NamedTuple):
    """What a column is made from: a run of units of one broker, and whether bodies are unpacked."""

    units: Units
    broker_name: str
    decompress: bool


class Column(NamedTuple):
    """One column: its type in Spark and its values."""

    type: DataType
    values: Callable[[Rows], pa.Array]


def _number(field: str) -> Callable[[Rows], pa.Array]:
    return lambda rows: pa.array(rows.units.field(field))


def _timestamp(field: str) -> Callable[[Rows], pa.Array]:
    return lambda rows: pa.array(rows.units.field(field) * 1000).view(pa.timestamp("us", tz="UTC"))


def _properties(rows: Rows) -> pa.Array:
    return rows.units.properties.maps()


def _property(name: str) -> Callable[[Rows], pa.Array]:
    return lambda rows: rows.units.properties.column(name)


def _message_ids(rows: Rows) -> pa.Array:
    """The producer's unique id, else the offset id, as consumers report it."""
    unique = rows.units.properties.column(UNIQ_KEY)
    return pc.coalesce(unique, rows.units.offset_ids()) if unique.null_count else unique


COLUMNS: dict[str, Column] = {
    "topic": Column(StringType(), lambda rows: rows.units.topics()),
    "brokerName": Column(StringType(), lambda rows: pa.repeat(rows.broker_name, len(rows.units))),
    "queueId": Column(IntegerType(), _number("queue_id")),
    "queueOffset": Column(LongType(), _number("queue_offset")),
    "msgId": Column(StringType(), _message_ids),
    "tags": Column(StringType(), _property(TAGS)),
    "keys": Column(StringType(), _property(KEYS)),
    "body": Column(BinaryType(), lambda rows: rows.units.bodies() if rows.decompress else rows.units.stored_bodies()),
    PROPERTIES: Column(PROPERTIES_TYPES["map"], _properties),
    "bornTimestamp": Column(TimestampType(), _timestamp("born_timestamp")),
    "storeTimestamp": Column(TimestampType(), _timestamp("store_timestamp")),
    "bornHost": Column(StringType(), lambda rows: rows.units.born_hosts),
    "storeHost": Column(StringType(), lambda rows: rows.units.store_hosts),
    "reconsumeTimes": Column(IntegerType(), _number("reconsume_times")),
    "sysFlag": Column(IntegerType(), _number("sys_flag")),
    "flag": Column(IntegerType(), _number("flag")),
    "bodyCrc": Column(IntegerType(), _number("body_crc")),
    "physOffset": Column(LongType(), _number("physical_offset")),
    "preparedTransactionOffset": Column(LongType(), _number("prepared_transaction_offset")),
    "offsetMsgId": Column(StringType(), lambda rows: rows.units.offset_ids()),
}
DEFAULT_COLUMNS = tuple(COLUMNS)[: tuple(COLUMNS).index("bornHost") + 1]


def read_schema(names: Sequence[str], properties: str) -> StructType:
    """The schema of a read whose user gave none.

    `names` are the columns wanted, empty for the default ones; `properties` is `map`, `string` or `none`.
    SourceError names a column that is unknown, repeated or excluded.
    """
    wanted = tuple(names) or tuple(name for name in DEFAULT_COLUMNS if name != PROPERTIES or properties != "none")
    unknown = [name for name in wanted if name not in COLUMNS]
    if unknown:
        raise SourceError("ORBITMQ_BAD_OPTION", f"option columns: {_no_such_columns(unknown)}")
    if len(set(wanted)) < len(wanted):
        raise SourceError("ORBITMQ_BAD_OPTION", "option columns: a column is named twice")
    if PROPERTIES in wanted and properties == "none":
        raise SourceError("ORBITMQ_BAD_OPTION", "option columns names properties, but includeProperties is none")
    types = {name: column.type for name, column in COLUMNS.items()}
    types[PROPERTIES] = PROPERTIES_TYPES.get(properties, types[PROPERTIES])
    return StructType([StructField(name, types[name]) for name in wanted])


def check_schema(schema: StructType) -> None:
    """SourceError unless every column of a user's schema is one of COLUMNS, of its type and nullable."""
    unknown = [field.name for field in schema if field.name not in COLUMNS]
    if unknown:
        raise SourceError("ORBITMQ_BAD_SCHEMA", _no_such_columns(unknown))
    for field in schema:
        allowed = PROPERTIES_TYPES.values() if field.name == PROPERTIES else (COLUMNS[field.name].type,)
        if field.dataType not in allowed or not field.nullable:
            types = " or ".join(type_.simpleString() for type_ in allowed)
            raise SourceError("ORBITMQ_BAD_SCHEMA", f"column {field.name} is {types}, nullable; cast it after the read")


def _no_such_columns(names: Sequence[str]) -> str:
    return f"no column {', '.join(names)}; there are {', '.join(COLUMNS)}"


def record_batch(rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
    """The rows as one batch of exactly `schema`, which is the Arrow form of a read's schema."""
    return pa.RecordBatch.from_arrays([_values(rows, field) for field in schema], schema=schema)


def _values(rows: Rows, field: pa.Field) -> pa.Array:
    if field.name == PROPERTIES and pa.types.is_string(field.type):
        return rows.units.properties_text()
    return COLUMNS[field.name].values(rows)
