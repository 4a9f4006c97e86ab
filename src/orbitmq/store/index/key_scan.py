"""Finds the keys of messages in the bytes of the commit log, and hashes them. Pure: bytes in, columns out.

A message is indexed under its unique id and under every word of its keys, each together with its topic. Hundreds of
messages are scanned together: one by one, hashing their keys alone would cost more than storing them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from orbitmq.message.flags import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from orbitmq.message.java_hash import CELL_SIZE_MAX, string_hash, string_hashes
from orbitmq.message.properties import KEYS, NAME_END, UNIQ_KEY, find_property
from orbitmq.message.unit import MAGIC, SYS_FLAG_LOW_BYTE, Buffer, decode_unit

# What of a unit's head matters here: size, magic, system flag, store timestamp, body size; by the two IPv6 bits.
HEADS: Final = tuple(struct.Struct(f">ii28xi{8 + born}xq{store + 12}xi") for store in (8, 20) for born in (8, 20))
HASH_MAX: Final = 0x7FFFFFFF
JOINT: Final = b"#"
_UNIQ_KEY: Final = (UNIQ_KEY + NAME_END).encode()
_KEYS: Final = (KEYS + NAME_END).encode()


class FoundKeys(NamedTuple):
    """Columns with one row a key, in the order of the log."""

    topics: list[bytes]
    keys: list[bytes]
    offsets: list[int]
    timestamps: list[int]


class HashedKeys(NamedTuple):
    """The same, with the hash of each key instead of its topic and itself."""

    hashes: list[int]
    offsets: list[int]
    timestamps: list[int]


def scan(data: bytes, offset: int, count_max: int) -> tuple[int, FoundKeys]:
    """The keys of up to `count_max` whole units from the start of `data` on, which lies at `offset` of the log; how
    many bytes those units take comes first. The scan ends before anything that is no whole unit.
    """
    found = FoundKeys([], [], [], [])
    topics, keys, offsets, timestamps = found
    position, length = 0, len(data)
    with suppress(struct.error, IndexError):  # the last unit is cut off inside its head
        for _ in range(count_max):
            head = HEADS[data[position + SYS_FLAG_LOW_BYTE] >> 4 & 3]
            size, magic, sys_flag, timestamp, body_size = head.unpack_from(data, position)
            end = position + size
            topic_at = position + head.size + body_size + 1
            if magic != MAGIC or end > length or not position < topic_at < end:
                break
            topic_end = topic_at + data[topic_at - 1]
            if sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
                topic = data[topic_at:topic_end]
                for key in keys_of(data[topic_end + 2 : end]):
                    topics.append(topic)
                    keys.append(key)
                    offsets.append(offset + position)
                    timestamps.append(timestamp)
            position = end
    return position, found


def scan_one(data: Buffer, offset: int) -> tuple[int, FoundKeys]:
    """The same for the first unit of `data`, of whatever kind. UnitError if there is none."""
    unit = decode_unit(data, with_body=False)
    keys = keys_of(unit.properties.encode())
    if unit.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        keys = []
    count = len(keys)
    found = FoundKeys([unit.topic.encode()] * count, keys, [offset] * count, [unit.store_timestamp] * count)
    return unit.size, found


def keys_of(properties: bytes) -> list[bytes]:
    """The unique id, then the words of the keys."""
    unique = find_property(properties, _UNIQ_KEY)
    words = find_property(properties, _KEYS)
    found = [unique] if unique else []
    if words:
        found += [word for word in words.split(b" ") if word] if b" " in words else [words]
    return found


def key_hashes(topics: Sequence[bytes], keys: Sequence[bytes]) -> list[int]:
    """`key_hash` of each topic with its key."""
    if max(map(len, keys), default=0) > CELL_SIZE_MAX or not b"".join(keys).isascii():
        return list(map(key_hash, topics, keys))
    hashes = list(map(abs, string_hashes(topics, JOINT, keys)))
    return [value & HASH_MAX for value in hashes] if max(hashes, default=0) > HASH_MAX else hashes


def key_hash(topic: bytes, key: bytes) -> int:
    """What the index stores for a key: the absolute value of the hash of `topic#key`, 0 for the smallest number."""
    text = topic + JOINT + key
    return abs(string_hash(text.decode("utf-8", "replace"))) & HASH_MAX
