"""The columns of a write: a table of names, aliases and types, and conversions to Arrow arrays.

Frames read with this package or with Spark's Kafka source can be written unchanged: their columns about the origin of a
message are ignored. Knows no brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from orbitmq.errors import SourceError
from orbitmq.spark.bodies.options import RAW, BodyFormat
from orbitmq.spark.bodies.reader import RESCUED
from orbitmq.spark.bodies.writer import BodyWriter
from orbitmq.spark.body_columns import body_writer

TEXT = (StringType, BinaryType)
NUMBER = (ByteType, ShortType, IntegerType, LongType)
BYTES = BodyFormat()


@dataclass(frozen=True)
class SinkColumn:
    """A column: its Spark types, its description and its alias."""

    types: tuple[type[DataType], ...]
    text: str
    alias: str = ""


SINK_COLUMNS: dict[str, SinkColumn] = {
    "body": SinkColumn(
        TEXT, "Body of the message. Required; neither null nor empty. With bodyFormat a struct of its fields.", "value"
    ),
    "topic": SinkColumn(TEXT, "Topic, unless the option `topic` sets one for all messages."),
    "keys": SinkColumn((*TEXT, ArrayType), "Keys: a string with spaces between them, or an array.", "key"),
    "tags": SinkColumn(TEXT, "Tag."),
    "properties": SinkColumn(
        (MapType, ArrayType),
        "Other properties: a map, or an array of structs of a name and a value. Reserved names are ignored, except "
        "KEYS and TAGS when there is no such column.",
        "headers",
    ),
    "flag": SinkColumn(NUMBER, "Flag, a number for the application. Default: 0."),
    "delayLevel": SinkColumn(NUMBER, "Delay level. 0 and null deliver at once."),
    "deliverTime": SinkColumn(
        (TimestampType, *NUMBER),
        "Delivery time, a timestamp or ms since 1970, for brokers of RocketMQ 5. Others deliver at once.",
    ),
    "expiryTime": SinkColumn(
        (TimestampType, *NUMBER),
        "When consumers of orbitmq skip the message, a timestamp or ms since 1970; the property EXPIRES_AT_MS.",
    ),
    "shardingKey": SinkColumn(
        TEXT, "With queueSelector=keyHash: rows with equal values go to one queue, in their order."
    ),
    "queueKey": SinkColumn(
        TEXT, "With queueSelector=keyHash: places rows instead of shardingKey, and is no part of the message."
    ),
    "queueId": SinkColumn(NUMBER, "With queueSelector=fixed: id of the queue."),
    "brokerName": SinkColumn(TEXT, "With queueSelector=fixed: its broker. Optional with a single broker."),
    "queueOffset": SinkColumn(NUMBER, "With topic, brokerName and queueId: where the message was read."),
    "bornTimestamp": SinkColumn(
        (TimestampType, *NUMBER), "Creation time. Kept with sendMode=single, otherwise replaced by the time of sending."
    ),
    "idempotencyKey": SinkColumn(
        TEXT, "Identity of the message, unique in its topic, for deliveryGuarantee=effectively-once."
    ),
}
ALIASES = {column.alias: name for name, column in SINK_COLUMNS.items() if column.alias}
# Columns of reads about the origin of a message, which a write ignores.
LET_THROUGH = frozenset(
    {
        "msgId", "storeTimestamp", "bornHost", "storeHost", "reconsumeTimes", "sysFlag", "bodyCrc", "physOffset",
        "preparedTransactionOffset", "offsetMsgId", "partition", "offset", "timestamp", "timestampType",
    }
)  # fmt: skip


@dataclass(frozen=True)
class SinkColumns:
    """The position of each column in a frame."""

    places: dict[str, int]
    bodies: BodyWriter | None = None
    """What encodes the body, for a frame that has it as a struct."""

    def __contains__(self, name: object) -> bool:
        return name in self.places

    def encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with bodies as bytes. SourceError for one that cannot be encoded."""
        if self.bodies is None:
            return batch
        place = self.places["body"]
        return batch.set_column(place, batch.schema.names[place], self.bodies.encode(batch.column(place)))

    def text(self, batch: pa.RecordBatch, name: str) -> pa.StringArray | None:
        """A column of texts, None when the frame has none."""
        return None if name not in self.places else as_text(name, batch.column(self.places[name]))

    def body(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """The bodies; SourceError when one is null or empty."""
        body = batch.column(self.places["body"])
        body = _narrow(body).cast(pa.binary()) if not pa.types.is_binary(body.type) else body
        if body.null_count or (len(body) and pc.min(pc.binary_length(body)).as_py() == 0):
            place = pc.index(pc.fill_null(pc.equal(pc.binary_length(body), 0), True), True).as_py()
            raise bad_row(f"row {place} of a batch of {len(body)} has no body, which brokers reject; filter such rows")
        return body

    def keys(self, batch: pa.RecordBatch) -> pa.StringArray | None:
        """The keys of each row as one text."""
        if "keys" not in self.places:
            return None
        keys = batch.column(self.places["keys"])
        if pa.types.is_list(keys.type):
            keys = pc.binary_join(keys.cast(pa.list_(pa.string())), " ")
        return as_text("keys", keys)

    def numbers(self, batch: pa.RecordBatch, name: str) -> pa.Int64Array | None:
        """A column of numbers, times as ms since 1970; null stays null."""
        if name not in self.places:
            return None
        values = batch.column(self.places[name])
        if pa.types.is_timestamp(values.type):
            return values.cast(pa.timestamp("ms", values.type.tz), safe=False).view(pa.int64())
        return values.cast(pa.int64())

    def pairs(self, batch: pa.RecordBatch) -> tuple[pa.Int32Array, pa.StringArray, pa.StringArray] | None:
        """The properties of all rows one after another: how many each row has, their names and values."""
        if "properties" not in self.places:
            return None
        listed = batch.column(self.places["properties"])
        if pa.types.is_map(listed.type):
            listed = listed.cast(pa.list_(pa.struct([listed.type.key_field, listed.type.item_field])))
        counts, flat = pc.fill_null(pc.list_value_length(listed), 0), pc.list_flatten(listed)
        names, values = flat.flatten()[:2]
        return counts, as_text("properties", names), as_text("properties", values)


def sink_columns(schema: StructType, *, topic_given: bool, bodies: BodyFormat = BYTES) -> SinkColumns:
    """The positions of the columns of a frame. SourceError for a column that is unknown, missing or of a wrong type."""
    encodes = bodies.body_format != RAW
    places: dict[str, int] = {}
    for place, field in enumerate(schema):
        name = ALIASES.get(field.name, field.name)
        if name in LET_THROUGH:
            continue
        if name == RESCUED:
            raise _bad_schema(
                f"column {RESCUED} cannot be written; what it has would be lost: drop it, or write `body`"
            )
        if name not in SINK_COLUMNS:
            raise _bad_schema(f"{_no_such_column(field.name)}; select the columns of the message")
        if name in places:
            raise _bad_schema(f"column {field.name} occurs twice: {name} and {SINK_COLUMNS[name].alias} are the same")
        if name != "body" or not encodes:
            _require_type(field.name, field.dataType, SINK_COLUMNS[name].types)
        places[name] = place
    if "body" not in places:
        raise _bad_schema("there is no column body (or value); add one, e.g. to_json(struct(*)) AS body")
    if "topic" not in places and not topic_given:
        raise _bad_schema("there is neither option topic nor a column topic")
    return SinkColumns(places, body_writer(bodies, schema[places["body"]].dataType))


def _require_type(name: str, found: DataType, allowed: Sequence[type[DataType]]) -> None:
    element = found.elementType if isinstance(found, ArrayType) else None
    pairs = isinstance(element, StructType) and len(element) == 2 and all(isinstance(f.dataType, TEXT) for f in element)
    ok = isinstance(found, tuple(allowed)) and (
        element is None or (pairs if MapType in allowed else isinstance(element, StringType))
    )
    if isinstance(found, MapType):
        ok = ok and isinstance(found.keyType, StringType) and isinstance(found.valueType, StringType)
    if name in {"body", "value"} and isinstance(found, StructType):
        raise _bad_schema(f"column {name} is a struct; set option bodyFormat, which says how to encode it")
    if not ok:
        names = ", ".join(kind.typeName() for kind in allowed)
        raise _bad_schema(f"column {name} is {found.simpleString()}; it may be {names} of texts; cast it")


def _no_such_column(name: str) -> str:
    known = ", ".join(f"{known} (or {c.alias})" if c.alias else known for known, c in SINK_COLUMNS.items())
    return f"a message has no {name}; the columns are {known}"


def as_text(name: str, values: pa.Array) -> pa.StringArray:
    """The values as UTF-8 strings. SourceError when bytes are not UTF-8."""
    try:
        return values if pa.types.is_string(values.type) else _narrow(values).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise bad_row(f"column {name}: {error}") from error


def _narrow(values: pa.Array) -> pa.Array:
    """Without the 64-bit offsets Spark may use."""
    if pa.types.is_large_string(values.type):
        return values.cast(pa.string())
    return values.cast(pa.binary()) if pa.types.is_large_binary(values.type) else values


def bad_row(text: str) -> SourceError:
    """The error for a row that cannot be a message."""
    return SourceError("ORBITMQ_BAD_ROW", text)


def _bad_schema(text: str) -> SourceError:
    return SourceError("ORBITMQ_BAD_SCHEMA", text)
