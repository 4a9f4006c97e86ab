"""A JSON Schema is a struct of columns, or refused with the path of what is no column."""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pytest

from orbitmq.errors import SourceError
from orbitmq.spark.bodies.json_schema import arrow_type


class Line(msgspec.Struct):
    item: str
    count: int | None = None


class Order(msgspec.Struct):
    id: int
    price: float
    paid: bool
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    day: date
    lines: list[Line]
    labels: dict[str, str]
    note: str | None = None


class Tree(msgspec.Struct):
    children: list[Tree]


def test_the_fields_of_a_type_are_columns() -> None:
    assert arrow_type(json.dumps(msgspec.json.schema(Order))) == pa.struct(
        [
            ("id", pa.int64()),
            ("price", pa.float64()),
            ("paid", pa.bool_()),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("lines", pa.list_(pa.struct([("item", pa.string()), ("count", pa.int64())]))),
            ("labels", pa.map_(pa.string(), pa.string())),
            ("note", pa.string()),
        ]
    )


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string"}, "use an object"),
        ({"type": "object"}, "value declares no fields"),
        ({"type": "object", "properties": {"a": {}}}, "value.a has no single type"),
        ({"type": "object", "properties": {"a": True}}, "value.a may be anything"),
        ({"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}, "value.a has no single type"),
        ({"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}, "2 types"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}, "leads nowhere"),
        (msgspec.json.schema(Tree), "holds itself"),
    ],
)
def test_what_is_no_column_is_named(schema: dict[str, Any], text: str) -> None:
    with pytest.raises(SourceError, match="ORBITMQ_BAD_OPTION") as caught:
        arrow_type(json.dumps(schema))
    assert text in str(caught.value)


def test_an_enumeration_of_texts_is_a_text() -> None:
    schema = {"type": "object", "properties": {"state": {"enum": ["new", "paid"]}}}
    assert arrow_type(json.dumps(schema)) == pa.struct([("state", pa.string())])
