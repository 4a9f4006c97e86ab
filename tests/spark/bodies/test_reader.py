"""Bodies become columns by a schema: what fits is there with its type, what does not is rescued, nothing is lost."""

from __future__ import annotations

import io
import json
import logging
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import SourceError
from orbitmq.spark.bodies.avro import arrow_type, avro_parser, parsed_schema
from orbitmq.spark.bodies.ddl import parse_ddl
from orbitmq.spark.bodies.json_text import together_parser
from orbitmq.spark.bodies.options import AVRO, DROP_MALFORMED, FAIL_FAST, JSON, PERMISSIVE, BodyOptions
from orbitmq.spark.bodies.reader import BodyReader, _parsers
from orbitmq.spark.bodies.schema import body_schema

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


def place(row: int) -> str:
    return f"row {row}"


def columns(
    format_: str, schema: str, *bodies: bytes, mode: str = PERMISSIVE, only: str = "", rescues: bool = True
) -> list[tuple[Any, Any]]:
    """`value` and what was rescued. `only`: the fields that are read, as SQL writes them."""
    found = body_schema(BodyOptions(body_format=format_, body_schema=schema))
    assert found is not None
    reader = BodyReader(found, parse_ddl(only) if only else found.type, mode, rescues=rescues)
    made, kept = reader.read(pa.array(bodies, pa.binary()), place)
    batch = pa.RecordBatch.from_pydict(made)
    batch.validate(full=True)
    assert batch.schema.field("value").type == reader.wanted
    batch = batch if kept is None else batch.filter(kept)
    rescued = [None if text is None else json.loads(text) for text in batch.column("_rescued").to_pylist()]
    return list(zip(batch.column("value").to_pylist(), rescued, strict=True))


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


def test_a_body_that_does_not_fit_fails_or_is_left_out_or_kept(caplog: pytest.LogCaptureFixture) -> None:
    good, bad, more = b'{"id": 1}', b'{"id": "one"}', b'{"id": 2, "new": 1}'
    with pytest.raises(
        SourceError, match=r'ORBITMQ_BAD_BODY: the body of row 1 does not fit .*: id: "one" is no int32'
    ):
        columns(JSON, SMALL, good, bad, more, mode=FAIL_FAST)
    with caplog.at_level(logging.WARNING):
        assert columns(JSON, SMALL, good, bad, more, mode=DROP_MALFORMED) == [
            ({"id": 1}, None),
            ({"id": 2}, {"new": 1}),
        ]
    assert "event=bodies_do_not_fit count=1 action=dropmalformed" in caplog.text
    assert len(columns(JSON, SMALL, good, bad, more)) == 3
    assert columns(JSON, SMALL, good, more, mode=FAIL_FAST)[1] == ({"id": 2}, {"new": 1}), "new fields are no error"


def test_the_first_of_many_bodies_that_do_not_fit_is_named() -> None:
    bodies = [b'{"id": %d}' % number for number in range(1000)]
    bodies[700] = bodies[900] = b'{"id": null, "x'
    with pytest.raises(SourceError, match="the body of row 700 does not fit"):
        columns(JSON, SMALL, *bodies, mode=FAIL_FAST)
    kept = columns(JSON, SMALL, *bodies, mode=DROP_MALFORMED)
    assert [value["id"] for value, _ in kept] == [number for number in range(1000) if number not in {700, 900}]
    assert [number for number, (value, _) in enumerate(columns(JSON, SMALL, *bodies)) if value is None] == [700, 900]


PLAIN_FIELDS = "a BIGINT, b STRING, c DOUBLE, d BOOLEAN, e ARRAY<INT>, s STRUCT<a: BIGINT, t: STRUCT<b: STRING>>"
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.integers(-3, 3) | st.floats() | st.text(max_size=5)
    | st.sampled_from([1 << 31, 1 << 63, 10**400, -(10**400), 1e308, "\ud800", "\udc00", "\x00", "}", "\n{"])
)  # fmt: skip
NAMES = st.sampled_from([*"abcdest", "x", "\ud800"])
OBJECTS = st.dictionaries(
    NAMES,
    st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
    ),
    max_size=4,
)
FITTING = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(-(1 << 63), (1 << 63) - 1),
        "b": st.text(),
        "c": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
        "d": st.booleans(),
        "e": st.lists(st.none() | st.integers(-(1 << 31), (1 << 31) - 1)),
        "s": st.sampled_from([None, {}, {"a": None, "t": {"b": "漢"}}, {"t": {}}]),
    },
)
TRICKY = [
    "", " ", "{}", "{}{}", '{"a":1}{"a":2}', '{"b": "', '{"s": {"a": 1}', '"}', "null", '{"a":1,"a":2}', '{"c": 1e400}',
    '{"a": 1.0}', '{"a": 1e3}', '{"c": NaN}', '{"c": -0}', '{"x": [}', "\ufeff{}",
    r'{"b": "\udc00"}', r'{"b": "\ud800"}', r'{"b": "\ud800x"}', r'{"b": "\ud83d\ude00"}', "{} 7", "{}null", "{}[1]",
]  # fmt: skip
TEXTS = st.one_of(
    OBJECTS.map(json.dumps),
    FITTING.map(json.dumps),
    FITTING.map(lambda value: json.dumps(value, ensure_ascii=False)),
    FITTING.map(lambda value: " \n" + json.dumps(value, indent=1) + "\r\n"),
    st.sampled_from(TRICKY),
)


