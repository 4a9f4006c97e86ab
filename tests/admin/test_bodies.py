"""Bodies are shown in the form asked for, as much as asked for, and what is not so is said."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.admin.bodies import ANY_CHARSET, TYPED_MAX, BodyForm, body_view, shown
from orbitmq.client.typed import Schema, SchemaKind, avro_codec, protobuf_codec
from orbitmq.errors import ConfigurationError
from orbitmq.message.compression import COMPRESSION_FLAGS, compress
from orbitmq.message.flags import COMPRESSED, TRANSACTION_COMMIT
from orbitmq.message.model import MessageExt


def test_text_in_its_charset() -> None:
    body = "東京".encode("gbk")
    found = body_view(body, 0, BodyForm.TEXT, "gbk")
    assert (found.form, found.content, found.charset, found.problem) == ("text", "東京", "gbk", None)
    wrong = body_view(body, 0, BodyForm.TEXT)
    assert wrong.problem == "it holds bytes that are no utf-8 text"
    with pytest.raises(ConfigurationError, match="there is no charset klingon"):
        body_view(body, 0, BodyForm.TEXT, "klingon")
    with pytest.raises(ConfigurationError, match="there is no charset hex"):
        body_view(body, 0, BodyForm.TEXT, "hex")


def test_json_is_indented_and_anything_else_stays_text() -> None:
    assert body_view(b'{"a":[1,"\\u6771"]}', 0, BodyForm.JSON).content == json.dumps(
        {"a": [1, "東"]}, indent=2
    ).replace("\\u6771", "東")
    found = body_view(b"{", 0, BodyForm.JSON)
    assert (found.form, found.content) == ("text", "{")
    assert found.problem
    assert found.problem.startswith("it is no JSON")


def test_hex_and_base64() -> None:
    assert body_view(b"\x00\xff", 0, BodyForm.HEX).content == "00ff"
    assert body_view(b"\x00\xff", 0, BodyForm.BASE64).content == "AP8="


def test_a_long_body_is_cut_between_characters_and_marked() -> None:
    found = body_view("é".encode() * 10, 0, BodyForm.AUTO, limit=5)
    assert (found.form, found.content, found.truncated, found.size_bytes) == ("text", "éé", True, 20)
    assert not body_view(b"abc", 0, limit=3).truncated
    assert body_view(b"x" * 100_000, 0, limit=None).content == "x" * 100_000
    assert body_view(b"[1, 2, 3]", 0, BodyForm.JSON, limit=4).problem == "it is too long to be shown as JSON"


@pytest.mark.parametrize("kind", COMPRESSION_FLAGS)
def test_a_packed_body_is_unpacked_and_its_packing_told(kind: str) -> None:
    found = body_view(compress(b"hello" * 100, kind), COMPRESSED | COMPRESSION_FLAGS[kind], BodyForm.TEXT)
    assert (found.content, found.compression, found.size_bytes) == ("hello" * 100, kind, 500)


def test_what_cannot_be_unpacked_is_shown_as_it_is_stored() -> None:
    found = body_view(b"no zlib", COMPRESSED, BodyForm.TEXT)
    assert (found.form, base64.b64decode(found.content)) == ("base64", b"no zlib")
    assert found.problem
    assert "cannot be unpacked" in found.problem


AVRO = avro_codec(
    {
        "type": "record",
        "name": "Times",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "raw", "type": "bytes"},
        ],
    }
)
TIMES = AVRO.encode({"at": datetime(2026, 1, 2, tzinfo=UTC), "price": Decimal("1.25"), "raw": b"\xff"})
PROTOBUF = protobuf_codec(FileDescriptorProto)


@pytest.mark.parametrize(
    ("body", "schema", "value"),
    [
        (TIMES, AVRO.schema, {"at": "2026-01-02T00:00:00Z", "price": "1.25", "raw": "/w=="}),
        (PROTOBUF.encode(FileDescriptorProto(name="日", syntax="x")), PROTOBUF.schema, {"name": "日", "syntax": "x"}),
    ],
)
def test_a_body_of_a_schema_is_shown_as_json(body: bytes, schema: Schema, value: object) -> None:
    message = MessageExt("T", compress(body, "ZLIB"), sys_flag=COMPRESSED)
    found = shown(message, schema=schema).body
    assert found is not None
    assert (found.form, json.loads(found.content), found.compression) == (schema.kind, value, "ZLIB")
    assert "\n" in found.content
    assert found.size_bytes == len(body)
    cut = shown(message, limit=5, schema=schema).body
    assert cut is not None
    assert (cut.content, cut.truncated) == (found.content[:5], True)
    packed = shown(message, BodyForm.HEX, schema=schema).body
    assert packed is not None
    assert packed.content == body.hex(), "who chose a form gets the bytes"


@pytest.mark.parametrize(
    ("body", "schema", "reason"),
    [
        (TIMES + b"!", AVRO.schema, "no data of the schema: 1 bytes too many"),
        (b"", AVRO.schema, "no data of the schema: EOFError"),
        (b"\xff", PROTOBUF.schema, "no google.protobuf.FileDescriptorProto: "),
        (b"x", Schema(SchemaKind.AVRO, "{}"), "no schema of Avro: "),
        (bytes(TYPED_MAX + 1), AVRO.schema, f"it has {TYPED_MAX + 1} bytes, and at most {TYPED_MAX} are read"),
    ],
)
def test_a_body_that_its_schema_does_not_fit_is_shown_as_it_is(body: bytes, schema: Schema, reason: str) -> None:
    found = shown(MessageExt("T", body), schema=schema).body
    assert found is not None
    assert found.form in ("text", "base64")
    assert found.problem is not None
    assert found.problem.startswith(f"it is not read by schema {schema.id}: {reason}")


@given(st.binary(max_size=60) | st.text(max_size=30).map(str.encode))
def test_the_form_chosen_by_itself_loses_nothing(body: bytes) -> None:
    found = body_view(body, 0)
    again = found.content.encode() if found.form == "text" else base64.b64decode(found.content)
    assert again == body


def test_a_message_is_shown_under_the_topic_it_was_sent_to() -> None:
    message = MessageExt(
        "%RETRY%g", b"x", 0, {"RETRY_TOPIC": "Orders", "REAL_TOPIC": "%RETRY%g", "KEYS": "a b", "TAGS": "t",
                               "DELAY": "4"},
        broker_name="broker-a", queue_id=1, queue_offset=2, sys_flag=TRANSACTION_COMMIT, prepared_transaction_offset=77,
    )  # fmt: skip
    found = shown(message)
    assert (found.topic, found.real_topic, found.keys, found.tags) == ("%RETRY%g", "Orders", ["a", "b"], "t")
    assert (found.delay_level, found.transaction, found.prepared_transaction_offset) == (4, "committed", 77)
    assert found.body
    assert found.body.content == "x"
    assert shown(message, None).body is None


@pytest.mark.parametrize(
    ("text", "charset"),
    [
        ("订单已付款，金额为三百元。", "gb18030"),
        ("用户“王小明”下单成功！", "gb18030"),
        ("訂單已付款，金額為三百元。", "big5"),
        ("注文を受け付けました。ありがとうございます。", "shift_jis"),
        ("订单 42: 已付款", "utf-8"),
        ("order 42", "utf-8"),
        ("\ufeffBestellung für Käse", "utf-16"),
    ],
)
def test_the_charset_of_a_text_is_found(text: str, charset: str) -> None:
    body = text.encode("utf-16" if charset == "utf-16" else charset)
    found = body_view(body, 0, charset=ANY_CHARSET)
    assert (found.form, found.content, found.charset) == ("text", text, charset)


def test_a_text_that_is_cut_has_the_charset_of_the_whole() -> None:
    body = "订单已付款，金额为三百元。".encode("gbk")
    found = body_view(body, 0, charset=ANY_CHARSET, limit=5)
    assert (found.content, found.charset, found.truncated) == ("订单", "gb18030", True)


@given(st.binary(min_size=64))
def test_bytes_that_are_no_text_stay_what_they_are(body: bytes) -> None:
    found = body_view(body, 0, charset=ANY_CHARSET, limit=None)
    if found.form == "base64":
        assert base64.b64decode(found.content) == body
    else:
        assert found.content.encode(found.charset or "") == body or found.charset == "utf-16"
