# cython: wraparound=False, boundscheck=False, annotation_typing=False
"""The loop over every message of a batch: checks the items, and makes the units for the log. Pure.

In the platform wheel Cython compiles it, with the types of the `.pxd` next to this file, to a loop over machine
integers. Interpreted it serves tests only; there `batch` does the same with `struct`.
"""

from __future__ import annotations

from typing import Final

from orbitmq.errors import BodyError, BodyTooLarge, MessageIllegal
from orbitmq.message.checksum import CRC_MASK, crc32
from orbitmq.message.java_hash import tags_code
from orbitmq.message.properties import PROPERTIES_SIZE_MAX

IS_COMPILED: Final = not __file__.endswith(".py")
COPIED_MAX: Final = 2048  # bytes of a body: a view costs more than a copy below this

# Constants of this module, inlined where it is compiled. `batch` and `unit` describe items and units.
_ITEM_HEAD = 20
_ITEM_FLAG = 12
_ITEM_BODY_SIZE = 16
_TEXT_LENGTH = 2
_ENTRY_SIZE = 20
_TEXT_SIZE_MAX = PROPERTIES_SIZE_MAX
_UNIT_CRC = 8
_UNIT_FLAG = 16
_UNIT_QUEUE_OFFSET = 20
_UNIT_PLACE = 28
_BODY_LENGTH = 4
_CRC_MASK = CRC_MASK
_COPIED_MAX = COPIED_MAX
_WORD = 0xFFFFFFFF
_NAME_END = 1
_PAIR_END = 2
_ASCII_END = 128
_T = 84
_A = 65
_G = 71
_S = 83


def pack(
    items: bytes,
    empty_unit: bytes,
    common: bytes,
    head_size: int,
    queue_offset: int,
    physical_offset: int,
    size_max: int,
) -> tuple[bytearray, bytearray, int]:
    """What `batch.pack_batch` makes of the items: the units, their entries, and the size of all bodies. `head_size` is
    that of the fields up to and including the length of the body.
    """
    bytes_ = items
    unit = empty_unit
    more = common
    length = len(items)
    overhead = len(empty_unit)
    more_size = len(common)
    count = _Count()
    out = bytearray(_measure(items, length, overhead, more_size, size_max, count))
    out_ = out
    entries = bytearray(_ENTRY_SIZE * count.items)
    entry = entries
    entry_at = 0
    offset = queue_offset
    start = physical_offset
    position = 0
    at = 0
    bodies_size = 0
    while position < length:
        body_at = position + _ITEM_HEAD
        body_size = _int32(bytes_, position + _ITEM_BODY_SIZE)
        text_at = body_at + body_size + _TEXT_LENGTH
        text_end = position + _int32(bytes_, position)
        body = (
            items[body_at : body_at + body_size]
            if body_size <= _COPIED_MAX
            else memoryview(items)[body_at : body_at + body_size]
        )
        crc = crc32(body) & _CRC_MASK
        _copy(out_, at, unit, 0, head_size)
        _put4(out_, at + _UNIT_CRC, crc)
        _copy(out_, at + _UNIT_FLAG, bytes_, position + _ITEM_FLAG, position + _ITEM_FLAG + 4)
        _put8(out_, at + _UNIT_QUEUE_OFFSET, offset)
        _put8(out_, at + _UNIT_PLACE, start + at)
        _put4(out_, at + head_size - _BODY_LENGTH, body_size)
        end = _copy(out_, at + head_size, bytes_, body_at, body_at + body_size)
        text_start = _copy(out_, end, unit, head_size, overhead)  # the topic, and room for the length of what follows
        end = _copy(out_, text_start, bytes_, text_at, text_end)
        if more_size > 0:
            if end > text_start and out_[end - 1] != _PAIR_END:
                out_[end] = _PAIR_END
                end += 1
            end = _copy(out_, end, more, 0, more_size)
        _put2(out_, text_start - _TEXT_LENGTH, end - text_start)
        _put4(out_, at, end - at)
        _put8(entry, entry_at, start + at)
        _put4(entry, entry_at + 8, end - at)
        _put8(entry, entry_at + 12, _code_of(out_, text_start, end))
        entry_at += _ENTRY_SIZE
        at = end
        offset += 1
        bodies_size += body_size
        position = text_end
    return out, entries, bodies_size


