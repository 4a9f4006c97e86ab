"""Header blocks of another implementation are read, whatever it does with the table; nothing else than its error is
raised for others.
"""

from __future__ import annotations

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import HpackError
from orbitmq.wire.http2.hpack import MALFORMED, PSEUDO, REGULAR, HpackDecoder, decode_huffman, encode_field
from orbitmq.wire.http2.hpack import encode_integer as encoded

NAMES = st.sampled_from(["x-a", "x-mq-client-id", ":path", "content-type", "te"]) | st.from_regex(
    r"[a-z][a-z0-9-]{0,30}", fullmatch=True
)
VALUES = st.text(st.characters(min_codepoint=1, max_codepoint=255), max_size=80)
LISTS = st.lists(st.tuples(NAMES, VALUES), max_size=6)
STEPS = st.lists(
    st.tuples(LISTS, st.booleans(), st.none() | st.sampled_from([0, 40, 100, 1000, 4096])), min_size=1, max_size=5
)


def raw(fields: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in fields]


@given(STEPS)
def test_blocks_of_another_encoder_are_read(steps: list[tuple[list[tuple[str, str]], bool, int | None]]) -> None:
    encoder, decoder = hpack.Encoder(), HpackDecoder(1 << 20)
    for fields, huffman, table_size in steps:
        if table_size is not None:
            encoder.header_table_size = table_size
        block = encoder.encode(raw(fields), huffman=huffman)
        assert [(field.name, field.value) for field in decoder.decode(block)] == fields
        assert not decoder.is_too_large


@given(LISTS)
def test_another_decoder_reads_what_is_encoded(fields: list[tuple[str, str]]) -> None:
    block = b"".join([encode_field(name, value) for name, value in fields])
    assert [tuple(field) for field in hpack.Decoder(1 << 20).decode(block, raw=True)] == raw(fields)


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_any_bytes_are_fields_or_an_error(blocks: list[bytes]) -> None:
    """And the other decoder sees the same fields, where neither refuses."""
    decoder, other = HpackDecoder(1 << 20), hpack.Decoder(1 << 20)
    for block in blocks:
        try:
            found = decoder.decode(block)
        except HpackError:
            return
        try:
            expected = other.decode(block, raw=True)
        except hpack.HPACKError:
            return
        assert [(one.name.encode("latin-1"), one.value.encode("latin-1")) for one in found] == [
            (name, value) for name, value in expected
        ]


@given(st.binary(max_size=100))
def test_huffman_codes_are_read_or_refused(data: bytes) -> None:
    from hpack.huffman_table import decode_huffman as other

    try:
        expected = other(data)
    except hpack.HPACKError:
        with pytest.raises(HpackError):
            decode_huffman(data)
        return
    assert decode_huffman(data) == expected


def test_a_list_that_is_too_large_is_not_kept_but_its_table_is() -> None:
    encoder, decoder = hpack.Encoder(), HpackDecoder(1000)
    fields = [(f"x-{number}", "v" * 100) for number in range(50)]
    kept = decoder.decode(encoder.encode(raw(fields)))
    assert decoder.is_too_large
    assert sum(field.size for field in kept) <= 1000
    assert [field.value for field in decoder.decode(encoder.encode(raw(fields[-2:])))] == ["v" * 100] * 2
    assert not decoder.is_too_large


def test_a_bomb_of_references_takes_no_memory() -> None:
    decoder = HpackDecoder(16 << 10)
    entry = b"\x40\x01x" + encoded(3900, 0x7F, 0) + b"v" * 3900
    kept = decoder.decode(entry + b"\xbe" * 16_000)
    assert decoder.is_too_large
    assert sum(field.size for field in kept) <= 16 << 10


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # field 0
        b"\xbe",  # the first of an empty table
        b"\xff\xff\xff\xff\xff\xff\x01",  # a number without end
        b"\x7f\x80\x80\x80\x80\x80\x01",
        b"\x40\x05abc",  # a text that ends too soon
        b"\x40",
        b"\x40\x01a",
        b"\x3f\xe2\x1f",  # a table of 4097 bytes
        b"\x20\x20\x20",  # three changes of its size
        b"\x82\x20",  # a change behind a field
        b"\x40\x81\xff\x01a",  # only padding
    ],
)
def test_what_the_protocol_does_not_allow_is_refused(block: bytes) -> None:
    with pytest.raises(HpackError) as refused:
        HpackDecoder().decode(block)
    assert refused.value.code == 9


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("x-a", "b", REGULAR),
        (":path", "/", PSEUDO),
        ("te", "trailers", REGULAR),
        ("te", "gzip", MALFORMED),
        ("X-A", "b", MALFORMED),
        ("", "b", MALFORMED),
        (":", "b", MALFORMED),
        ("a b", "b", MALFORMED),
        ("x-a", "b\r\nc: d", MALFORMED),
        ("x-a", "b\0", MALFORMED),
        ("x-a", " b", REGULAR),
        ("connection", "close", MALFORMED),
        ("transfer-encoding", "chunked", MALFORMED),
    ],
)
def test_each_field_says_what_it_is(name: str, value: str, kind: int) -> None:
    block = b"\x40" + encoded(len(name), 0x7F, 0) + name.encode() + encoded(len(value), 0x7F, 0) + value.encode()
    decoder = HpackDecoder()
    assert [field.kind for field in decoder.decode(block)] == [kind]
    assert [field.kind for field in decoder.decode(b"\xbe")] == [kind], "the table remembers it"
