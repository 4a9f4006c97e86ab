"""The tables of a store directory: messages, consume queue entries, key index entries. Knows no files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from orbitmq.errors import SourceError
from orbitmq.message.properties import REAL_QID, REAL_TOPIC, TIMER_DEL_UNIQKEY
from orbitmq.message.topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.spark.cluster_options import bad_option
from orbitmq.spark.columns import PROPERTIES, PROPERTIES_TYPES, MessageColumn
from orbitmq.spark.forms import TOPIC_COLUMNS
from orbitmq.spark.units import Units

BODY = "body"
HIDING_TOPICS = pa.array([SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC])  # with messages for other topics

LOG_COLUMNS = TOPIC_COLUMNS
QUEUE_COLUMNS: dict[str, DataType] = {
    "topic": StringType(),
    "brokerName": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "physOffset": LongType(),
    "size": IntegerType(),
    "tagsCode": LongType(),
}
INDEX_COLUMNS: dict[str, DataType] = {
    "brokerName": StringType(),
    "indexFile": StringType(),
    "entry": IntegerType(),
    "keyHash": IntegerType(),
    "physOffset": LongType(),
    "storeTimestamp": TimestampType(),
    "previousEntry": IntegerType(),
}


def _hidden(units: Units) -> pa.BooleanArray:
    """Which are messages for other topics. The recall of a timer message names a topic, and is no message for it."""
    topics = units.topics()
    hidden = pc.is_in(topics, HIDING_TOPICS)
    if not pc.any(pc.equal(topics, TIMER_TOPIC)).as_py():
        return hidden
    return pc.and_(hidden, pc.is_null(units.properties.column(TIMER_DEL_UNIQKEY)))


def resolved_topics(units: Units) -> pa.StringArray:
    """Topics. A message that waits for its time, or a half message, has its real topic."""
    topics, hidden = units.topics(), _hidden(units)
    if not pc.any(hidden).as_py():
        return topics
    return pc.if_else(hidden, pc.coalesce(units.properties.column(REAL_TOPIC), topics), topics)


def resolved_queue_ids(units: Units) -> pa.Int32Array:
    """Queue ids. A message that waits for its time, or a half message, has its real queue."""
    queue_ids, hidden = pa.array(units.field("queue_id")), _hidden(units)
    if not pc.any(hidden).as_py():
        return queue_ids
    real = units.properties.column(REAL_QID)
    number = pc.if_else(pc.match_substring_regex(real, "^[0-9]{1,9}$"), real, pa.scalar(None, pa.string()))
    return pc.if_else(hidden, pc.coalesce(number.cast(pa.int32()), queue_ids), queue_ids)


RESOLVED: dict[str, MessageColumn] = {
    **LOG_COLUMNS,
    "topic": MessageColumn(StringType(), lambda rows: resolved_topics(rows.units)),
    "queueId": MessageColumn(IntegerType(), lambda rows: resolved_queue_ids(rows.units)),
}


def log_types(properties: str) -> dict[str, DataType]:
    """Types of the message columns, with the selected form of `properties`."""
    types = {name: column.type for name, column in LOG_COLUMNS.items()}
    return {**types, PROPERTIES: PROPERTIES_TYPES.get(properties, types[PROPERTIES])}


def schema_of(types: Mapping[str, DataType], names: Sequence[str]) -> StructType:
    """The schema with these columns. SourceError names a column that is unknown or repeated."""
    if unknown := [name for name in names if name not in types]:
        raise bad_option(f"option columns: no column {', '.join(unknown)}; the columns are {', '.join(types)}")
    if len(set(names)) < len(names):
        raise bad_option("option columns: a column occurs twice")
    return StructType([StructField(name, types[name]) for name in names])


def check_schema(schema: StructType, types: Mapping[str, DataType]) -> None:
    """SourceError unless every column of a user's schema is one of `types`, of its type and nullable."""
    for field in schema:
        allowed = PROPERTIES_TYPES.values() if field.name == PROPERTIES else [types.get(field.name)]
        if field.dataType in allowed and field.nullable:
            continue
        if field.name not in types:
            raise SourceError("ORBITMQ_BAD_SCHEMA", f"no column {field.name}; the columns are {', '.join(types)}")
        words = " or ".join(type_.simpleString() for type_ in allowed if type_)
        raise SourceError("ORBITMQ_BAD_SCHEMA", f"column {field.name} is {words}, nullable; cast it after the read")


def table_batch(values: Mapping[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of `schema` from these columns."""
    return pa.RecordBatch.from_arrays([values[field.name].cast(field.type) for field in schema], schema=schema)
