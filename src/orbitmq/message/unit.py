"""The message unit: the same bytes in the commit log and in the body of a pull response. Pure.

    size | field
       4 | total size of the unit, this field included
       4 | magic 0xDAA320A7 (0xDAA320AB, written by RocketMQ 5 for long topics: the topic length has two bytes)
       4 | CRC-32 of the stored body with the highest bit cleared
       4 | queue id
       4 | flag of the producer
       8 | queue offset
       8 | physical offset
       4 | system flag
       8 | born timestamp
    8/20 | born host, 20 if the system flag says IPv6
       8 | store timestamp
    8/20 | store host, likewise
       4 | reconsume times
       8 | physical offset of the half message, for a committed transaction
     4+B | body
     1+T | topic
     2+P | properties

At the end of a commit log file a blank record takes the place of a unit: 4 bytes size of the rest of the file, 4 bytes
magic 0xCBD43194.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from orbitmq.errors import UnitError
from orbitmq.message.checksum import CRC_MASK, crc32
from orbitmq.message.compression import decompress as decompress_body
from orbitmq.message.hosts import host_text
from orbitmq.message.ids import offset_message_id
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import UNIQ_KEY, decode_properties

Buffer = bytes | bytearray | memoryview

MAGIC: Final = 0xDAA320A7 - (1 << 32)
MAGIC_LONG_TOPIC: Final = 0xDAA320AB - (1 << 32)
BLANK_MAGIC: Final = 0xCBD43194 - (1 << 32)
UNIT_OVERHEAD: Final = 91  # all fixed fields with two IPv4 hosts
V6_EXTRA: Final = 12  # by which an IPv6 host field is longer

# Heads up to and including the body length, by the two IPv6 bits of the system flag.
HEADS: Final = tuple(struct.Struct(f">iiiiiqqiq{born}sq{store}siqi") for store in (8, 20) for born in (8, 20))
TOPIC_LENGTH: Final = struct.Struct(">b")
TOPIC_LENGTHS: Final = {MAGIC: TOPIC_LENGTH, MAGIC_LONG_TOPIC: struct.Struct(">h")}
PROPERTIES_LENGTH: Final = struct.Struct(">h")
BLANK: Final = struct.Struct(">ii")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
SYS_FLAG_LOW_BYTE: Final = 39  # position of the byte that holds the IPv6 bits
STORE_TIMESTAMP_V4: Final = 56  # position of the store timestamp behind an IPv4 born host


class Unit(msgspec.Struct, gc=False):
    """One decoded unit; hosts stay bytes, text is decoded."""

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: str


def body_crc(body: Buffer) -> int:
    """CRC-32 as the unit stores it."""
    return crc32(body) & CRC_MASK


def unit_size(sys_flag: int, body: Buffer, topic: bytes, properties: bytes) -> int:
    """Size of the unit with these parts."""
    size = UNIT_OVERHEAD + len(body) + len(topic) + len(properties)
    return size + V6_EXTRA * (sys_flag >> 4 & 1) + V6_EXTRA * (sys_flag >> 5 & 1) if sys_flag & 0x30 else size


def pack_unit(
    size: int,
    crc: int,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: Buffer,
    topic: bytes,
    properties: bytes,
) -> bytes:
    """The bytes of a unit. The caller has checked every length; `size` is `unit_size` of the parts."""
    head = HEADS[sys_flag >> 4 & 3].pack(
        size,
        MAGIC,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        len(body),
    )
    return b"".join(
        (head, body, TOPIC_LENGTH.pack(len(topic)), topic, PROPERTIES_LENGTH.pack(len(properties)), properties)
    )


def encode_unit(unit: Unit) -> bytes:
    """The bytes of `unit`; its size is computed, its other fields are taken as they are."""
    topic = unit.topic.encode()
    properties = unit.properties.encode()
    try:
        return pack_unit(
            unit_size(unit.sys_flag, unit.body, topic, properties),
            unit.body_crc,
            unit.queue_id,
            unit.flag,
            unit.queue_offset,
            unit.physical_offset,
            unit.sys_flag,
            unit.born_timestamp,
            unit.born_host,
            unit.store_timestamp,
            unit.store_host,
            unit.reconsume_times,
            unit.prepared_transaction_offset,
            unit.body,
            topic,
            properties,
        )
    except struct.error as error:
        raise UnitError(f"a field of the unit is out of range: {error}") from error


def decode_unit(buffer: Buffer, position: int = 0, *, with_body: bool = True) -> Unit:
    """The unit that starts at `position`. UnitError when it is truncated, no unit, or its lengths disagree."""
    try:
        head = HEADS[buffer[position + SYS_FLAG_LOW_BYTE] >> 4 & 3]
        (
            size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp, born_host,
            store_timestamp, store_host, reconsume_times, prepared_transaction_offset, body_size,
        ) = head.unpack_from(buffer, position)  # fmt: skip
        topic_length_field = TOPIC_LENGTHS[magic]
        body_at = position + head.size
        topic_length_at = body_at + body_size
        (topic_size,) = topic_length_field.unpack_from(buffer, topic_length_at)
        topic_at = topic_length_at + topic_length_field.size
        properties_length_at = topic_at + topic_size
        (properties_size,) = PROPERTIES_LENGTH.unpack_from(buffer, properties_length_at)
        properties_at = properties_length_at + PROPERTIES_LENGTH.size
        end = properties_at + properties_size
        if body_size < 0 or topic_size < 0 or properties_size < 0 or end != position + size or end > len(buffer):
            raise UnitError(f"the lengths of the unit at {position} disagree")
        return Unit(
            size, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp, born_host,
            store_timestamp, store_host, reconsume_times, prepared_transaction_offset,
            bytes(buffer[body_at:topic_length_at]) if with_body else b"",
            str(buffer[topic_at:properties_length_at], "utf-8", "replace"),
            str(buffer[properties_at:end], "utf-8", "replace"),
        )  # fmt: skip
    except KeyError:
        raise UnitError(f"no message unit at {position}: its magic is unknown") from None
    except (struct.error, IndexError) as error:
        raise UnitError(f"the unit at {position} is truncated") from error


def decode_units(buffer: Buffer) -> list[Unit]:
    """Every unit of a buffer that holds units only. UnitError as in `decode_unit`."""
    units = []
    position = 0
    while position < len(buffer):
        unit = decode_unit(buffer, position)
        units.append(unit)
        position += unit.size
    return units


def store_timestamp_of(buffer: Buffer, position: int = 0) -> int:
    """The store timestamp of the unit at `position`, without decoding the rest."""
    born_extra = V6_EXTRA if buffer[position + SYS_FLAG_LOW_BYTE] & 0x10 else 0
    timestamp: int = INT64.unpack_from(buffer, position + STORE_TIMESTAMP_V4 + born_extra)[0]
    return timestamp


def properties_of(buffer: Buffer, position: int = 0) -> bytes:
    """The encoded properties of the unit at `position`. UnitError if it is truncated or no unit."""
    try:
        head = HEADS[buffer[position + SYS_FLAG_LOW_BYTE] >> 4 & 3]
        topic_length_field = TOPIC_LENGTHS[INT32.unpack_from(buffer, position + 4)[0]]
        at = position + head.size + INT32.unpack_from(buffer, position + head.size - 4)[0]
        at += topic_length_field.size + topic_length_field.unpack_from(buffer, at)[0]
        (size,) = PROPERTIES_LENGTH.unpack_from(buffer, at)
    except KeyError:
        raise UnitError(f"no message unit at {position}: its magic is unknown") from None
    except (struct.error, IndexError) as error:
        raise UnitError(f"the unit at {position} is truncated") from error
    at += PROPERTIES_LENGTH.size
    if not 0 <= size <= len(buffer) - at:
        raise UnitError(f"the lengths of the unit at {position} disagree")
    return bytes(buffer[at : at + size])


def message_of(unit: Unit, broker_name: str = "", *, decompress: bool = True) -> MessageExt:
    """The message a consumer sees. UnitError when a compressed body cannot be unpacked."""
    properties = decode_properties(unit.properties)
    offset_id = offset_message_id(unit.store_host, unit.physical_offset)
    return MessageExt(  # in the order of its fields: names would cost a fifth more, once a message
        unit.topic,
        decompress_body(unit.body, unit.sys_flag) if decompress else unit.body,
        unit.flag,
        properties,
        None,
        broker_name,
        unit.queue_id,
        unit.queue_offset,
        unit.size,
        unit.sys_flag,
        unit.born_timestamp,
        host_text(unit.born_host),
        unit.store_timestamp,
        host_text(unit.store_host),
        properties.get(UNIQ_KEY, offset_id),
        offset_id,
        unit.physical_offset,
        unit.body_crc,
        unit.reconsume_times,
        unit.prepared_transaction_offset,
    )
