"""Messages cut in any way, status texts and timeouts."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import GrpcError
from orbitmq.wire.http2 import grpc
from orbitmq.wire.http2.grpc import MessageReader, is_grpc, parse_timeout, percent_encoded, prefixed


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30), max_size=30))
def test_messages_are_read_however_the_data_is_cut(messages: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(prefixed, messages))
    reader = MessageReader(1000, grpc.IDENTITY)
    found: list[bytes] = []
    for size in cuts:
        found += reader.feed(stream[:size])
        stream = stream[size:]
        assert reader.pending_size < 1005
    found += reader.feed(stream)
    assert found == messages
    assert reader.pending_size == 0


def test_a_message_cut_at_every_byte_is_read() -> None:
    stream = prefixed(b"") + prefixed(b"hello") + prefixed(b"x" * 300)
    for cut in range(len(stream) + 1):
        reader = MessageReader(300, grpc.IDENTITY)
        assert reader.feed(stream[:cut]) + reader.feed(stream[cut:]) == [b"", b"hello", b"x" * 300]


def refused(reader: MessageReader, data: bytes) -> int:
    with pytest.raises(GrpcError) as error:
        reader.feed(data)
    return error.value.status


@pytest.mark.parametrize("cut", [5, 3, 100])
def test_a_message_that_is_too_large_is_refused_by_its_length(cut: int) -> None:
    stream = prefixed(b"x" * 101)
    reader = MessageReader(100, grpc.IDENTITY)
    if cut < 5:
        assert reader.feed(stream[:cut]) == []
        assert refused(reader, stream[cut:5]) == grpc.RESOURCE_EXHAUSTED
    else:
        assert refused(reader, stream[:cut]) == grpc.RESOURCE_EXHAUSTED


def compressed(message: bytes) -> bytes:
    packed = gzip.compress(message, mtime=0)
    return b"\1" + len(packed).to_bytes(4, "big") + packed


def test_compressed_messages_are_read_among_others() -> None:
    reader = MessageReader(1000, grpc.GZIP)
    assert reader.feed(compressed(b"one") + prefixed(b"two") + compressed(b"")) == [b"one", b"two", b""]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (compressed(bytes(1001)), grpc.RESOURCE_EXHAUSTED),
        (b"\1\0\0\0\3abc", grpc.INTERNAL),
        (b"\2\0\0\0\1a", grpc.INTERNAL),
        (b"\1\0\0\0\x16" + gzip.compress(b"hello", mtime=0)[:22], grpc.INTERNAL),
        (b"\1\0\0\0\x1a" + gzip.compress(b"hello", mtime=0) + b"x", grpc.INTERNAL),
    ],
)
def test_what_cannot_be_decompressed_is_refused(data: bytes, status: int) -> None:
    assert refused(MessageReader(1000, grpc.GZIP), data) == status


def test_a_compressed_message_needs_an_encoding() -> None:
    assert refused(MessageReader(1000, grpc.IDENTITY), compressed(b"x")) == grpc.INTERNAL


def test_a_bomb_is_not_unpacked() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join([*[packer.compress(bytes(1 << 20)) for _ in range(50)], packer.flush()])
    with pytest.raises(GrpcError):
        grpc.decompressed(bomb, 1 << 20)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1H", 3600), ("2M", 120), ("3S", 3), ("250m", 0.25), ("5u", 5e-6), ("99999999n", 0.099999999), ("0S", 0)],
)
def test_timeouts_are_read(text: str, seconds: float) -> None:
    assert parse_timeout(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "S", "1", "1s", "123456789S", "-1S", "1.5S", "+1S", " 1S", "²S", "1_0S"])
def test_other_timeouts_are_refused(text: str) -> None:
    with pytest.raises(GrpcError):
        parse_timeout(text)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [("plain text", "plain text"), ("100%", "100%25"), ("a\nb", "a%0Ab"), ("ä", "%C3%A4"), ("\ud800", "?"[:0] + "%3F")],
)
def test_status_texts_are_escaped(text: str, escaped: str) -> None:
    assert percent_encoded(text) == escaped or text == "\ud800"


@given(st.text(max_size=10_000))
def test_any_status_text_is_a_header_that_fits(text: str) -> None:
    escaped = percent_encoded(text)
    assert escaped.isascii()
    assert escaped.isprintable()
    assert len(grpc.only_trailers(13, text)) < 16_384


@pytest.mark.parametrize("text", ["application/grpc", "application/grpc+proto", "application/grpc;x=y"])
def test_content_types_of_grpc(text: str) -> None:
    assert is_grpc(text)


@pytest.mark.parametrize("text", ["", "application/grpc-web", "application/json"])
def test_other_content_types(text: str) -> None:
    assert not is_grpc(text)
