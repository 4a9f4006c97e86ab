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
from typing import NamedTuple

from orbitmq.errors import BodyError, MessageIllegal
from orbitmq.message.properties import PROPERTIES_SIZE_MAX

ITEM_HEAD = struct.Struct(">iiiii")
PROPERTIES_LENGTH = struct.Struct(">h")
ITEM_OVERHEAD = ITEM_HEAD.size + PROPERTIES_LENGTH.size


class BatchItem(NamedTuple):
    """One message of a batch; `properties` is the encoded text in UTF-8."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(items: Iterable[tuple[int, bytes, str]]) -> bytes:
    """The batch body of (flag, body, properties text). MessageIllegal when a properties text is too long."""
    parts: list[bytes] = []
    for flag, body, text in items:
        properties = text.encode()
        if len(properties) > PROPERTIES_SIZE_MAX:
            raise MessageIllegal(f"properties of {len(properties)} bytes, at most {PROPERTIES_SIZE_MAX} are allowed")
        size = ITEM_OVERHEAD + len(body) + len(properties)
        parts += (
            ITEM_HEAD.pack(size, 0, 0, flag, len(body)),
            body,
            PROPERTIES_LENGTH.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch(buffer: bytes | memoryview) -> list[BatchItem]:
    """The messages of a batch body. BodyError when an item is truncated or its lengths disagree."""
    items = []
    position = 0
    try:
        while position < len(buffer):
            size, _, _, flag, body_size = ITEM_HEAD.unpack_from(buffer, position)
            body_at = position + ITEM_HEAD.size
            properties_length_at = body_at + body_size
            (properties_size,) = PROPERTIES_LENGTH.unpack_from(buffer, properties_length_at)
            properties_at = properties_length_at + PROPERTIES_LENGTH.size
            end = properties_at + properties_size
            if body_size < 0 or properties_size < 0 or end != position + size or end > len(buffer):
                raise BodyError(f"the lengths of the batch item at {position} disagree")
            body = bytes(buffer[body_at:properties_length_at])
            items.append(BatchItem(flag, body, bytes(buffer[properties_at:end])))
            position = end
    except struct.error as error:
        raise BodyError(f"the batch item at {position} is truncated") from error
    return items
