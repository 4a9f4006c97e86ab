from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message.hashing import string_hash, tags_code


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TagA", 2598919),
        ("中文", 646394),
        ("😀", 1772899),
        ("polygenelubricants", -(2**31)),
        ("", 0),
        ("T1#k0", 79072523),
    ],
)
def test_known_hashes(text: str, value: int) -> None:
    assert string_hash(text) == value


@given(st.text(), st.text())
def test_hash_is_a_polynomial_over_code_units(left: str, right: str) -> None:
    units = len(right.encode("utf-16-le", "surrogatepass")) // 2
    joined = string_hash(left) * 31**units + string_hash(right)
    assert (string_hash(left + right) - joined) % 2**32 == 0


def test_no_tag_has_code_zero() -> None:
    assert tags_code(None) == tags_code("") == 0
