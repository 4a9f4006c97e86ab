"""Stored units: each flag and address family there and back, and what is no unit."""

from __future__ import annotations

import dataclasses
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import UnitError
from orbitmq.message import flags
from orbitmq.message.unit import (
    MAGIC_LONG_TOPIC,
    Unit,
    body_crc,
    decode_unit,
    decode_units,
    encode_unit,
    message_of,
    properties_of,
    store_timestamp_of,
)

SHEET_UNIT = bytes.fromhex(
    "00000072daa320a73610a686000000010000000000000000000000070000000000000400000000000000018bcfe568000a000009000015b3"
    "0000018bcfe568010a00000100002a9f0000000000000000000000000000000568656c6c6f025431001054414753014102574149540174727565"
)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@st.composite
def units(draw: st.DrawFn) -> Unit:
    sys_flag = draw(INT32)
    body = draw(st.binary(max_size=200))
    return Unit(
        size=0,
        body_crc=body_crc(body),
        queue_id=draw(INT32),
        flag=draw(INT32),
        queue_offset=draw(INT64),
        physical_offset=draw(INT64),
        sys_flag=sys_flag,
        born_timestamp=draw(INT64),
        born_host=draw(st.binary(min_size=20, max_size=20))[: 20 if sys_flag & flags.BORN_HOST_V6 else 8],
        store_timestamp=draw(INT64),
        store_host=draw(st.binary(min_size=20, max_size=20))[: 20 if sys_flag & flags.STORE_HOST_V6 else 8],
        reconsume_times=draw(INT32),
        prepared_transaction_offset=draw(INT64),
        body=body,
        topic=draw(st.text(st.sampled_from("abcZ_%-9"), max_size=127)),
        properties=draw(TEXT),
    )


def test_unit_of_the_sheet() -> None:
    unit = decode_unit(SHEET_UNIT)
    assert (unit.topic, unit.body, unit.queue_id, unit.queue_offset, unit.physical_offset) == (
        "T1",
        b"hello",
        1,
        7,
        1024,
    )
    message = message_of(unit, "b")
    assert message.properties == {"TAGS": "A", "WAIT": "true"}
    assert (message.born_host, message.store_host) == ("10.0.0.9:5555", "10.0.0.1:10911")
    assert message.msg_id == message.offset_msg_id == "0A00000100002A9F0000000000000400"
    assert encode_unit(unit) == SHEET_UNIT


@given(units())
def test_round_trip(unit: Unit) -> None:
    data = encode_unit(unit)
    found = decode_unit(data)
    assert found.size == len(data)
    assert msgspec.structs.replace(found, size=0) == unit
    assert store_timestamp_of(data) == unit.store_timestamp
    assert properties_of(b"before" + data, 6).decode() == unit.properties


@given(st.lists(units(), max_size=4), st.integers(0, 50))
def test_units_lie_one_after_another(some: list[Unit], lead: int) -> None:
    data = b"".join(map(encode_unit, some))
    assert [found.body for found in decode_units(memoryview(data))] == [unit.body for unit in some]
    if some:
        assert decode_unit(bytes(lead) + data, lead) == decode_unit(data)


@given(units(), st.data())
def test_a_cut_unit_is_refused(unit: Unit, data: st.DataObject) -> None:
    whole = encode_unit(unit)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(UnitError):
        decode_unit(cut)
    with pytest.raises(UnitError):
        properties_of(cut)


@given(units(), st.data())
def test_a_damaged_unit_raises_nothing_but_its_own_error(unit: Unit, data: st.DataObject) -> None:
    damaged = bytearray(encode_unit(unit))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(UnitError):
        message_of(decode_unit(damaged))
    with suppress(UnitError):
        properties_of(damaged)


@given(st.binary(max_size=300))
def test_garbage_raises_nothing_but_its_own_error(garbage: bytes) -> None:
    with suppress(UnitError):
        decode_units(garbage)
    with suppress(UnitError):
        properties_of(garbage)


def test_a_long_topic_of_rocketmq_5_is_read() -> None:
    unit = decode_unit(SHEET_UNIT)
    topic = b"t" * 200
    tail = topic + SHEET_UNIT[-18:]
    head = SHEET_UNIT[:93]
    size = len(head) + 2 + len(tail)
    data = size.to_bytes(4, "big") + MAGIC_LONG_TOPIC.to_bytes(4, "big", signed=True) + head[8:]
    found = decode_unit(data + len(topic).to_bytes(2, "big") + tail)
    assert found == msgspec.structs.replace(unit, topic=topic.decode(), size=size)


def test_without_body_the_rest_is_the_same() -> None:
    whole = decode_unit(SHEET_UNIT)
    assert decode_unit(SHEET_UNIT, with_body=False) == msgspec.structs.replace(whole, body=b"")


def test_the_unique_id_is_the_message_id() -> None:
    unit = msgspec.structs.replace(decode_unit(SHEET_UNIT), properties="UNIQ_KEY\x01ABC")
    message = message_of(unit)
    assert (message.msg_id, message.offset_msg_id) == ("ABC", "0A00000100002A9F0000000000000400")


def test_a_compressed_body_is_unpacked_unless_told_otherwise() -> None:
    from orbitmq.message.compression import compress

    packed = compress(b"hello" * 1000)
    unit = msgspec.structs.replace(decode_unit(SHEET_UNIT), body=packed, sys_flag=flags.COMPRESSED)
    assert message_of(unit).body == b"hello" * 1000
    assert message_of(unit, decompress=False).body == packed
    assert dataclasses.asdict(message_of(unit))["sys_flag"] == flags.COMPRESSED


def test_fields_out_of_range_are_refused() -> None:
    with pytest.raises(UnitError):
        encode_unit(msgspec.structs.replace(decode_unit(SHEET_UNIT), topic="t" * 128))
