"""Typed headers and their text map: Java's spelling, Java's leniency, and errors that name the field."""

from __future__ import annotations

import msgspec
import pytest

from orbitmq.errors import HeaderError
from orbitmq.wire.header import from_ext
from orbitmq.wire.headers import SendMessageV2Header
from orbitmq.wire.headers_admin import CreateTopicHeader
from orbitmq.wire.headers_namesrv import DeleteTopicFromNamesrvHeader, RegisterBrokerHeader
from orbitmq.wire.text_map import to_ext

SEND = SendMessageV2Header("g", "T", "TBW102", 4, 1, 0, 1_700_000_000_000, 0)
SEND_EXT = {"a": "g", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "0"}
BROKER_EXT = {"brokerName": "a", "brokerAddr": "h:1", "clusterName": "c", "haServerAddr": "h:2", "brokerId": "0"}


def test_fields_have_javas_names_and_texts() -> None:
    assert to_ext(SEND) == {**SEND_EXT, "k": "false", "m": "false"}
    assert to_ext(DeleteTopicFromNamesrvHeader("T")) == {"topic": "T"}


def test_header_is_read_back_equal() -> None:
    assert from_ext(SendMessageV2Header, to_ext(SEND)) == SEND


def test_unknown_fields_are_ignored() -> None:
    ext = {**SEND_EXT, "AccessKey": "k", "Signature": "s", "ns": "n"}
    assert from_ext(SendMessageV2Header, ext) == SEND


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), ("false", False), ("yes", False), ("1", False), ("", False)]
)
def test_any_text_but_true_is_false(text: str, value: bool) -> None:
    assert from_ext(SendMessageV2Header, {**SEND_EXT, "m": text}).batch is value


def test_empty_number_is_the_same_as_none() -> None:
    assert from_ext(RegisterBrokerHeader, {**BROKER_EXT, "bodyCrc32": ""}).body_crc32 is None


@pytest.mark.parametrize(
    ("ext", "field"),
    [
        ({}, "brokerName"),
        ({**BROKER_EXT, "brokerId": "zero"}, "brokerId"),
        ({**BROKER_EXT, "brokerId": ""}, "brokerId"),
        ({**BROKER_EXT, "brokerId": str(1 << 63)}, "brokerId"),
        ({**BROKER_EXT, "bodyCrc32": str(1 << 31)}, "bodyCrc32"),
        ({**BROKER_EXT, "bodyCrc32": "1.5"}, "bodyCrc32"),
    ],
)
def test_missing_or_malformed_field_is_named(ext: dict[str, str], field: str) -> None:
    with pytest.raises(HeaderError, match=field):
        from_ext(RegisterBrokerHeader, ext)


def test_no_fields_at_all_are_like_missing_ones() -> None:
    with pytest.raises(HeaderError, match="topic"):
        from_ext(CreateTopicHeader, None)


def test_what_a_header_declares_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers that are refused must not cost thirty times as much as others."""
    for ext in ({}, {**SEND_EXT, "d": ""}):
        with pytest.raises(HeaderError):
            from_ext(SendMessageV2Header, ext)
    monkeypatch.setattr(msgspec.structs, "fields", None)
    for ext in ({}, {**SEND_EXT, "d": ""}):
        with pytest.raises(HeaderError):
            from_ext(SendMessageV2Header, ext)
