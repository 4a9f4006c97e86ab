"""The string hash of Java, over UTF-16 units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message.java_hash import CELL_SIZE_MAX, CELLS, string_hash, string_hashes, tags_code


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


TEXTS = st.binary(max_size=CELL_SIZE_MAX).map(lambda text: bytes(byte & 0x7F for byte in text))


@given(st.lists(st.tuples(st.sampled_from(["", "T", "中文", "polygenelubricants"]), TEXTS)))
def test_many_hashes_are_those_of_one_by_one(pairs: list[tuple[str, bytes]]) -> None:
    hashes = string_hashes([prefix.encode() for prefix, _ in pairs], b"#", [text for _, text in pairs])
    assert hashes == [string_hash(f"{prefix}#{text.decode()}") for prefix, text in pairs]


def test_prefixes_of_one_number_each_add_their_own() -> None:
    """More of them than are remembered."""
    prefixes = [b"topic-%d" % number for number in range(1000)]
    expected = [string_hash(f"topic-{number}#key") for number in range(1000)]
    assert string_hashes(prefixes, b"#", [b"key"] * 1000) == expected


@pytest.mark.parametrize("size", [1, 32, 33, CELL_SIZE_MAX])
@pytest.mark.parametrize("count", [1, CELLS - 1, CELLS, CELLS + 1, 3 * CELLS])
def test_neighbours_of_a_full_number_do_not_disturb_one_another(size: int, count: int) -> None:
    texts = [b"\x7f" * size, b"\x00" * size, b"a" * size] * count
    expected = [string_hash(text.decode()) for text in texts[:3]]
    assert string_hashes([b""] * count, b"", texts[:count]) == (expected * count)[:count]


def test_no_tag_has_code_zero() -> None:
    assert tags_code(None) == tags_code("") == 0
