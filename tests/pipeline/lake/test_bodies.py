"""Bodies become columns by a schema: what fits is there with its type, what does not is rescued, nothing is lost."""

from __future__ import annotations

import io
import json
import logging
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ConfigurationError, SourceError
from orbitmq.pipeline.lake.avro import arrow_type, parsed_schema
from orbitmq.pipeline.lake.bodies import AVRO, JSON, KEEP, RAW, SKIP, SUSPEND, Bodies
from tests.support.lakes import SCHEMA as MESSAGES
from tests.support.lakes import rows

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": ["null", "string"]}]}
FIELDS: dict[str, Any] = {
    "id": "long", "count": "int", "price": "double", "share": "float", "name": ["null", "string"], "paid": "boolean",
    "tags": {"type": "array", "items": "string"}, "more": {"type": "map", "values": "long"}, "address": ADDRESS,
    "homes": {"type": "array", "items": "Address"}, "at": {"type": "long", "logicalType": "timestamp-millis"},
    "day": {"type": "int", "logicalType": "date"}, "data": "bytes", "kind": {"type": "enum", "name": "Kind",
    "symbols": ["A", "B"]}, "total": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
}  # fmt: skip
SCHEMA = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()]}
)
SMALL = json.dumps({"type": "record", "name": "Small", "fields": [{"name": "id", "type": "int"}]})
AT = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
ORDER: dict[str, Any] = {
    "id": 1 << 40, "count": 7, "price": 2.5, "share": 0.5, "name": "Zoë", "paid": True, "tags": ["x", "y"],
    "more": {"a": 1}, "address": {"city": "Köln"}, "homes": [{"city": None}], "at": AT, "day": date(2026, 11, 21),
    "data": b"\x00\xff", "kind": "A", "total": Decimal("12.34"),
}  # fmt: skip
STORED = {**ORDER, "more": [("a", 1)]}
AS_JSON = {**ORDER, "at": "2026-11-21T10:30:00Z", "day": "2026-11-21", "data": "AP8=", "total": "12.34"}


def batch(*bodies: bytes) -> pa.RecordBatch:
    made = rows("T", range(len(bodies)))
    return pa.RecordBatch.from_pylist([{**row, "body": body} for row, body in zip(made, bodies, strict=True)], MESSAGES)


def columns(mode: str, schema: str, *bodies: bytes, on_bad: str = KEEP) -> list[tuple[Any, Any]]:
    """`value` and what was rescued."""
    found = Bodies(mode, schema, on_bad).add(batch(*bodies))
    found.validate(full=True)
    assert found.column("body").to_pylist() == list(bodies) or on_bad == SKIP
    rescued = [None if text is None else json.loads(text) for text in found.column("_rescued").to_pylist()]
    return list(zip(found.column("value").to_pylist(), rescued, strict=True))


def datum(value: object, schema: str = SCHEMA) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), value)
    return out.getvalue()


def test_every_type_is_read_from_json_and_from_avro() -> None:
    assert columns(JSON, SCHEMA, json.dumps(AS_JSON).encode()) == [(STORED, None)]
    assert columns(AVRO, SCHEMA, datum(ORDER)) == [(STORED, None)]


def test_avro_with_the_fingerprint_of_its_schema_is_read() -> None:
    schema = fastavro.schema.to_parsing_canonical_form(json.loads(SMALL))
    mark = bytes.fromhex(fastavro.schema.fingerprint(schema, "CRC-64-AVRO"))[::-1]
    (found,) = columns(AVRO, SMALL, b"\xc3\x01" + mark + datum({"id": 5}, SMALL))
    assert found == ({"id": 5}, None)


def test_what_does_not_fit_is_rescued_field_by_field() -> None:
    body = {"id": "seven", "count": 1 << 31, "paid": 1, "tags": ["x", 2], "new": {"a": [1]}, "price": 3,
            "address": {"city": "Bonn", "street": 1}, "homes": [{"city": 5, "no": 1}], "kind": "A"}  # fmt: skip
    ((value, rescued),) = columns(JSON, SCHEMA, json.dumps(body).encode())
    empty = dict.fromkeys(FIELDS)
    assert value == {**empty, "price": 3.0, "address": {"city": "Bonn"}, "kind": "A"}
    assert rescued == {
        "id": "seven", "count": 1 << 31, "paid": 1, "tags": ["x", 2], "new": {"a": [1]}, "address.street": 1,
        "homes": [{"city": 5, "no": 1}],
    }  # fmt: skip


