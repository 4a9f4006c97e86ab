"""Bodies are shown in the form asked for, as much as asked for, and what is not so is said."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.admin.bodies import BodyForm, body_view, shown
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
