"""The loop over the messages of a pull reads what the readable codec reads, and refuses what that refuses."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.errors import UnitError
from orbitmq.message.compression import compress
from orbitmq.message.flags import BORN_HOST_V6, COMPRESSED
from orbitmq.message.message_loops import read_messages
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import encode_properties
from orbitmq.message.unit import Unit, decode_units, encode_unit, message_of
from tests.message.test_unit import SHEET_UNIT, units

PAIRS = ("KEYS\x01k", "UNIQ_KEY\x01AC", "\x02", "\x01", "é\x01長\x02", "a", "b\x01\x01")
PROPERTIES = st.lists(st.sampled_from(PAIRS)).map("".join)
READ = list[MessageExt] | None


def readable(data: bytes) -> READ:
    try:
        return [message_of(unit, "b") for unit in decode_units(data)]
    except UnitError:
        return None


def by_loop(data: bytes) -> READ:
    try:
        return read_messages(data, "b")
    except UnitError:
        return None


def plain(unit: Unit, sys_flag: int, properties: str) -> Unit:
    """With IPv4 hosts, or one of IPv6, so that most units are common."""
    unit.sys_flag = sys_flag
    unit.store_host, unit.properties = unit.store_host[:8], properties
    unit.born_host = b"v6" * 10 if sys_flag & BORN_HOST_V6 else unit.born_host[:8]
    return unit


@given(
    st.lists(st.builds(plain, units(), st.sampled_from([0, 0, 0, 4, 8, BORN_HOST_V6]), PROPERTIES), max_size=5),
    st.data(),
)
def test_messages_are_read_as_by_the_readable_codec(found: list[Unit], data: st.DataObject) -> None:
    stored = bytearray(b"".join(map(encode_unit, found)))
    assert by_loop(bytes(stored)) == readable(bytes(stored))
    if stored:
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
        whole = bytes(stored[: len(stored) - data.draw(st.sampled_from([0, 0, 1, 30]))])
        assert by_loop(whole) == readable(whole)


@given(st.binary(max_size=200))
@example(SHEET_UNIT * 2)
@example(SHEET_UNIT + SHEET_UNIT[:-1])
def test_bytes_of_any_kind_are_read_as_by_the_readable_codec(data: bytes) -> None:
    assert by_loop(data) == readable(data)


def test_a_compressed_message_stands_between_others() -> None:
    unit = Unit(
        0, 5, 1, 2, 3, 4, COMPRESSED, 6, b"\x7f\0\0\x01\0\0\x2a\x9f", 7, b"\x7f\0\0\x01\0\0\x2a\x9f", 8, 9,
        compress(b"x" * 5000), "T", encode_properties({"TAGS": "a"}),
    )  # fmt: skip
    first, second, third = read_messages(SHEET_UNIT + encode_unit(unit) + SHEET_UNIT, "b")
    assert second.body == b"x" * 5000
    assert (first, first.body, first.msg_id) == (third, b"hello", "0A00000100002A9F0000000000000400")