class _Count:
    """How many messages there are."""

    def __init__(self) -> None:
        self.items = 0


def _measure(data: bytes, length: int, overhead: int, more_size: int, size_max: int, count: _Count) -> int:
    """The size of all units, before there is room for any; counts them. Raises what `pack_batch` raises."""
    position = 0
    total = 0
    while position < length:
        if length - position < _ITEM_HEAD:
            raise BodyError(f"the batch item at {position} is truncated")
        end = position + _int32(data, position)
        body_size = _int32(data, position + _ITEM_BODY_SIZE)
        text_at = position + _ITEM_HEAD + body_size + _TEXT_LENGTH
        if body_size >= 0 and text_at > length:
            raise BodyError(f"the batch item at {position} is truncated")
        if body_size < 0 or end > length or end < text_at or end - text_at != _int16(data, text_at - _TEXT_LENGTH):
            raise BodyError(f"the lengths of the batch item at {position} disagree")
        text_size = end - text_at + more_size
        if more_size > 0 and end > text_at and data[end - 1] != _PAIR_END:
            text_size += 1
        if text_size > _TEXT_SIZE_MAX:
            raise MessageIllegal(f"properties of {text_size} bytes, at most {_TEXT_SIZE_MAX} are allowed")
        total += overhead + body_size + text_size
        if total > size_max:
            raise BodyTooLarge(f"the messages of the batch are larger than {size_max} bytes")
        count.items += 1
        position = end
    return total


def _code_of(data: bytearray, at: int, end: int) -> int:
    """The hash of the value of TAGS. Of equal names the last one counts, and none without a value."""
    value_at = value_end = 0
    while at < end:
        name_end = at
        while name_end < end and data[name_end] != _NAME_END and data[name_end] != _PAIR_END:
            name_end += 1
        pair_end = name_end
        while pair_end < end and data[pair_end] != _PAIR_END:
            pair_end += 1
        if name_end - at == 4 and name_end + 1 < pair_end and _is_tags(data, at):
            value_at, value_end = name_end + 1, pair_end
        at = pair_end + 1
    value = 0
    at = value_at
    while at < value_end:
        if data[at] >= _ASCII_END:
            return tags_code(bytes(data[value_at:value_end]))
        value = (31 * value + data[at]) & _WORD
        at += 1
    return value - ((value >> 31) << 32)


def _is_tags(data: bytearray, at: int) -> bool:
    return data[at] == _T and data[at + 1] == _A and data[at + 2] == _G and data[at + 3] == _S


def _int32(data: bytes, at: int) -> int:
    value = data[at]
    value = value << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
    return value - ((value >> 31) << 32)


def _int16(data: bytes, at: int) -> int:
    """-1 or less for an invalid length."""
    value = data[at]
    value = value << 8 | data[at + 1]
    return value - ((value >> 15) << 16)


def _copy(out: bytearray, at: int, data: bytes, start: int, end: int) -> int:
    """Where the copy of `data[start:end]` ends."""
    count = end - start
    for number in range(count):
        out[at + number] = data[start + number]
    return at + count


def _put2(out: bytearray, at: int, value: int) -> None:
    out[at] = value >> 8 & 255
    out[at + 1] = value & 255


def _put4(out: bytearray, at: int, value: int) -> None:
    out[at] = value >> 24 & 255
    out[at + 1] = value >> 16 & 255
    out[at + 2] = value >> 8 & 255
    out[at + 3] = value & 255


def _put8(out: bytearray, at: int, value: int) -> None:
    _put4(out, at, value >> 32)
    _put4(out, at + 4, value)
