"""Settings go out unescaped and come in by the rules of Java's properties files."""

from __future__ import annotations

import pytest

from orbitmq.errors import BodyError
from orbitmq.wire.settings import CONTINUED_MAX, SIZE_MAX, decode_settings, encode_settings


def test_settings_are_lines_without_escapes() -> None:
    assert encode_settings({"a": "1", "path": "/x y:z"}) == b"a=1\npath=/x y:z\n"


def test_settings_are_read_back() -> None:
    pairs = {"listenPort": "9876", "orderMessageEnable": "true"}
    assert decode_settings(encode_settings(pairs)) == pairs


def test_broken_escape_is_refused() -> None:
    with pytest.raises(BodyError):
        decode_settings(b"a=\\u12")


def test_lines_may_go_on_but_not_for_ever() -> None:
    """With each line that follows its reader takes up all that went on before: 80 KB took it 40 s."""
    assert decode_settings(b"a=" + b"x\\\n" * CONTINUED_MAX + b"y") == {"a": "x" * CONTINUED_MAX + "y"}
    for end in (b"\\\n", b"\\\r"):
        with pytest.raises(BodyError, match="go on"):
            decode_settings(b"a=" + (b"x" + end) * (CONTINUED_MAX + 1))


def test_settings_are_no_larger_than_all_options_together() -> None:
    assert decode_settings(b"a=" + b"x" * (SIZE_MAX - 2)) == {"a": "x" * (SIZE_MAX - 2)}
    with pytest.raises(BodyError, match="bytes"):
        decode_settings(b"a=" + b"x" * (SIZE_MAX - 1))
