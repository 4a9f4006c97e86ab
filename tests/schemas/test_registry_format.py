"""Bodies of Confluent's serializers are written and read byte for byte; anything else is a wrong body."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import WrongBody
from orbitmq.schemas.registry_format import head, registry_id, value

PLACES = st.lists(st.integers(0, 2**30), min_size=1, max_size=20)


@given(st.integers(0, 2**32 - 1), PLACES | st.none(), st.binary(max_size=20))
def test_what_is_written_is_read(number: int, place: list[int] | None, content: bytes) -> None:
    body = head(number, place) + content
    assert registry_id(body) == number
    assert value(body, indexed=place is not None) == content


@given(st.binary(max_size=40), st.booleans())
def test_any_other_body_is_wrong_and_nothing_else_is_raised(body: bytes, indexed: bool) -> None:
    with contextlib.suppress(WrongBody):
        value(body, indexed=indexed)


@pytest.mark.parametrize(
    ("body", "indexed", "text"),
    [
        (b'{"id":1}', False, "it begins with 7b 22 69 64 22"),
        (b"", False, "it begins with nothing"),
        (b"\0\0\0\0", False, "it begins with 00 00 00 00"),
        (b"\0\0\0\0\1", True, "has no end"),
        (b"\0\0\0\0\1\xff\xff\xff\xff\xff\x01", True, "has no end"),
        (b"\0\0\0\0\1\x01", True, "-1 numbers"),
        (b"\0\0\0\0\1\xca\x01", True, "101 numbers"),
    ],
)
def test_the_reason_says_what_is_there(body: bytes, indexed: bool, text: str) -> None:
    with pytest.raises(WrongBody, match=text):
        value(body, indexed=indexed)
