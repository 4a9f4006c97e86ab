"""Schemas of Avro as types of Arrow. Reading bodies is elsewhere."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pyarrow as pa

from orbitmq.errors import ConfigurationError

PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),  # Delta has no other unit
    "timestamp-micros": pa.timestamp("us", "UTC"),
}  # logical types read as their underlying type, except decimal


@cache
def parsed_schema(text: str) -> Any:
    """The schema with every name resolved. ConfigurationError if it is invalid."""
    try:
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError as error:
        raise ConfigurationError(f"bodies as columns need a library: pip install 'orbitmq[avro]' ({error})") from error
    try:
        return fastavro.parse_schema(json.loads(text))
    except (ValueError, TypeError, KeyError, SchemaParseException, UnknownType) as error:
        raise ConfigurationError(f"option bodySchema is no schema of Avro: {type(error).__name__} {error}") from error


def arrow_type(schema: Any) -> pa.DataType:
    """The type of values of a parsed schema. ConfigurationError for what no column can be: a union of several types, or
    a record inside itself."""
    return _type(schema, {}, ())


def _type(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> pa.DataType:
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        if len(kinds) != 1:
            raise ConfigurationError(f"option bodySchema: a union of {len(kinds)} types is no column; one and null is")
        return _type(kinds[0], named, inside)
    if isinstance(schema, str):
        if schema in PRIMITIVES:
            return PRIMITIVES[schema]
        if schema in inside:
            raise ConfigurationError(f"option bodySchema: {schema} holds itself, which no column can")
        return _type(named[schema], named, inside)
    if "name" in schema:
        named[schema["name"]] = schema
    kind = schema["type"]
    if kind == "record":
        names = (*inside, schema["name"])
        return pa.struct([(field["name"], _type(field["type"], named, names)) for field in schema["fields"]])
    if kind == "array":
        return pa.list_(_type(schema["items"], named, inside))
    if kind == "map":
        return pa.map_(pa.string(), _type(schema["values"], named, inside))
    if schema.get("logicalType") == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    return LOGICAL.get(schema.get("logicalType", ""), PRIMITIVES.get(kind)) or _type(kind, named, inside)
