"""The body of a batch send: messages one after another. Pure.

size | field
   4 | size of this item, this field included
   4 | 0 (a magic nobody reads)
   4 | 0 (a checksum nobody reads; the broker computes its own)
   4 | flag of the producer
 4+B | body, never compressed
 2+P | properties
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Final, NamedTuple

from orbitmq.errors import BodyError, BodyTooLarge, MessageIllegal
from orbitmq.message.batch_loops import COPIED_MAX, IS_COMPILED, pack
from orbitmq.message.checksum import CRC_MASK, crc32
from orbitmq.message.java_hash import tags_code
from orbitmq.message.properties import NAME_END, PROPERTIES_SIZE_MAX, TAGS, find_property
from orbitmq.message.unit import HEADS, INT32, PROPERTIES_LENGTH, SYS_FLAG_LOW_BYTE, properties_of

ITEM_HEAD: Final = struct.Struct(">i8xii")  # size, flag, body size
ENTRY: Final[struct.Struct] = struct.Struct(">qiq")  # of a queue: physical offset of a message, its size, its tag hash
UNPACKED_TOGETHER_MAX: Final = (
    1000  # messages of a batch: of each the struct that reads all needs 32 bytes, and is kept
)
ITEM_OVERHEAD: Final = ITEM_HEAD.size + PROPERTIES_LENGTH.size
PAIR_END: Final = b"\x02"
TAGS_START: Final = (TAGS + NAME_END).encode()
MAGIC_AT, QUEUE_ID_AT, SHARED_AT = 4, 12, 36  # in a unit; what follows from system flag on is the same in a whole batch


def encode_batch(items: Iterable[tuple[int, bytes, str]]) -> bytes:
    """The batch body of (flag, body, properties text). MessageIllegal when a properties text is too long."""
    parts: list[bytes] = []
    for flag, body, text in items:
        properties = text.encode()
        if len(properties) > PROPERTIES_SIZE_MAX:
            raise MessageIllegal(f"properties of {len(properties)} bytes, at most {PROPERTIES_SIZE_MAX} are allowed")
        size = ITEM_OVERHEAD + len(body) + len(properties)
        parts += (
            ITEM_HEAD.pack(size, flag, len(body)),
            body,
            PROPERTIES_LENGTH.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


class PackedBatch(NamedTuple):
    """The units of a batch, the entry of each message, and the size of all bodies."""

    units: bytes | bytearray
    entries: bytes | bytearray
    bodies_size: int

    @property
    def message_count(self) -> int:
        """Messages."""
        return len(self.entries) // ENTRY.size

    def places(self) -> tuple[int, ...]:
        """The physical offset of each message."""
        if self.message_count > UNPACKED_TOGETHER_MAX:
            return tuple([place for place, _, _ in ENTRY.iter_unpack(self.entries)])
        return _places(self.message_count).unpack(self.entries)

    def codes(self) -> tuple[int, ...]:
        """The tag hash of each message."""
        if self.message_count > UNPACKED_TOGETHER_MAX:
            return tuple([code for _, _, code in ENTRY.iter_unpack(self.entries)])
        return _codes(self.message_count).unpack(self.entries)

    def texts(self) -> list[bytes]:
        """The properties of each message."""
        texts, at = [], 0
        for _, size, _ in ENTRY.iter_unpack(self.entries):
            texts.append(properties_of(self.units, at))
            at += size
        return texts

    def entries_with(self, codes: Iterable[int]) -> bytes:
        """The entries with other codes than the tag hashes."""
        entries = ENTRY.iter_unpack(self.entries)
        return b"".join([ENTRY.pack(place, size, code) for (place, size, _), code in zip(entries, codes, strict=True)])


def pack_batch(
    items: bytes, empty_unit: bytes, common: bytes, queue_offset: int, physical_offset: int, size_max: int
) -> PackedBatch:
    """Make units of a batch body, the first at these offsets. `empty_unit` is one without body and properties: it has
    the fields that the messages share. `common` are properties added to each.

    BodyError if an item is truncated or its lengths disagree, MessageIllegal if a properties text becomes too long,
    BodyTooLarge, before they are made, for units of more than `size_max` bytes: the shared part may be a thousand times
    an item.
    """
    head_size = HEADS[empty_unit[SYS_FLAG_LOW_BYTE] >> 4 & 3].size
    make = pack if IS_COMPILED else pack_by_struct
    return PackedBatch(*make(items, empty_unit, common, head_size, queue_offset, physical_offset, size_max))


def pack_by_struct(
    items: bytes,
    empty_unit: bytes,
    common: bytes,
    head_size: int,
    queue_offset: int,
    physical_offset: int,
    size_max: int,
) -> tuple[bytes, bytes, int]:
    """`batch_loops.pack` for where that is not compiled, in one pass: batches are how the highest rates come in."""
    magic, shared = empty_unit[MAGIC_AT : MAGIC_AT + 4], empty_unit[SHARED_AT : head_size - INT32.size]
    topic = empty_unit[head_size : -PROPERTIES_LENGTH.size]  # with its length
    (queue_id,) = INT32.unpack_from(empty_unit, QUEUE_ID_AT)
    pack_head = _head(len(shared)).pack
    unpack_item, unpack_length = ITEM_HEAD.unpack_from, PROPERTIES_LENGTH.unpack_from
    view = memoryview(items)
    common_after_pair = PAIR_END + common if common else b""
    before_text, last_text_size = b"", -1  # topic and length of the properties, which are as long as the last as a rule
    parts: list[bytes | memoryview] = []
    entries: list[bytes] = []
    overhead, end = len(empty_unit), len(items)
    offset, place = queue_offset, physical_offset
    position = bodies_size = 0
    try:
        while position < end:
            item_size, flag, body_size = unpack_item(items, position)
            body_at = position + ITEM_HEAD.size
            body_end = body_at + body_size
            (text_size,) = unpack_length(items, body_end)
            text_at = body_end + PROPERTIES_LENGTH.size
            item_end = position + item_size
            if body_size < 0 or text_size < 0 or text_at + text_size != item_end or item_end > end:
                raise BodyError(f"the lengths of the batch item at {position} disagree")
            text = items[text_at:item_end]
            text += common_after_pair if text_size > 0 and text[text_size - 1] != 2 else common
            text_size = len(text)
            if text_size != last_text_size:
                before_text = topic + _length_of(text_size)
                last_text_size = text_size
            size = overhead + body_size + text_size
            if place + size - physical_offset > size_max:
                raise BodyTooLarge(f"the messages of the batch are larger than {size_max} bytes")
            body = items[body_at:body_end] if body_size <= COPIED_MAX else view[body_at:body_end]
            crc = crc32(body) & CRC_MASK
            parts.append(pack_head(size, magic, crc, queue_id, flag, offset, place, shared, body_size))
            parts.append(body)
            parts.append(before_text)
            parts.append(text)
            entries.append(ENTRY.pack(place, size, tags_code(find_property(text, TAGS_START))))
            offset += 1
            place += size
            bodies_size += body_size
            position = item_end
    except struct.error as error:
        raise BodyError(f"the batch item at {position} is truncated") from error
    return b"".join(parts), b"".join(entries), bodies_size


@lru_cache(maxsize=64)
def _places(count: int) -> struct.Struct:
    return struct.Struct(">" + "q12x" * count)


@lru_cache(maxsize=64)
def _codes(count: int) -> struct.Struct:
    return struct.Struct(">" + "12xq" * count)


@cache
def _head(shared_size: int) -> struct.Struct:
    """size, magic, CRC, queue id, flag, queue offset, physical offset, shared fields, body size"""
    return struct.Struct(f">i4siiiqq{shared_size}si")


def _length_of(properties_size: int) -> bytes:
    if properties_size > PROPERTIES_SIZE_MAX:
        raise MessageIllegal(f"properties of {properties_size} bytes, at most {PROPERTIES_SIZE_MAX} are allowed")
    return PROPERTIES_LENGTH.pack(properties_size)