def shown(rows: list[tuple[Any, Any]]) -> str:
    """Rows to compare: NaN equals itself, and the whole number -0 the float that Arrow makes of it."""
    return repr(rows).replace("-0.0", "0.0")


@settings(max_examples=200)
@given(st.lists(TEXTS.map(lambda text: text.encode(errors="surrogatepass")), max_size=5), st.booleans())
def test_bodies_together_are_parsed_as_one_by_one(bodies: list[bytes], rescues: bool) -> None:
    for only in ("", "s STRUCT<t: STRUCT<b: STRING>>, c DOUBLE"):
        together = columns(JSON, PLAIN_FIELDS, *bodies, only=only, rescues=rescues)
        alone = [columns(JSON, PLAIN_FIELDS, body, only=only, rescues=rescues)[0] for body in bodies]
        with mock.patch("orbitmq.spark.bodies.reader.together_parser", return_value=None):
            _parsers.cache_clear()
            plain = columns(JSON, PLAIN_FIELDS, *bodies, only=only, rescues=rescues)
        _parsers.cache_clear()
        assert shown(together) == shown(alone) == shown(plain)


def test_bodies_that_fit_are_parsed_together() -> None:
    parse = together_parser(parse_ddl(PLAIN_FIELDS), parse_ddl("b STRING"), rescues=True)
    assert parse is not None
    assert parse(pa.array([b'{"a": 1, "b": "x"}', b"{}"], pa.binary())).to_pylist() == [{"b": "x"}, {"b": None}]
    assert parse(pa.array([b'{"a": 1, "new": 1}'], pa.binary())) is None, "for `_rescued`"
    ignoring = together_parser(parse_ddl(PLAIN_FIELDS), parse_ddl("b STRING"), rescues=False)
    assert ignoring is not None
    assert ignoring(pa.array([b'{"a": "7", "b": "x", "new": 1}'], pa.binary())).to_pylist() == [{"b": "x"}]


def test_fields_that_are_not_read_are_neither_checked_nor_rescued() -> None:
    body = b'{"id": "seven", "address": {"city": "Bonn", "street": 1}, "new": 5}'
    assert columns(JSON, SCHEMA, body, only="address STRUCT<city: STRING>") == [
        ({"address": {"city": "Bonn"}}, {"address.street": 1, "new": 5})
    ]
    assert columns(JSON, SCHEMA, body, only="address STRUCT<city: STRING>", rescues=False) == [
        ({"address": {"city": "Bonn"}}, None)
    ]


def test_fields_of_avro_may_be_left_out_also_those_that_define_types_of_others() -> None:
    only = "homes ARRAY<STRUCT<city: STRING>>, day DATE"
    assert columns(AVRO, SCHEMA, datum(ORDER), only=only) == [
        ({"homes": [{"city": None}], "day": date(2026, 11, 21)}, None)
    ]


def test_decimals_of_json_keep_all_of_their_digits() -> None:
    ddl = "d DECIMAL(38,18), n DOUBLE"
    body = b'{"d": 12345678901234567890.123456789012345678, "n": 0.1}'
    assert columns(JSON, ddl, body) == [({"d": Decimal("12345678901234567890.123456789012345678"), "n": 0.1}, None)]
    ((value, rescued),) = columns(JSON, "d DECIMAL(4,2)", b'{"d": 123.45}')
    assert (value, rescued) == ({"d": None}, {"d": 123.45})


def test_an_avro_decimal_with_too_many_digits_is_rescued() -> None:
    def schema(digits: int) -> str:
        kind = {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": 2}
        return json.dumps({"type": "record", "name": "R", "fields": [{"name": "d", "type": kind}]})

    wide, fits = datum({"d": Decimal("123456.78")}, schema(9)), datum({"d": Decimal("1.25")}, schema(9))
    bad, good = columns(AVRO, schema(4), wide, fits)
    assert (bad[0], list(bad[1]), good) == (None, [""], ({"d": Decimal("1.25")}, None))


def test_logical_types_without_a_column_type_are_read_as_what_they_are_made_of() -> None:
    kinds = {"u": {"type": "string", "logicalType": "uuid"}, "t": {"type": "int", "logicalType": "time-millis"},
             "l": {"type": "long", "logicalType": "local-timestamp-millis"}}  # fmt: skip
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in kinds.items()]})
    plain = schema.replace('"logicalType"', '"was"')
    value = {"u": "6f1e1f5e-4b5c-4c0e-9a55-111111111111", "t": 7, "l": 8}
    assert columns(AVRO, schema, datum(value, plain)) == [(value, None)]


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
    with pytest.raises(SourceError, match=text):
        body_schema(BodyOptions(body_format=AVRO, body_schema=schema))


def test_the_type_of_a_schema_is_one_parquet_has() -> None:
    assert pa.types.is_struct(arrow_type(parsed_schema(SCHEMA)))


def test_a_worker_without_the_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed_schema.cache_clear()
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(SourceError, match=r"pip install 'orbitmq\[avro\]'"):
        avro_parser(SMALL, parse_ddl("id INT"))


def test_a_file_of_the_home_directory_is_a_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "order.sql").write_text("id BIGINT", encoding="utf-8")
    found = body_schema(BodyOptions(body_format=JSON, body_schema="~/order.sql"))
    assert found is not None
    assert found.type == pa.struct([("id", pa.int64())])
