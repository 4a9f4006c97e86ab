"""The bits a subscription owns are RocketMQ's, for they lie on disk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.filter.bloom import BloomFilter, murmur3_low64
from tests.support.golden import vectors

DEFAULT = BloomFilter.sized(20, 32)


def test_sizes_positions_and_bitmaps_are_those_of_rocketmq() -> None:
    for row in vectors()["bloom_filter"]:
        bloom = BloomFilter.sized(row["f"], row["n"])
        assert (bloom.hash_count, bloom.bit_count) == (row["k"], row["m"])
        for case in row["cases"]:
            assert bloom.positions_of(case["s"]) == case["positions"], case
        first_three = bloom.bitmap(case["positions"] for case in row["cases"][:3])
        assert first_three.hex() == row["bitmapOfFirst3"]


@pytest.mark.parametrize(
    ("group", "topic", "positions"),
    [("GroupY", "TopicX", [105, 86, 44]), ("g", "T", [90, 68, 28]), ("CID_A", "TopicTest", [20, 68, 27])],
)
def test_the_default_filter_has_three_of_112_bits_a_subscription(group: str, topic: str, positions: list[int]) -> None:
    assert (DEFAULT.hash_count, DEFAULT.bit_count) == (3, 112)
    assert DEFAULT.positions(group, topic) == positions


def test_the_hash_is_murmur3() -> None:
    assert murmur3_low64(b"") == 0
    assert murmur3_low64(b"g#T") == -6954811535830803927 & (2**64 - 1)


@given(st.lists(st.text(), max_size=20), st.text())
def test_no_wanted_message_is_left_out(wanting: list[str], other: str) -> None:
    bitmap = DEFAULT.bitmap(map(DEFAULT.positions_of, wanting))
    assert all(DEFAULT.may_want(DEFAULT.positions_of(text), bitmap) for text in wanting)
    assert DEFAULT.may_want(DEFAULT.positions_of(other), b"")  # a message stored without a bitmap may be wanted


def test_most_unwanted_messages_are_left_out() -> None:
    bitmap = DEFAULT.bitmap(DEFAULT.positions_of(f"group{number}") for number in range(32))
    taken = sum(DEFAULT.may_want(DEFAULT.positions_of(f"stranger{number}"), bitmap) for number in range(1000))
    assert taken < 300
