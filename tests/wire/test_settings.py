"""Settings go out unescaped and come in by the rules of Java's properties files."""

from __future__ import annotations

import pytest

from orbitmq.errors import BodyError
from orbitmq.wire.settings import decode_settings, encode_settings


def test_settings_are_lines_without_escapes() -> None:
    assert encode_settings({"a": "1", "path": "/x y:z"}) == b"a=1\npath=/x y:z\n"


def test_settings_are_read_back() -> None:
    pairs = {"listenPort": "9876", "orderMessageEnable": "true"}
    assert decode_settings(encode_settings(pairs)) == pairs


def test_broken_escape_is_refused() -> None:
    with pytest.raises(BodyError):
        decode_settings(b"a=\\u12")
