"""A column of structs is encoded as bodies that the reader reads back."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import SourceError
from orbitmq.spark.bodies.ddl import parse_ddl
from orbitmq.spark.bodies.options import AVRO, FAIL_FAST, JSON, BodyFormat
from orbitmq.spark.bodies.reader import BodyReader
from orbitmq.spark.bodies.schema import BodySchema, body_schema
from orbitmq.spark.bodies.writer import BodyWriter

DDL = """
id BIGINT, small TINYINT, price DOUBLE, name STRING, paid BOOLEAN, data BINARY, day DATE, at TIMESTAMP,
total DECIMAL(20,4), tags ARRAY<STRING>, more MAP<STRING, BIGINT>, address STRUCT<city: STRING, zip: INT>
"""
KIND = parse_ddl(DDL)
AVRO_KINDS: dict[str, Any] = {
    "id": "long", "small": "int", "price": "double", "name": "string", "paid": "boolean", "data": "bytes",
    "day": {"type": "int", "logicalType": "date"}, "at": {"type": "long", "logicalType": "timestamp-micros"},
    "total": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4},
    "tags": {"type": "array", "items": ["null", "string"]}, "more": {"type": "map", "values": ["null", "long"]},
    "address": {"type": "record", "name": "A", "fields": [{"name": "city", "type": ["null", "string"]},
                                                        {"name": "zip", "type": ["null", "int"]}]},
}  # fmt: skip
AVRO_SCHEMA = json.dumps(
    {"type": "record", "name": "R", "fields": [{"name": n, "type": ["null", t]} for n, t in AVRO_KINDS.items()]}
)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = st.fixed_dictionaries(
    {
        name: st.none() | values
        for name, values in {
            "id": INT64, "small": st.integers(-128, 127), "price": st.floats(allow_nan=False, allow_infinity=False),
            "name": st.text(), "paid": st.booleans(), "data": st.binary(), "day": st.dates(),
            "at": st.datetimes(timezones=st.just(UTC)),
            "total": st.decimals(-(10**15), 10**15, places=4), "tags": st.lists(st.none() | st.text()),
            "more": st.dictionaries(st.text(), st.none() | INT64).map(lambda named: list(named.items())),
            "address": st.fixed_dictionaries({"city": st.none() | st.text(), "zip": st.none() | st.integers(0, 9)}),
        }.items()
    }
)  # fmt: skip


def read(schema: BodySchema, bodies: pa.BinaryArray) -> list[Any]:
    found: list[Any] = (
        BodyReader(schema, schema.type, FAIL_FAST, rescues=True).read(bodies, str).columns["value"].to_pylist()
    )
    return found


@given(st.lists(VALUES, max_size=4))
def test_values_are_read_back_as_they_were_written(values: list[dict[str, Any]]) -> None:
    avro = body_schema(BodyFormat(AVRO, AVRO_SCHEMA))
    assert avro is not None
    bodies = BodyWriter(JSON, None).encode(pa.array(values, KIND))
    assert read(BodySchema(JSON, KIND), bodies) == values
    assert read(avro, BodyWriter(AVRO, avro).encode(pa.array(values, KIND))) == values


def test_json_is_what_to_json_writes() -> None:
    value = {
        "id": 1, "price": 0.5, "name": "Zoë", "data": b"\xff", "day": date(2026, 11, 21),
        "total": Decimal("12345678901.25"), "at": datetime(2026, 11, 21, 10, 30, tzinfo=UTC), "more": [("a", 1)],
        "address": {"city": "Ulm", "zip": None},
    }  # fmt: skip
    (body,) = BodyWriter(JSON, None).encode(pa.array([value], KIND)).to_pylist()
    assert body.decode() == (
        '{"id":1,"price":0.5,"name":"Zoë","data":"/w==","day":"2026-11-21","at":"2026-11-21T10:30:00Z",'
        '"total":12345678901.2500,"more":{"a":1},"address":{"city":"Ulm"}}'
    )


def test_a_null_is_no_body() -> None:
    assert BodyWriter(JSON, None).encode(pa.array([None, {"id": 1}], KIND)).to_pylist() == [None, b'{"id":1}']


def test_avro_bodies_are_read_by_any_reader_of_the_schema() -> None:
    avro = body_schema(BodyFormat(AVRO, AVRO_SCHEMA))
    (body,) = BodyWriter(AVRO, avro).encode(pa.array([{"id": 7, "tags": ["a"]}], KIND)).to_pylist()
    found = fastavro.schemaless_reader(io.BytesIO(body), fastavro.parse_schema(json.loads(AVRO_SCHEMA)), None)
    assert found == {**dict.fromkeys(AVRO_KINDS), "id": 7, "tags": ["a"]}


def test_a_value_that_the_schema_does_not_allow_names_its_row() -> None:
    strict = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]})
    avro = body_schema(BodyFormat(AVRO, strict))
    with pytest.raises(SourceError, match="ORBITMQ_BAD_ROW: row 1 of a batch of 2 is no body in avro: "):
        BodyWriter(AVRO, avro).encode(pa.array([{"id": 1}, {"id": None}], parse_ddl("id INT")))
