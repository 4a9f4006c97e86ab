"""Compressed bodies in every form that RocketMQ reads and writes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import MessageIllegal, UnitError
from orbitmq.message.compression import COMPRESSION_FLAGS, ZLIB, compress, decompress
from orbitmq.message.flags import COMPRESSED

KINDS = st.sampled_from(sorted(COMPRESSION_FLAGS))


@given(KINDS, st.binary(max_size=5000), st.integers(1, 9))
def test_round_trip(kind: str, body: bytes, level: int) -> None:
    assert decompress(compress(body, kind, level), COMPRESSED | COMPRESSION_FLAGS[kind]) == body


def test_a_flag_without_kind_means_zlib() -> None:
    assert decompress(compress(b"x" * 100, ZLIB), COMPRESSED) == b"x" * 100


def test_a_body_that_is_not_compressed_is_left_alone() -> None:
    assert decompress(b"plain", COMPRESSION_FLAGS[ZLIB]) == b"plain"


@given(KINDS, st.binary(max_size=200))
def test_garbage_raises_nothing_but_its_own_error(kind: str, garbage: bytes) -> None:
    with suppress(UnitError):
        decompress(garbage, COMPRESSED | COMPRESSION_FLAGS[kind])


@pytest.mark.parametrize("kind", sorted(COMPRESSION_FLAGS))
def test_a_cut_body_is_refused(kind: str) -> None:
    with pytest.raises(UnitError):
        decompress(compress(bytes(range(256)) * 40, kind)[:-9], COMPRESSED | COMPRESSION_FLAGS[kind])


@pytest.mark.parametrize("kind", sorted(COMPRESSION_FLAGS))
def test_a_bomb_is_refused(kind: str) -> None:
    bomb = compress(bytes(5 << 20), kind)
    with pytest.raises(UnitError, match="larger than 1048576"):
        decompress(bomb, COMPRESSED | COMPRESSION_FLAGS[kind], size_max=1 << 20)


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(MessageIllegal, match="SNAPPY"):
        compress(b"", "SNAPPY")
    with pytest.raises(UnitError, match="kind 5"):
        decompress(b"x", COMPRESSED | 0x500)
