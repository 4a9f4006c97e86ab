"""The type of Arrow of a JSON Schema, as typed messages have it. Knows no Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from orbitmq.errors import SchemaIllegal
from orbitmq.schemas.json_schema import branches_of, parsed, resolved
from orbitmq.spark.cluster_options import bad_option

TYPES = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
}
FORMATS = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}


def arrow_type(text: str) -> pa.StructType:
    """The type of an object. SourceError for what no column can be: a choice of several types, an object without
    declared fields, or one inside itself."""
    try:
        root = parsed(text)
        kind = _type(root, root, "value", ())
    except SchemaIllegal as error:
        raise bad_option(f"option bodySchema: {error}") from error
    if not pa.types.is_struct(kind):
        raise bad_option("option bodySchema: use an object, whose fields become those of the column value")
    return kind


def _type(node: Any, root: Any, path: str, inside: tuple[int, ...]) -> pa.DataType:
    node = resolved(node, root)
    if not isinstance(node, dict):
        raise bad_option(f"option bodySchema: {path} may be anything, which is no column")
    if id(node) in inside:
        raise bad_option(f"option bodySchema: {path} holds itself, which no column can")
    inside = (*inside, id(node))
    branches = branches_of(node)
    if branches is not None:
        kinds = [one for one in branches if resolved(one, root) != {"type": "null"}]
        if len(kinds) != 1:
            raise bad_option(f"option bodySchema: {path} is a choice of {len(kinds)} types; one and null is a column")
        return _type(kinds[0], root, path, inside)
    given = node.get("type")
    names = [one for one in (given if isinstance(given, list) else [given]) if one != "null"]
    if len(names) != 1 or names[0] is None:
        if isinstance(node.get("enum"), list) and all(isinstance(one, str) for one in node["enum"]):
            return pa.string()
        raise bad_option(f"option bodySchema: {path} has no single type, which a column needs")
    if names[0] == "array":
        return pa.list_(_type(node.get("items", True), root, f"{path}[]", inside))
    if names[0] == "object":
        return _object(node, root, path, inside)
    return FORMATS.get(node.get("format", ""), TYPES[names[0]]) if names[0] == "string" else TYPES[names[0]]


def _object(node: Any, root: Any, path: str, inside: tuple[int, ...]) -> pa.DataType:
    fields = node.get("properties", {})
    others = node.get("additionalProperties")
    if fields:
        return pa.struct([(name, _type(each, root, f"{path}.{name}", inside)) for name, each in fields.items()])
    if isinstance(others, dict):
        return pa.map_(pa.string(), _type(others, root, f"{path}{{}}", inside))
    raise bad_option(f"option bodySchema: {path} declares no fields, which a column needs")
