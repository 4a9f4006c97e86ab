from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import BodyError, MessageIllegal
from orbitmq.message.batch import BatchItem, decode_batch, encode_batch

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


@given(ITEMS)
def test_round_trip(items: list[tuple[int, bytes, str]]) -> None:
    found = decode_batch(memoryview(encode_batch(items)))
    assert [(item.flag, item.body, item.properties.decode()) for item in found] == items


@given(ITEMS.filter(bool), st.data())
def test_a_damaged_batch_raises_nothing_but_its_own_error(
    items: list[tuple[int, bytes, str]], data: st.DataObject
) -> None:
    damaged = bytearray(encode_batch(items))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(BodyError):
        decode_batch(bytes(damaged))


@given(ITEMS.filter(bool))
def test_a_cut_batch_is_refused(items: list[tuple[int, bytes, str]]) -> None:
    with pytest.raises(BodyError):
        decode_batch(encode_batch(items)[:-1])


def test_properties_longer_than_the_field_are_refused() -> None:
    with pytest.raises(MessageIllegal, match="32767"):
        encode_batch([(0, b"", "a" * 32768)])
