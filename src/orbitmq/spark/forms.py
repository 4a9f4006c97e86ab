"""The forms of a topic: the columns of orbitmq, of Spark's Kafka source, and of the connector rocketmq-spark. Each is
a table like `orbitmq.spark.columns.COLUMNS`. Knows no brokers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from orbitmq.errors import SourceError
from orbitmq.message.properties import KEYS
from orbitmq.spark.bodies.reader import RESCUED, VALUE
from orbitmq.spark.cluster_options import bad_option
from orbitmq.spark.columns import COLUMNS, DEFAULT_COLUMNS, PROPERTIES, PROPERTIES_TYPES, ColumnSource, MessageColumn
from orbitmq.spark.damage import CORRUPT
from orbitmq.spark.row_options import RowOptions
from orbitmq.spark.versions import arrow_type

NATIVE = "native"
HEADERS = "headers"
HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
STORED = 1  # `timestampType` of Kafka for the time at which the broker stored a message; 0 would be the producer's


def _first_keys(rows: ColumnSource) -> pa.Array:
    """The first key of each message, as messages of Kafka have only one."""
    keys = rows.units.properties.column(KEYS)
    return pc.list_element(pc.split_pattern(keys, " "), 0).cast(pa.binary())


def _headers(rows: ColumnSource) -> pa.Array:
    maps = rows.units.properties.maps()
    type_ = arrow_type(HEADERS_TYPE)
    pairs = pa.StructArray.from_arrays([maps.keys, maps.items.cast(pa.binary())], fields=list(type_.value_type))
    return pa.ListArray.from_arrays(maps.offsets, pairs, type=type_)


def _json_properties(rows: ColumnSource) -> pa.Array:
    maps = rows.units.properties.maps().to_pylist()
    return pa.array([json.dumps(dict(pairs), ensure_ascii=False) for pairs in maps], pa.string())


KAFKA: dict[str, MessageColumn] = {
    "key": MessageColumn(BinaryType(), _first_keys),
    "value": COLUMNS["body"],
    "topic": COLUMNS["topic"],
    "partition": COLUMNS["queueId"],
    "offset": COLUMNS["queueOffset"],
    "timestamp": COLUMNS["storeTimestamp"],
    "timestampType": MessageColumn(
        IntegerType(), lambda rows: pa.repeat(pa.scalar(STORED, pa.int32()), len(rows.units))
    ),
    HEADERS: MessageColumn(HEADERS_TYPE, _headers),
    "brokerName": COLUMNS["brokerName"],
}
ROCKETMQ_SPARK: dict[str, MessageColumn] = {
    "topic": COLUMNS["topic"],
    "flag": COLUMNS["flag"],
    "body": COLUMNS["body"],
    PROPERTIES: MessageColumn(StringType(), _json_properties),
    "brokerName": COLUMNS["brokerName"],
    "queueId": COLUMNS["queueId"],
    "queueOffset": COLUMNS["queueOffset"],
    "bornTimestamp": COLUMNS["bornTimestamp"],
    "storeTimestamp": COLUMNS["storeTimestamp"],
}
TOPIC_COLUMNS: dict[str, MessageColumn] = {
    **COLUMNS,
    CORRUPT: MessageColumn(StringType(), lambda rows: pa.nulls(len(rows.units), pa.string())),
}
FORMS: dict[str, Mapping[str, MessageColumn]] = {
    NATIVE: TOPIC_COLUMNS,
    "kafka": KAFKA,
    "rocketmq-spark": ROCKETMQ_SPARK,
}
BODIES = frozenset(("body", VALUE, RESCUED))


def schema_read(options: RowOptions, form: str = NATIVE, value: StructType | None = None) -> StructType:
    """The schema of a read without a user's schema; `value` is the type of parsed bodies. SourceError names the invalid
    option."""
    with_corrupt = options.on_corrupt_record == "raw"
    return read_schema(options.column_names, options.include_properties, form, value, with_corrupt=with_corrupt)


def require_corrupt(schema: StructType, options: RowOptions) -> None:
    """SourceError when damaged messages become rows, but no column marks them."""
    if options.on_corrupt_record == "raw" and CORRUPT not in schema.names:
        raise bad_option(f"option onCorruptRecord: raw needs the column {CORRUPT}, which marks such rows")


def read_schema(
    names: Sequence[str],
    properties: str,
    form: str = NATIVE,
    value: StructType | None = None,
    *,
    with_corrupt: bool = False,
) -> StructType:
    """The schema of a read without a user's schema.

    `names` are the selected columns, empty for the default ones, where parsed bodies replace `body`; `properties` is
    `map`, `string` or `none`. SourceError names a column that is unknown, repeated or excluded.
    """
    columns = FORMS[form]
    types = {name: column.type for name, column in columns.items()}
    default = (*DEFAULT_COLUMNS, *((CORRUPT,) if with_corrupt else ())) if form == NATIVE else tuple(columns)
    if value is not None:
        types |= {VALUE: value, RESCUED: StringType()}
        default = tuple(each for name in default for each in ((VALUE, RESCUED) if name == "body" else (name,)))
    left_out = {PROPERTIES, HEADERS} if properties == "none" else set()
    wanted = tuple(names) or tuple(name for name in default if name not in left_out)
    if unknown := [name for name in wanted if name not in types]:
        raise bad_option(f"option columns: {_no_such_columns(unknown, types)}")
    if len(set(wanted)) < len(wanted):
        raise bad_option("option columns: a column occurs twice")
    if excluded := sorted(left_out & set(wanted)):
        raise bad_option(f"option columns has {excluded[0]}, but includeProperties is none")
    if form == NATIVE:
        types[PROPERTIES] = PROPERTIES_TYPES.get(properties, types[PROPERTIES])
    return StructType([StructField(name, types[name]) for name in wanted])


def check_schema(schema: StructType, form: str = NATIVE) -> None:
    """SourceError unless every column of a user's schema is one of the form's, of its type and nullable."""
    columns = FORMS[form]
    if unknown := [field.name for field in schema if field.name not in columns]:
        raise SourceError("ORBITMQ_BAD_SCHEMA", _no_such_columns(unknown, columns))
    for field in schema:
        allowed = _types(field.name, columns[field.name].type)
        if field.dataType not in allowed or not field.nullable:
            types = " or ".join(type_.simpleString() for type_ in allowed)
            raise SourceError("ORBITMQ_BAD_SCHEMA", f"column {field.name} is {types}, nullable; cast it after the read")


def _types(name: str, type_: DataType) -> Sequence[DataType]:
    is_native = name == PROPERTIES and isinstance(type_, MapType)
    return tuple(PROPERTIES_TYPES.values()) if is_native else (type_,)


def _no_such_columns(names: Sequence[str], columns: Iterable[str]) -> str:
    return f"no column {', '.join(names)}; the columns are {', '.join(columns)}"
