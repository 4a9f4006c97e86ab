"""Bodies in Avro: schemas as types of Arrow, and data of exactly one schema, bare or with the fingerprint of the schema
before it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pyarrow as pa

from orbitmq.schemas.avro import datum_reader
from orbitmq.spark.bodies.parsed import Parse, ParsedBody, nothing
from orbitmq.spark.cluster_options import bad_option

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
}
DECIMAL = "decimal"
PRECISION_MAX = 38  # digits of a decimal of Spark
KEPT = frozenset(("name", "default", "aliases"))  # of a field, besides its type: what resolution needs
SINGLE_OBJECT = b"\xc3\x01"  # Avro's marker before the fingerprint of the schema


@cache
def parsed_schema(text: str) -> Any:
    """The schema with every name resolved. Logical types without a type of Arrow are read as their underlying type.
    SourceError if it is invalid."""
    try:
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError as error:
        raise bad_option(f"bodies in Avro need a library: pip install 'orbitmq[avro]' ({error})") from error
    try:
        return fastavro.parse_schema(_plain(json.loads(text)))
    except (ValueError, TypeError, KeyError, RecursionError, SchemaParseException, UnknownType) as error:
        raise bad_option(f"option bodySchema is no schema of Avro: {type(error).__name__} {error}") from error


def _plain(schema: Any) -> Any:
    """The schema without the logical types for which the library has objects of Python that no column can have."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("logicalType")
    is_known = kind in LOGICAL or (kind == DECIMAL and schema.get("precision", 0) <= PRECISION_MAX)
    return {
        name: each if name == "default" else _plain(each)
        for name, each in schema.items()
        if name != "logicalType" or is_known
    }


def arrow_type(schema: Any) -> pa.DataType:
    """The type of values of a parsed schema. SourceError for what no column can be: a union of several types, or a
    record inside itself."""
    return _type(schema, {}, ())


def _type(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> pa.DataType:
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        if len(kinds) != 1:
            raise bad_option(f"option bodySchema: a union of {len(kinds)} types is no column; one and null is")
        return _type(kinds[0], named, inside)
    if isinstance(schema, str):
        if schema in PRIMITIVES:
            return PRIMITIVES[schema]
        if schema in inside:
            raise bad_option(f"option bodySchema: {schema} holds itself, which no column can")
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
    if schema.get("logicalType") == DECIMAL:
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    return LOGICAL.get(schema.get("logicalType", ""), PRIMITIVES.get(kind)) or _type(kind, named, inside)


def avro_parser(text: str, wanted: pa.StructType, writer: str | None = None) -> Parse:
    """Parses a datum of exactly this schema, or of the schema `writer`, which is resolved. Fields that are not `wanted`
    are skipped."""
    own = parsed_schema(text)  # which says what to install
    import fastavro
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    written = own if writer is None or writer == text else parsed_schema(writer)
    read_as = None if written is own else own
    if len(wanted) < len(own["fields"]):
        read_as = fastavro.parse_schema(_narrowed(own, wanted))
    read = datum_reader(written)
    known = SINGLE_OBJECT + bytes.fromhex(fingerprint(to_parsing_canonical_form(written), "CRC-64-AVRO"))[::-1]

    def parse(body: bytes) -> ParsedBody:
        data = io.BytesIO(body.removeprefix(known))
        try:
            value = read(data, written, read_as)
        except Exception as error:  # the library's errors for bytes of another schema have no common base
            return nothing(body, f"{type(error).__name__}: {error}")
        rest = len(data.getbuffer()) - data.tell()
        return nothing(body, f"{rest} bytes too many") if rest else ParsedBody(value)

    return parse


def _narrowed(schema: Any, wanted: pa.StructType) -> Any:
    """A record with the wanted fields only. Types whose definition goes with another field are defined anew."""
    named: dict[str, Any] = {}
    _collect(schema, named)
    defined: set[str] = set()
    fields = [field for field in schema["fields"] if wanted.get_field_index(field["name"]) >= 0]
    narrow = [
        {key: each for key, each in field.items() if key in KEPT} | {"type": _whole(field["type"], named, defined)}
        for field in fields
    ]
    aliases = {"aliases": schema["aliases"]} if "aliases" in schema else {}
    return {"type": "record", "name": schema["name"], "fields": narrow, **aliases}


def _collect(schema: Any, named: dict[str, Any]) -> None:
    for each in schema if isinstance(schema, list) else [schema]:
        if isinstance(each, list):
            _collect(each, named)
        elif isinstance(each, dict):
            if "name" in each and "type" in each and each["type"] in {"record", "enum", "fixed"}:
                named[each["name"]] = each
            for part in ("type", "items", "values"):
                if isinstance(each.get(part), dict | list):
                    _collect(each[part], named)
            for field in each.get("fields", ()):
                _collect(field["type"], named)


def _whole(schema: Any, named: Mapping[str, Any], defined: set[str]) -> Any:
    """The schema with a definition at the first use of each name."""
    if isinstance(schema, list):
        return [_whole(each, named, defined) for each in schema]
    if isinstance(schema, str):
        return schema if schema in defined or schema not in named else _whole(named[schema], named, defined)
    if schema.get("name") in named:
        defined.add(schema["name"])
    kept = {name: each for name, each in schema.items() if not name.startswith("__")}  # the library's own marks
    for part in ("type", "items", "values"):
        if part in kept:
            kept[part] = _whole(kept[part], named, defined)
    if "fields" in kept:
        kept["fields"] = [{**field, "type": _whole(field["type"], named, defined)} for field in kept["fields"]]
    return kept


def avro_writer(text: str) -> Callable[[dict[str, Any]], bytes]:
    """Encodes a value as a bare datum. ValueError, TypeError and others for what the schema does not allow."""
    schema = parsed_schema(text)
    import fastavro

    def write(value: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, value)
        return out.getvalue()

    return write