def test_new_names_inside_lists_are_rescued_by_their_place() -> None:
    ((value, rescued),) = columns(JSON, SCHEMA, b'{"homes": [{"city": "Bonn"}, {"city": "Ulm", "zip": 89073}]}')
    assert value["homes"] == [{"city": "Bonn"}, {"city": "Ulm"}]
    assert rescued == {"homes[1].zip": 89073}


@pytest.mark.parametrize("body", [b"", b"\xff\xfe\x00", b"[1]", b"{", b"null", b"7", b"[" * 100_000])
def test_what_is_no_object_is_rescued_whole(body: bytes) -> None:
    ((value, rescued),) = columns(JSON, SMALL, body)
    assert value is None
    assert list(rescued) == [""]


def test_avro_of_another_schema_is_rescued_whole() -> None:
    assert columns(AVRO, SMALL, b"\x02\x02", b"\xff") == [(None, {"": "\x02\x02"}), (None, {"": "/w=="})]


def test_halves_of_letters_and_numbers_without_end_stop_nothing() -> None:
    text = rb'{"name": "\ud800", "more": {"\ud800": 1}, "\ud801": 2, "id": ' + b"9" * 100 + b"}"
    ((value, rescued),) = columns(JSON, SCHEMA, text)
    assert value == dict.fromkeys(FIELDS)
    assert rescued.keys() == {"name", "more", "\ud801", "id"}


@given(st.lists(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*FIELDS, "city", "x"]), inner, max_size=4)
)), max_size=3))  # fmt: skip
def test_any_json_becomes_columns(values: list[Any]) -> None:
    found = columns(JSON, SCHEMA, *(json.dumps(value).encode() for value in values))
    assert len(found) == len(values)


@given(st.binary(max_size=60))
def test_any_bytes_become_columns(body: bytes) -> None:
    for mode in (JSON, AVRO):
        assert len(columns(mode, SCHEMA, body)) == 1


def test_a_body_that_does_not_fit_suspends_or_is_left_out_or_kept(caplog: pytest.LogCaptureFixture) -> None:
    good, bad, more = b'{"id": 1}', b'{"id": "one"}', b'{"id": 2, "new": 1}'
    with pytest.raises(SourceError, match=r'T/broker-a/0/1 does not fit the schema: id: "one" is no int32'):
        columns(JSON, SMALL, good, bad, more, on_bad=SUSPEND)
    with caplog.at_level(logging.WARNING):
        assert columns(JSON, SMALL, good, bad, more, on_bad=SKIP) == [({"id": 1}, None), ({"id": 2}, {"new": 1})]
    assert "event=bodies_do_not_fit count=1 action=skip first=T/broker-a/0/1" in caplog.text
    assert len(columns(JSON, SMALL, good, bad, more)) == 3
    assert columns(JSON, SMALL, good, more, on_bad=SUSPEND)[1] == ({"id": 2}, {"new": 1}), "new fields are no error"


def test_raw_bodies_get_no_columns() -> None:
    assert Bodies(RAW, "", SUSPEND).add(batch(b"x")).schema == MESSAGES


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("{", "no schema of Avro"),
        ('{"type": "orders"}', "no schema of Avro"),
        ('{"type": "array", "items": "int"}', "use a record"),
        ('{"type": "record", "name": "R", "fields": [{"name": "f", "type": ["int", "string"]}]}', "a union of 2 types"),
        ('{"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", "R"]}]}', "R holds itself"),
    ],
)
def test_schemas_that_cannot_be_are_refused(schema: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Bodies(JSON, schema, KEEP)


def test_the_type_of_a_schema_is_one_parquet_has() -> None:
    assert pa.types.is_struct(arrow_type(parsed_schema(SCHEMA)))
