"""Bodies as Confluent's serializers write them, for a schema that a registry keeps.

    size    field
    1       0, the version of the format
    4       id of the schema at the registry, big-endian
    1..     Protobuf only: where the message is in its file, from the outside in: how many numbers there are and the
            numbers, as zigzag varints; the first message of the file is the single byte 0
    rest    the value: JSON, one datum of Avro, or a message of Protobuf

Pure: knows no registry. The format is in Confluent's documentation, "Formats, Serializers, and Deserializers".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from orbitmq.errors import WrongBody

_HEAD: Final = struct.Struct(">bI")
FIRST_MESSAGE: Final = (0,)
DEPTH_MAX: Final = 100  # of messages inside messages: as deep as Protobuf reads them
VARINT_BYTES_MAX: Final = 5  # 32 bits


def head(registry_id: int, indexes: Sequence[int] | None = None) -> bytes:
    """What precedes the value. `indexes` are those of `schemas.protobuf.indexes_of`, None for other kinds."""
    start = _HEAD.pack(0, registry_id)
    if indexes is None:
        return start
    numbers = (0,) if tuple(indexes) == FIRST_MESSAGE else (len(indexes), *indexes)
    return start + b"".join(map(_varint, numbers))


def registry_id(body: bytes) -> int:
    """The id of the schema. WrongBody for a body of another format."""
    if len(body) < _HEAD.size or body[0] != 0:
        begin = body[: _HEAD.size].hex(" ") or "nothing"
        raise WrongBody(f"no body of the registry's format: it begins with {begin}, not with 0 and the id of a schema")
    return int(_HEAD.unpack_from(body)[1])


def value(body: bytes, *, indexed: bool) -> bytes:
    """What follows the id, and with `indexed` the place of the message. WrongBody for a body of another format."""
    registry_id(body)
    at = _HEAD.size
    if indexed:
        numbers = _Varints(body, at)
        count = next(numbers)
        if not 0 <= count <= DEPTH_MAX:
            raise WrongBody(f"no body of the registry's format: {count} numbers for the place of the message")
        for _ in range(count):
            next(numbers)
        at = numbers.at
    return body[at:]


def _varint(number: int) -> bytes:
    rest, out = number << 1, bytearray()  # no number here is negative
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class _Varints(Iterator[int]):
    """Zigzag varints from a place on."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def __next__(self) -> int:
        found = 0
        for place, byte in enumerate(self._data[self.at : self.at + VARINT_BYTES_MAX]):
            found |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                self.at += place + 1
                return found >> 1 ^ -(found & 1)
        raise WrongBody("no body of the registry's format: the place of the message has no end")
