"""The columns `value` and `_rescued` of reads, and a struct column `value` of writes: their types of Spark, checked
against the schema of the bodies. Runs on the driver; knows no brokers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType

from orbitmq.errors import SourceError
from orbitmq.spark.bodies.ddl import PLAIN
from orbitmq.spark.bodies.json_text import FIELDS_MAX, inferred_type
from orbitmq.spark.bodies.options import JSON, RAW, BodyFormat, BodyOptions
from orbitmq.spark.bodies.reader import RESCUED, VALUE, BodyReader
from orbitmq.spark.bodies.schema import BodySchema, body_schema
from orbitmq.spark.bodies.writer import BodyWriter
from orbitmq.spark.cluster_options import bad_option
from orbitmq.spark.versions import arrow_type

KINDS = frozenset(PLAIN.values())
UNSIGNED_64 = pa.decimal128(20, 0)  # the type of whole numbers of Protobuf without a sign
AS_TEXT = "or read the bodies as bytes and use from_json"


def value_type(options: BodyFormat, sample: Callable[[], Sequence[bytes]]) -> StructType | None:
    """The type of column `value`; None for raw bodies. Without a schema that of a `sample` of JSON bodies.

    SourceError for a schema that cannot be read, and when the sample has no JSON object or more than 1000 fields.
    """
    schema = body_schema(options)
    if options.body_format == RAW:
        return None
    return _spark_type(_inferred(sample()) if schema is None else schema.type)


def _inferred(bodies: Sequence[bytes]) -> pa.StructType:
    try:
        kind = inferred_type(bodies)
    except ValueError as error:
        text = f"{error}, more than {FIELDS_MAX}: names are values there; set it, with a map for them, {AS_TEXT}"
        raise bad_option(f"option bodySchema is missing, and {text}") from error
    if kind is None:
        text = (
            f"option bodySchema is missing, and none of the {len(bodies)} newest messages is a JSON object with fields"
        )
        raise bad_option(f"{text} to infer it from; set it, {AS_TEXT}")
    return kind


def _spark_type(kind: pa.StructType) -> StructType:
    found = from_arrow_type(kind)
    assert isinstance(found, StructType), "the type of a struct"
    return found


def body_fields(options: BodyFormat) -> list[StructField]:
    """Both columns by the schema of the options; none for raw bodies."""
    value = value_type(options, list)
    return [] if value is None else [StructField(VALUE, value), StructField(RESCUED, StringType())]


def without_bodies(options: BodyFormat, schema: StructType) -> StructType:
    """The schema of a read without the columns that are made of bodies."""
    if options.body_format == RAW:
        return schema
    return StructType([field for field in schema if field.name not in {VALUE, RESCUED}])


def body_reader(options: BodyOptions, schema: StructType) -> BodyReader | None:
    """What parses the bodies of a read; None when it has no such column. In JSON the type of `value` is the schema of
    the bodies if no other is given. SourceError for a type that the bodies do not have."""
    declared = body_schema(options)
    if options.body_format == RAW or not {VALUE, RESCUED} & set(schema.names):
        return None
    if RESCUED in schema.names and schema[RESCUED] != StructField(RESCUED, StringType()):
        raise _bad_schema(f"column {RESCUED} is string, nullable")
    wanted = _arrow_type(schema[VALUE].dataType) if VALUE in schema.names else pa.struct([])
    if declared is None:
        if VALUE not in schema.names:
            raise _bad_schema(f"column {RESCUED} needs column {VALUE}, or option bodySchema: what fits is not rescued")
        declared = BodySchema(JSON, wanted)
    elif VALUE not in schema.names:
        wanted = declared.type  # all of it is tried, as what does not fit is wanted
    _require_part(wanted, declared.type, VALUE)
    if VALUE in schema.names and not schema[VALUE].nullable:
        raise _bad_schema(f"column {VALUE} is nullable")
    return BodyReader(declared, wanted, options.body_mode, rescues=RESCUED in schema.names)


def body_writer(options: BodyFormat, kind: DataType) -> BodyWriter | None:
    """What encodes a column of this type; None for bytes. SourceError for fields that the schema does not have."""
    schema = body_schema(options)
    if options.body_format == RAW:
        return None
    if not isinstance(kind, StructType):
        raise _bad_schema(
            f"column {VALUE} is {kind.simpleString()}; with bodyFormat it is a struct of the body's fields"
        )
    if schema is not None:
        _require_fits(_arrow_type(kind), schema.type, VALUE)
    return BodyWriter(options.body_format, schema)


def _arrow_type(kind: DataType) -> pa.StructType:
    if not isinstance(kind, StructType):
        raise _bad_schema(f"column {VALUE} is a struct, not {kind.simpleString()}")
    return arrow_type(kind)


def require_part(wanted: DataType, known: DataType, path: str) -> None:
    """SourceError unless a type is another one, except for fields of structs that it leaves out."""
    _require_part(arrow_type(wanted), arrow_type(known), path)


def _require_part(wanted: pa.DataType, known: pa.DataType, path: str) -> None:
    """SourceError unless a type is that of the schema, except for fields that it leaves out."""
    if pa.types.is_struct(wanted) and pa.types.is_struct(known):
        if not len(wanted) or len({each.name for each in wanted}) < len(wanted):
            raise _bad_schema(f"column {path} has no fields, or one twice")
        for each in wanted:
            _require_field(each, path)
            _require_nullable(each, f"{path}.{each.name}")
            _require_part(each.type, _field(known, each.name, path), f"{path}.{each.name}")
    elif pa.types.is_list(wanted) and pa.types.is_list(known):
        _require_nullable(wanted.value_field, path)
        _require_part(wanted.value_type, known.value_type, f"{path}[]")
    elif pa.types.is_map(wanted) and pa.types.is_map(known) and wanted.key_type == known.key_type == pa.string():
        _require_nullable(wanted.item_field, path)
        _require_part(wanted.item_type, known.item_type, f"{path}{{}}")
    elif wanted != known:
        raise _bad_schema(f"column {path} is {_sql(known)}, not {_sql(wanted)}; cast it after the read")
    elif wanted not in KINDS and not pa.types.is_decimal(wanted):
        raise _bad_schema(f"column {path} cannot be {_sql(wanted)}; bodies have {', '.join(PLAIN)} and decimal")


def _require_field(field: pa.Field, path: str) -> None:
    if not field.name:
        raise _bad_schema(f"column {path} has a field without a name")


def _require_nullable(field: pa.Field, path: str) -> None:
    if not field.nullable:
        raise _bad_schema(f"column {path} is nullable, like all that bodies have")


def _require_fits(given: pa.DataType, known: pa.DataType, path: str) -> None:
    """SourceError when a column has fields that the schema of the bodies does not have, which would be lost, or values
    that may not fit there."""
    if pa.types.is_struct(given) and pa.types.is_struct(known):
        for each in given:
            _require_fits(each.type, _field(known, each.name, path), f"{path}.{each.name}")
    elif pa.types.is_list(given) and pa.types.is_list(known):
        _require_fits(given.value_type, known.value_type, f"{path}[]")
    elif pa.types.is_map(given) and pa.types.is_map(known) and given.key_type == known.key_type:
        _require_fits(given.item_type, known.item_type, f"{path}{{}}")
    elif not _holds(known, given):
        raise _bad_schema(f"column {path} is {_sql(given)}, but {_sql(known)} by bodySchema; cast it")


def _holds(known: pa.DataType, given: pa.DataType) -> bool:
    """Whether a type has all values of another."""
    if pa.types.is_integer(given):
        return bool(pa.types.is_integer(known) and known.bit_width >= given.bit_width) or bool(known == UNSIGNED_64)
    if pa.types.is_floating(given):
        return bool(pa.types.is_floating(known) and known.bit_width >= given.bit_width)
    if pa.types.is_decimal(given) and pa.types.is_decimal(known):
        return bool(known.scale == given.scale and known.precision >= given.precision)
    return bool(known == given)


def _field(kind: pa.StructType, name: str, path: str) -> pa.DataType:
    if kind.get_field_index(name) < 0:
        names = ", ".join(each.name for each in kind)
        raise _bad_schema(f"column {path} has no field {name} by bodySchema; the fields are {names}")
    return kind.field(name).type


def _sql(kind: pa.DataType) -> str:
    return from_arrow_type(kind).simpleString()


def _bad_schema(text: str) -> SourceError:
    return SourceError("ORBITMQ_BAD_SCHEMA", text)
