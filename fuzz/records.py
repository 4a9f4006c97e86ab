"""Promises of what reads messages: units of log and wire, batches, properties, compressed bodies and ids."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC

from fuzz.promise import Target, is_refused, outcome
from orbitmq.errors import BodyError, MessageIllegal, UnitError
from orbitmq.message.batch import ENTRY, encode_batch, pack_batch
from orbitmq.message.compression import COMPRESSION_FLAGS, compress, decompress
from orbitmq.message.flags import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6
from orbitmq.message.hosts import encode_host
from orbitmq.message.ids import decode_offset_message_id, decode_unique_id, offset_message_id
from orbitmq.message.java_hash import tags_code
from orbitmq.message.properties import (
    TAGS,
    EncodedProperties,
    decode_properties,
    encode_properties,
    find_property,
)
from orbitmq.message.unit import (
    BLANK,
    BLANK_MAGIC,
    MAGIC,
    MAGIC_LONG_TOPIC,
    Unit,
    body_crc,
    decode_unit,
    decode_units,
    encode_unit,
    message_of,
    pack_unit,
    properties_of,
    store_timestamp_of,
    unit_size,
)
from orbitmq.store.walk import Walk

UNPACKED_MAX = 1 << 20  # of a compressed body here; the real limit would let each small bomb cost a tenth of a second
V4, V6 = encode_host("10.0.0.1", 10911), encode_host("fd00::1", 10911)
NOW_MS = 1_700_000_000_000

# --------------------------------------------------------------------------------------------------------------- units


def _is_faithful(unit: Unit) -> bool:
    """Whether its texts were UTF-8: what was not is shown with signs in its place, and cannot be written again."""
    return "\ufffd" not in unit.topic and "\ufffd" not in unit.properties


def check_unit(data: bytes) -> None:
    unit = outcome(UnitError, lambda: decode_unit(data))
    properties = outcome(UnitError, lambda: properties_of(data))
    if not is_refused(unit):
        _check_decoded(data, unit, properties)
    many = outcome(UnitError, lambda: decode_units(data))
    if not is_refused(many):
        assert sum(one.size for one in many) == len(data)
    walk = Walk(memoryview(data), 0)
    walked = list(walk)
    assert sum(one.size for one in walked) == walk.position <= len(data)
    assert walk.ended is not None


def _check_decoded(data: bytes, unit: Unit, properties: object) -> None:
    assert unit == decode_unit(memoryview(b"before" + data), 6)
    assert len(unit.body) + len(unit.topic) + len(unit.properties) <= unit.size <= len(data)
    assert store_timestamp_of(data) == unit.store_timestamp
    assert isinstance(properties, bytes)
    assert properties.decode(errors="replace") == unit.properties
    if _is_faithful(unit) and data[4:8] == struct.pack(">i", MAGIC):
        assert encode_unit(unit) == data[: unit.size]
    message = message_of(unit, decompress=False)
    assert message.body is unit.body
    body = outcome(UnitError, lambda: decompress(unit.body, unit.sys_flag, UNPACKED_MAX))
    assert is_refused(body) or len(body) <= max(UNPACKED_MAX, len(unit.body))


def _unit(sys_flag: int, body: bytes, properties: bytes = b"KEYS\x01k\x02TAGS\x01a", place: int = 0) -> bytes:
    topic = b"orders"
    return pack_unit(
        unit_size(sys_flag, body, topic, properties), body_crc(body), 1, 2, 3, place, sys_flag, NOW_MS,
        V6 if sys_flag & BORN_HOST_V6 else V4, NOW_MS, V6 if sys_flag & STORE_HOST_V6 else V4, 0, 0, body, topic,
        properties,
    )  # fmt: skip


def _unit_seeds() -> Iterator[bytes]:
    for sys_flag in (0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6):
        yield _unit(sys_flag, b"body")
    one = _unit(0, b"body")
    yield one + _unit(0, b"", b"", place=len(one)) + BLANK.pack(40, BLANK_MAGIC) + bytes(32)
    yield one[:4] + struct.pack(">i", MAGIC_LONG_TOPIC) + one[8:]
    for kind, flag in COMPRESSION_FLAGS.items():
        yield _unit(COMPRESSED | flag, compress(b"body" * 50, kind))


# ------------------------------------------------------------------------------------------------------------- batches

_COMMON = b"CLUSTER\x01c"
_EMPTY_UNIT = _unit(0, b"", b"")


def check_batch(data: bytes) -> None:
    packed = outcome((BodyError, MessageIllegal), lambda: pack_batch(data, _EMPTY_UNIT, _COMMON, 5, 1000, 1 << 40))
    if is_refused(packed):
        return
    units = decode_units(packed.units)
    entries = list(ENTRY.iter_unpack(packed.entries))
    assert [(place, size) for place, size, _ in entries] == [(unit.physical_offset, unit.size) for unit in units]
    for unit, text, (_, _, code) in zip(units, packed.texts(), entries, strict=True):
        if _is_faithful(unit):
            assert text == unit.properties.encode()
            assert code == tags_code(decode_properties(unit.properties).get(TAGS))
    assert sum(len(unit.body) for unit in units) == packed.bodies_size <= len(data)
    assert all(unit.body_crc == body_crc(unit.body) for unit in units)
    assert [unit.queue_offset for unit in units] == list(range(5, 5 + len(units)))
    assert len(packed.units) <= len(data) + len(units) * (len(_EMPTY_UNIT) + len(_COMMON))


def _batch_seeds() -> Iterator[bytes]:
    yield encode_batch([(0, b"hi", "KEYS\x01k\x02WAIT\x01true"), (7, b"", "")])
    yield encode_batch([(0, b"x" * 100, "A\x01b\x02")])


# ---------------------------------------------------------------------------------------------------------- properties


def check_properties(data: bytes) -> None:
    text = data.decode(errors="replace")
    properties = decode_properties(text)
    assert decode_properties(encode_properties(properties)) == properties
    encoded = text.encode()
    one_by_one = EncodedProperties(encoded)
    for name in (*list(properties)[:8], "KEYS", "TAGS"):
        assert one_by_one.get(name) == properties.get(name)
    find_property(data, b"KEYS\x01")  # of any bytes


def _property_seeds() -> Iterator[bytes]:
    yield b"KEYS\x01a b\x02TAGS\x01t\x02WAIT\x01true\x02"
    yield "KEYS\x01\x02TAGS\x01KEYS\x01x\x02KEYS\x01ä\x02\x01x\x02KEYS".encode()


# -------------------------------------------------------------------------------------------------------------- bodies


def check_compressed(data: bytes) -> None:
    kind = (data[0] if data else 0) % 8
    body = outcome(UnitError, lambda: decompress(data[1:], COMPRESSED | kind << 8, UNPACKED_MAX))
    assert is_refused(body) or len(body) <= UNPACKED_MAX


def _compressed_seeds() -> Iterator[bytes]:
    for kind, flag in COMPRESSION_FLAGS.items():
        for body in (b"", b"body" * 20, bytes(UNPACKED_MAX * 2)):
            yield bytes([flag >> 8]) + compress(body, kind)
    yield b"\0" + compress(b"of old")


# ----------------------------------------------------------------------------------------------------------------- ids


def check_ids(data: bytes) -> None:
    text = data.decode(errors="replace")
    place = outcome(MessageIllegal, lambda: decode_offset_message_id(text))
    if not is_refused(place):
        raw = bytes.fromhex(text)
        assert offset_message_id(raw[:-8], place.physical_offset) == text.upper()
    made = outcome(MessageIllegal, lambda: decode_unique_id(text, NOW_MS, UTC))
    assert is_refused(made) or len(made.ip) in (4, 16)


def _id_seeds() -> Iterator[bytes]:
    for host in (V4, V6):
        yield offset_message_id(host, 1 << 40).encode()
    yield b"7F00000100002A9300000000000A0001"
    yield b"0123456789abcdef" * 4


TARGETS = (
    Target(
        "unit", "a unit or UnitError; written again it is the same bytes; a walk ends", check_unit, _unit_seeds, 80,
        (struct.pack(">i", MAGIC), struct.pack(">i", MAGIC_LONG_TOPIC), BLANK.pack(40, BLANK_MAGIC)),
    ),
    Target(
        "batch", "units with every message of the body, or BodyError, MessageIllegal", check_batch, _batch_seeds, 120,
    ),
    Target(
        "properties", "any text has properties, and one of them is found without reading the rest", check_properties,
        _property_seeds, 100, (b"\x01", b"\x02", b"KEYS\x01", b"TAGS\x01"),
    ),
    Target("compressed", "a body within its limit or UnitError", check_compressed, _compressed_seeds, 2),
    Target("ids", "parts of an id or MessageIllegal", check_ids, _id_seeds, 20, (), 64),
)  # fmt: skip
