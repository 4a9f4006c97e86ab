# cython: wraparound=False, boundscheck=False, annotation_typing=False
"""The loop over every message of a pull response. Pure.

In the platform wheel Cython compiles it, with the types of the `.pxd` next to this file; it then takes a third of the
time that the readable codec takes. Interpreted it serves tests only. What is not common (IPv6 hosts, compressed bodies,
long topics, damage) it leaves to that codec.
"""

from __future__ import annotations

from typing import Final

from orbitmq.message.flags import COMPRESSED
from orbitmq.message.hosts import host_text
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import UNIQ_KEY
from orbitmq.message.unit import decode_unit, decode_units, message_of

IS_COMPILED: Final = not __file__.endswith(".py")

# Constants of this module, inlined where it is compiled. `unit` describes the layout.
_HEAD_SIZE = 88
_OVERHEAD = 91
_MAGIC = 0xDAA320A7 - (1 << 32)
_UNCOMMON = COMPRESSED | 0x30
_NAME_END = 1
_PAIR_END = 2


def decode_messages(data: bytes, broker_name: str) -> list[MessageExt]:
    """The messages of a buffer that holds units only, as consumers see them. UnitError as in `decode_unit`, and when a
    compressed body cannot be unpacked.
    """
    if IS_COMPILED:
        return read_messages(data, broker_name)
    return [message_of(unit, broker_name) for unit in decode_units(data)]


def read_messages(data: bytes, broker_name: str) -> list[MessageExt]:
    """The loop of `decode_messages`."""
    text = data
    length = len(data)
    found: list[MessageExt] = []
    position = 0
    topic = born_host = store_host = ""
    last = -1  # where the last common unit begins; the next one often has the same hosts
    topic_at = topic_size = 0
    while position < length:
        size = _common_size(text, position, length)
        if size < 0:
            unit = decode_unit(data, position)
            found.append(message_of(unit, broker_name))
            position += unit.size
            continue
        body_end = position + _HEAD_SIZE + _int32(text, position + 84)
        if topic_size != text[body_end] or not _are_equal(text, topic_at, body_end + 1, topic_size):
            topic_at = body_end + 1
            topic_size = text[body_end]
            topic = data[topic_at : topic_at + topic_size].decode("utf-8", "replace")
        if last < 0 or not _are_equal(text, last + 48, position + 48, 8):
            born_host = host_text(data[position + 48 : position + 56])
        if last < 0 or not _are_equal(text, last + 64, position + 64, 8):
            store_host = host_text(data[position + 64 : position + 72])
        last = position
        physical_offset = _int64(text, position + 28)
        offset_id = _offset_id(text, position + 64, physical_offset)
        properties = _properties(data, text, body_end + 3 + topic_size, position + size)
        found.append(
            MessageExt(  # in the order of its fields
                topic,
                data[position + _HEAD_SIZE : body_end],
                _int32(text, position + 16),
                properties,
                None,
                broker_name,
                _int32(text, position + 12),
                _int64(text, position + 20),
                size,
                _int32(text, position + 36),
                _int64(text, position + 40),
                born_host,
                _int64(text, position + 56),
                store_host,
                properties.get(UNIQ_KEY, offset_id),
                offset_id,
                physical_offset,
                _int32(text, position + 8),
                _int32(text, position + 72),
                _int64(text, position + 76),
            )
        )
        position += size
    return found


def _common_size(text: bytes, position: int, length: int) -> int:
    """The size of the unit at `position`, -1 unless it is common and whole."""
    if length - position < _OVERHEAD:
        return -1
    if _int32(text, position + 4) != _MAGIC or _int32(text, position + 36) & _UNCOMMON:
        return -1
    size = _int32(text, position)
    body_size = _int32(text, position + 84)
    if size < _OVERHEAD or size > length - position or body_size < 0 or body_size > size - _OVERHEAD:
        return -1
    topic_size = text[position + _HEAD_SIZE + body_size]
    if topic_size > 127 or body_size + topic_size > size - _OVERHEAD:
        return -1
    properties_at = position + _OVERHEAD + body_size + topic_size
    properties_size = text[properties_at - 2] << 8 | text[properties_at - 1]
    return size if properties_size < 1 << 15 and properties_at + properties_size == position + size else -1


def _properties(data: bytes, text: bytes, at: int, end: int) -> dict[str, str]:
    """`decode_properties` of the bytes from `at` to `end`."""
    found: dict[str, str] = {}
    while at < end:
        name_end = at
        while name_end < end and text[name_end] != _NAME_END and text[name_end] != _PAIR_END:
            name_end += 1
        pair_end = name_end
        while pair_end < end and text[pair_end] != _PAIR_END:
            pair_end += 1
        if at < name_end and name_end + 1 < pair_end:
            found[data[at:name_end].decode("utf-8", "replace")] = data[name_end + 1 : pair_end].decode(
                "utf-8", "replace"
            )
        at = pair_end + 1
    return found


def _offset_id(text: bytes, host_at: int, physical_offset: int) -> str:
    """`offset_message_id` of an IPv4 host."""
    room = bytearray(32)
    out = room
    for number in range(8):
        out[2 * number] = _digit(text[host_at + number] >> 4)
        out[2 * number + 1] = _digit(text[host_at + number] & 15)
    for number in range(16):
        out[16 + number] = _digit(physical_offset >> (60 - 4 * number) & 15)
    return room.decode("ascii")


def _digit(value: int) -> int:
    return value + 48 if value < 10 else value + 55


def _are_equal(text: bytes, one: int, other: int, size: int) -> bool:
    at = 0
    while at < size and text[one + at] == text[other + at]:
        at += 1
    return at == size


def _int32(text: bytes, at: int) -> int:
    value = text[at]
    value = value << 24 | text[at + 1] << 16 | text[at + 2] << 8 | text[at + 3]
    return value - ((value >> 31) << 32)


def _int64(text: bytes, at: int) -> int:
    return (_int32(text, at) << 32) | (_int32(text, at + 4) & 0xFFFFFFFF)
