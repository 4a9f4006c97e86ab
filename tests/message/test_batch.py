"""Bodies of batches: the bytes of RocketMQ, and what is refused."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import BodyError, BodyTooLarge, MessageIllegal
from orbitmq.message import batch_loops
from orbitmq.message.batch import ENTRY, TAGS_START, PackedBatch, encode_batch, pack_batch, pack_by_struct
from orbitmq.message.flags import BORN_HOST_V6, STORE_HOST_V6
from orbitmq.message.java_hash import tags_code
from orbitmq.message.properties import find_property
from orbitmq.message.unit import HEADS, SYS_FLAG_LOW_BYTE, body_crc, pack_unit, unit_size
from tests.support.batches import BatchItem, decode_batch

ITEMS = st.lists(
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=100), st.text("ab\x01\x02é", max_size=30))
)


def test_item_of_the_sheet() -> None:
    data = bytes.fromhex(
        "00000042000000000000000000000000000000026869002a4b455953016b3102554e49515f4b4559013041303030303039"
        "0257414954017472756502544147530141"
    )
    text = "KEYS\x01k1\x02UNIQ_KEY\x010A000009\x02WAIT\x01true\x02TAGS\x01A"
    assert encode_batch([(0, b"hi", text)]) == data
    assert decode_batch(data) == [BatchItem(0, b"hi", text.encode())]
    assert packed(data).texts() == [text.encode()]
    assert list(packed(data).codes()) == [ord("A")]


@given(ITEMS)
def test_items_are_encoded_one_after_another(items: list[tuple[int, bytes, str]]) -> None:
    assert [(item.flag, item.body, item.properties.decode()) for item in decode_batch(encode_batch(items))] == items


def unit_of(sys_flag: int, place: tuple[int, int], body: bytes, properties: bytes, flag: int = 0) -> bytes:
    """A unit made by itself, with the fields that a batch shares."""
    born_host = b"b" * (20 if sys_flag & BORN_HOST_V6 else 8)
    store_host = b"s" * (20 if sys_flag & STORE_HOST_V6 else 8)
    return pack_unit(
        unit_size(sys_flag, body, b"Orders", properties), body_crc(body), 3, flag, *place, sys_flag, 1_600_000_000_000,
        born_host, 1_600_000_000_007, store_host, 5, 0, body, b"Orders", properties,
    )  # fmt: skip


def packed(data: bytes, common: bytes = b"", sys_flag: int = 0, size_max: int = 1 << 40) -> PackedBatch:
    return pack_batch(data, unit_of(sys_flag, (0, 0), b"", b""), common, 10, 1000, size_max)


@given(ITEMS, st.sampled_from(["", "CLUSTER\x01c"]), st.sampled_from([0, BORN_HOST_V6, STORE_HOST_V6 | 9]))
def test_a_batch_is_stored_as_its_messages_would_be(
    items: list[tuple[int, bytes, str]], common: str, sys_flag: int
) -> None:
    """The properties of the batch follow those of the message, behind a separator where there must be one."""
    units, sizes, texts = [], [], []
    for number, (flag, body, text) in enumerate(items):
        joined = text + common if not text or text.endswith("\x02") or not common else text + "\x02" + common
        texts.append(joined.encode())
        units.append(unit_of(sys_flag, (10 + number, 1000 + sum(sizes)), body, texts[-1], flag))
        sizes.append(len(units[-1]))
    bodies_size = sum(len(body) for _, body, _ in items)
    made = packed(encode_batch(items), common.encode(), sys_flag)
    codes = [tags_code(find_property(text, TAGS_START)) for text in texts]
    places = list(accumulate(sizes, initial=1000))[:-1]
    assert (made.units, made.texts(), made.bodies_size) == (b"".join(units), texts, bodies_size)
    assert list(ENTRY.iter_unpack(made.entries)) == list(zip(places, sizes, codes, strict=True))
    assert (made.message_count, list(made.places()), list(made.codes())) == (len(units), places, codes)


TEXTS = st.lists(st.sampled_from(["TAGS\x01", "TAGS", "KEYS\x01k", "\x01", "\x02", "a", "é", "長"]), max_size=9).map(
    "".join
)
MADE = tuple[bytes, bytes, int] | type[Exception]


def made_by(
    pack: Callable[..., tuple[bytes, bytes, int]], data: bytes, common: bytes, sys_flag: int, size_max: int = 1 << 40
) -> MADE:
    empty = unit_of(sys_flag, (0, 0), b"", b"")
    try:
        return pack(data, empty, common, HEADS[empty[SYS_FLAG_LOW_BYTE] >> 4 & 3].size, 10, 1000, size_max)
    except (BodyError, MessageIllegal) as error:
        return type(error)


@given(
    st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=100), TEXTS), max_size=5),
    st.sampled_from([b"", b"CLUSTER\x01c", b"TAGS\x01c", b"c" * 32_760]),
    st.sampled_from([0, BORN_HOST_V6, STORE_HOST_V6 | 9]),
    st.data(),
)
def test_both_ways_make_the_same(
    items: list[tuple[int, bytes, str]], common: bytes, sys_flag: int, data: st.DataObject
) -> None:
    """The loop that is compiled in the wheel of a platform, and what stands for it elsewhere; of damaged ones, too."""
    batch = bytearray(encode_batch(items))
    if batch and data.draw(st.booleans()):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    whole = bytes(batch[: len(batch) - data.draw(st.sampled_from([0, 0, 1, 30]))])
    assert made_by(batch_loops.pack, whole, common, sys_flag) == made_by(pack_by_struct, whole, common, sys_flag)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TAGS\x01a", b"a"),
        ("TAGS\x01a\x02TAGS\x01", b"a"),
        ("TAGS\x01a\x02TAGS\x01\x02", b"a"),
        ("TAGS\x01a\x02TAGS\x01b", b"b"),
        ("TAGS\x01é\x02KEYS\x01k", "é".encode()),
        ("KEYS\x01TAGS\x01b", None),
        ("TAGS\x02\x01x", None),
        ("TAGS\x01\x01", b"\x01"),
        ("XTAGS\x01a", None),
    ],
)
def test_both_ways_read_the_tags_that_count(text: str, value: bytes | None) -> None:
    batch = encode_batch([(0, b"", text)])
    for pack in (batch_loops.pack, pack_by_struct):
        made = made_by(pack, batch, b"", 0)
        assert isinstance(made, tuple)
        codes = PackedBatch(*made).codes()
        assert codes == (tags_code(value),) == (tags_code(find_property(text.encode(), TAGS_START)),)


def test_both_ways_stop_before_units_that_take_too_much_room() -> None:
    """What all messages share is added to each of them: a small request must not ask for gigabytes."""
    batch = encode_batch([(0, b"", "")] * 100)
    common = b"c" * 20_000
    size = len(packed(batch, common).units)
    for pack in (batch_loops.pack, pack_by_struct):
        assert made_by(pack, batch, common, 0, size) == made_by(pack_by_struct, batch, common, 0)
        tracemalloc.start()
        assert made_by(pack, batch, common, 0, 100_000) is BodyTooLarge
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 300_000


def test_both_ways_look_at_large_bodies() -> None:
    batch = encode_batch([(1, b"x" * (batch_loops.COPIED_MAX + more), "TAGS\x01t") for more in (-1, 0, 1, 5000)])
    assert made_by(batch_loops.pack, batch, b"", 0) == made_by(pack_by_struct, batch, b"", 0)


@given(ITEMS.filter(bool), st.data())
def test_a_damaged_batch_raises_nothing_but_its_own_error(
    items: list[tuple[int, bytes, str]], data: st.DataObject
) -> None:
    damaged = bytearray(encode_batch(items))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(BodyError):
        packed(bytes(damaged))


@given(ITEMS.filter(bool))
def test_a_cut_batch_is_refused(items: list[tuple[int, bytes, str]]) -> None:
    with pytest.raises(BodyError):
        packed(encode_batch(items)[:-1])


def test_properties_longer_than_the_field_are_refused() -> None:
    with pytest.raises(MessageIllegal, match="32767"):
        encode_batch([(0, b"", "a" * 32768)])
    with pytest.raises(MessageIllegal, match="32767"):
        packed(encode_batch([(0, b"", "a" * 32000)]), b"c" * 1000)
