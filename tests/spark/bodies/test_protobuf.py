"""Bodies in Protobuf: types, presence, names that the schema does not know, and what cannot be."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import SourceError
from orbitmq.spark.bodies.ddl import parse_ddl
from orbitmq.spark.bodies.options import FAIL_FAST, PERMISSIVE, PROTOBUF, BodyFormat
from orbitmq.spark.bodies.protobuf import message_descriptor, protobuf_parser
from orbitmq.spark.bodies.reader import BodyReader
from orbitmq.spark.bodies.schema import BodySchema, body_schema
from orbitmq.spark.bodies.writer import BodyWriter

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "lines.proto";
enum Colour { NONE = 0; RED = 1; }
message Order {
  int64 id = 1;
  uint32 small = 2;
  uint64 large = 3;
  double price = 4;
  float share = 5;
  bool paid = 6;
  string name = 7;
  bytes data = 8;
  Colour colour = 9;
  google.protobuf.Timestamp at = 10;
  optional int32 maybe = 11;
  repeated string tags = 12;
  map<string, int64> more = 13;
  map<uint32, Line> numbered = 14;
  Line first = 15;
  repeated Line lines = 16;
  oneof either { string text = 17; fixed64 number = 18; }
}
"""
LINES = 'syntax = "proto3"; package shop; message Line { string sku = 1; sint32 count = 2; }'
# An order as a later version declares it.
LATER = """
syntax = "proto3";
package shop;
enum Colour { NONE = 0; RED = 1; BLUE = 2; }
message Line { string sku = 1; sint32 count = 2; string note = 3; }
message Order { int64 id = 1; Colour colour = 9; repeated Line lines = 16; string new = 30; fixed32 four = 31; }
"""
EMPTY: dict[str, Any] = {
    "id": 0, "small": 0, "large": Decimal(0), "price": 0.0, "share": 0.0, "paid": False, "name": "", "data": b"",
    "colour": "NONE", "at": None, "maybe": None, "tags": [], "more": [], "numbered": [], "first": None, "lines": [],
    "text": None, "number": None,
}  # fmt: skip
ORDER: dict[str, Any] = {
    **EMPTY, "id": -(1 << 62), "small": (1 << 32) - 1, "large": Decimal((1 << 64) - 1), "price": 2.5, "share": 0.5,
    "paid": True, "name": "Zoë 東京", "data": b"\x00\xff", "colour": "RED", "maybe": 0, "tags": ["x", ""],
    "at": datetime(2026, 11, 21, 10, 30, 0, 123456, tzinfo=UTC), "more": [("a", 1)], "first": {"sku": "a", "count": -1},
    "numbered": [("7", {"sku": "b", "count": 0})], "lines": [{"sku": "c", "count": 2}], "number": Decimal(9),
}  # fmt: skip


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> BodySchema:
    folder = tmp_path_factory.mktemp("proto")
    (folder / "lines.proto").write_text(LINES)
    return loaded(folder, PROTO)


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The class of orders of the later version."""
    found = loaded(tmp_path_factory.mktemp("later"), LATER)
    return GetMessageClass(message_descriptor(found.descriptors, "shop.Order"))


def loaded(folder: Path, text: str, message: str = "Order") -> BodySchema:
    (folder / "orders.proto").write_text(text)
    found = body_schema(BodyFormat(PROTOBUF, str(folder / "orders.proto"), message))
    assert found is not None
    return found


def columns(schema: BodySchema, *bodies: bytes, only: str = "", mode: str = PERMISSIVE, rescues: bool = True) -> Any:
    reader = BodyReader(schema, parse_ddl(only) if only else schema.type, mode, rescues=rescues)
    made, _ = reader.read(pa.array(bodies, pa.binary()), str)
    for column in made.values():
        column.validate(full=True)
    rescued = [None if text is None else json.loads(text) for text in made["_rescued"].to_pylist()]
    return list(zip(made["value"].to_pylist(), rescued, strict=True))


def encoded(schema: BodySchema, *values: dict[str, Any] | None) -> list[bytes]:
    found: list[bytes] = BodyWriter(PROTOBUF, schema).encode(pa.array(values, schema.type)).to_pylist()
    return found


def test_every_type_is_written_and_read_again(schema: BodySchema) -> None:
    assert columns(schema, *encoded(schema, ORDER)) == [(ORDER, None)]


def test_a_body_without_bytes_is_a_message_whose_fields_are_not_set(schema: BodySchema) -> None:
    assert columns(schema, b"") == [(EMPTY, None)]


def test_the_type_of_a_message(schema: BodySchema) -> None:
    line = pa.struct([("sku", pa.string()), ("count", pa.int32())])
    kinds = {field.name: field.type for field in schema.type}
    assert (kinds["small"], kinds["large"]) == (pa.int64(), pa.decimal128(20, 0)), "numbers without a sign fit"
    assert (kinds["colour"], kinds["at"]) == (pa.string(), pa.timestamp("us", "UTC"))
    assert (kinds["lines"], kinds["numbered"]) == (pa.list_(line), pa.map_(pa.string(), line))


def test_what_a_later_version_added_is_rescued_by_number_and_is_no_error(schema: BodySchema, later: Any) -> None:
    body = later(id=1, new="neu", four=4, lines=[{"sku": "a", "note": "b"}]).SerializeToString()
    value = {**EMPTY, "id": 1, "lines": [{"sku": "a", "count": 0}]}
    assert columns(schema, body, mode=FAIL_FAST) == [(value, {"30": "bmV1", "31": 4, "lines[0].3": "Yg=="})]
    assert columns(schema, body, rescues=False) == [(value, None)]


def test_a_value_that_no_name_is_known_for_is_rescued(schema: BodySchema, later: Any) -> None:
    body = later(id=1, colour="BLUE").SerializeToString()
    assert columns(schema, body) == [({**EMPTY, "id": 1, "colour": None}, {"colour": 2})]
    with pytest.raises(SourceError, match=r"ORBITMQ_BAD_BODY: .* colour: 2 is no value of shop.Colour"):
        columns(schema, body, mode=FAIL_FAST)


def test_bytes_of_something_else_are_rescued_whole(schema: BodySchema) -> None:
    ((value, rescued),) = columns(schema, b"\xff\xff")
    assert (value, rescued) == (None, {"": "//8="})


def test_only_the_fields_that_are_read_are_converted(schema: BodySchema, later: Any) -> None:
    body = later(id=1, colour="BLUE", lines=[{"sku": "a", "note": "b"}]).SerializeToString()
    only = "lines ARRAY<STRUCT<sku: STRING>>, id BIGINT"
    assert columns(schema, body, only=only, mode=FAIL_FAST) == [
        ({"lines": [{"sku": "a"}], "id": 1}, {"lines[0].3": "Yg=="})
    ]


@given(data=st.binary(max_size=60))
def test_any_bytes_become_columns(schema: BodySchema, data: bytes) -> None:
    assert len(columns(schema, data)) == 1


def test_a_time_that_no_calendar_has_is_rescued(schema: BodySchema) -> None:
    order = GetMessageClass(message_descriptor(schema.descriptors, "shop.Order"))()
    order.at.seconds = 1 << 62
    ((value, rescued),) = columns(schema, order.SerializeToString())
    assert value["at"] is None
    assert list(rescued) == ["at"]


def test_text_of_the_older_syntax_may_be_no_text(tmp_path: Path) -> None:
    found = loaded(tmp_path, 'syntax = "proto2"; message Order { optional string s = 1; optional int32 n = 2; }')
    (value, rescued), (missing, _) = columns(found, b"\x0a\x01\xff\x10\x05", b"")
    assert (value, rescued) == (None, {"": "CgH/EAU="})
    assert missing == {"s": None, "n": None}


def test_descriptors_are_read_as_well_as_sources(
    schema: BodySchema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "orders.desc"
    path.write_bytes(schema.descriptors)
    for place, name in ((str(path), "Order"), ("~/orders.desc", "shop.Order")):
        found = body_schema(BodyFormat(PROTOBUF, place, name))
        assert found is not None
        assert found.type == schema.type


@pytest.mark.parametrize(
    ("text", "message", "said"),
    [
        ('syntax = "proto3"; message Order { int64 id }', "", "orders.proto:1:45: Missing field number"),
        ('syntax = "proto3"; import "none.proto"; message Order { int64 id = 1; }', "", "none.proto"),
        (
            'syntax = "proto3"; message A { int64 a = 1; } message B { int64 b = 1; }',
            "",
            "use one of the messages A, B",
        ),
        ('syntax = "proto3"; message A { int64 a = 1; }', "Order", "use one of the messages A"),
        ('syntax = "proto3"; message A { A a = 1; }', "", "A holds itself"),
        ('syntax = "proto3"; message A { B b = 1; message B {} }', "", "A.B has no fields"),
    ],
)
def test_what_cannot_be_a_schema_is_refused(tmp_path: Path, text: str, message: str, said: str) -> None:
    with pytest.raises(SourceError) as refused:
        loaded(tmp_path, text, message)
    assert refused.value.name == "ORBITMQ_BAD_OPTION"
    assert said in refused.value.text


def test_a_file_that_is_no_set_of_descriptors_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.desc").write_bytes(b"\xff" * 9)
    with pytest.raises(SourceError, match="option bodySchema: no descriptors of Protobuf"):
        body_schema(BodyFormat(PROTOBUF, str(tmp_path / "x.desc")))
    with pytest.raises(SourceError, match=r"option bodySchema: .*nowhere.proto"):
        body_schema(BodyFormat(PROTOBUF, str(tmp_path / "nowhere.proto")))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"large": Decimal(-1)}, "field large"),
        ({"small": 1 << 32}, "field small"),
        ({"colour": "GREEN"}, "field colour"),
        ({"lines": [None]}, "field lines"),
        ({"numbered": [("x", {"sku": "a"})]}, "field numbered"),
    ],
)
def test_a_value_that_the_message_does_not_allow_names_row_and_field(
    schema: BodySchema, value: dict[str, Any], said: str
) -> None:
    with pytest.raises(SourceError, match=rf"ORBITMQ_BAD_ROW: row 1 of a batch of 2 is no body in protobuf: {said}"):
        encoded(schema, {"id": 1}, value)


def test_a_worker_without_the_library_says_what_to_install(schema: BodySchema, monkeypatch: pytest.MonkeyPatch) -> None:
    message_descriptor.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    with pytest.raises(SourceError, match=r"pip install 'orbitmq\[protobuf\]'"):
        protobuf_parser(schema.descriptors, "Order", schema.type, rescues=True)
