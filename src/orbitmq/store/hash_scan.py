"""Finds the hashes of the keys of messages in the bytes of the commit log. Pure: bytes in, columns out.

Where this module is compiled it walks byte by byte, which then costs least; interpreted, it lets `key_scan` look at
hundreds of messages at once. Both find the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.message.flags import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from orbitmq.message.properties import KEYS, UNIQ_KEY
from orbitmq.message.unit import MAGIC, STORE_TIMESTAMP_V4, SYS_FLAG_LOW_BYTE, V6_EXTRA, Buffer
from orbitmq.store.key_scan import HASH_MAX, FoundKeys, key_hash, key_hashes, scan, scan_one

if TYPE_CHECKING:
    from mypy_extensions import i64

IS_COMPILED: Final = not __file__.endswith(".py")

_HEAD_SIZE: Final = 88  # of a unit with two IPv4 hosts, up to and including the body length
_WORD: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_NAME_END: Final = 1
_PAIR_END: Final = 2
_BLANK: Final = 32
_JOINT: Final = 35
_ASCII_END: Final = 128
_UNIQ_KEY: Final = UNIQ_KEY.encode()
_KEYS: Final = KEYS.encode()


class HashedKeys(NamedTuple):
    """Columns with one row a key, in the order of the log."""

    hashes: list[int]
    offsets: list[int]
    timestamps: list[int]


def scan_hashes(data: bytes, offset: int, count_max: int) -> tuple[int, HashedKeys]:
    """`key_scan.scan`, with the hash of each key instead of its topic and itself."""
    if IS_COMPILED:
        return walk(data, offset, count_max)
    size, found = scan(data, offset, count_max)
    return size, hashed(found)


def scan_one_hashes(data: Buffer, offset: int) -> tuple[int, HashedKeys]:
    """The same of `key_scan.scan_one`. UnitError as there."""
    size, found = scan_one(data, offset)
    return size, hashed(found)


def hashed(found: FoundKeys) -> HashedKeys:
    return HashedKeys(key_hashes(found.topics, found.keys), found.offsets, found.timestamps)


def walk(data: bytes, offset: int, count_max: int) -> tuple[int, HashedKeys]:
    """What `scan_hashes` gives, byte by byte."""
    found = HashedKeys([], [], [])
    position: i64 = 0
    length: i64 = len(data)
    base: i64 = offset
    left: i64 = count_max
    while left > 0 and position + _HEAD_SIZE <= length:
        left -= 1
        flags: i64 = data[position + SYS_FLAG_LOW_BYTE]
        born_extra: i64 = V6_EXTRA * (flags >> 4 & 1)
        body_at: i64 = position + _HEAD_SIZE + born_extra + V6_EXTRA * (flags >> 5 & 1)
        if body_at > length:
            break
        end: i64 = position + _int32(data, position)
        topic_at: i64 = body_at + _int32(data, body_at - 4) + 1
        if _int32(data, position + 4) != MAGIC or end > length or not position < topic_at < end:
            break
        topic_end: i64 = topic_at + data[topic_at - 1]
        if flags & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            time_at: i64 = position + STORE_TIMESTAMP_V4 + born_extra
            timestamp: i64 = _int32(data, time_at) << 32 | _int32(data, time_at + 4) & _WORD
            _add_keys(found, data, topic_at, topic_end, end, base + position, timestamp)
        position = end
    return position, found


def _int32(data: bytes, at: i64) -> i64:
    first: i64 = data[at]
    second: i64 = data[at + 1]
    third: i64 = data[at + 2]
    last: i64 = data[at + 3]
    value: i64 = first << 24 | second << 16 | third << 8 | last
    return value - 2 * _SIGN if value & _SIGN else value


def _add_keys(
    found: HashedKeys, data: bytes, topic_at: i64, topic_end: i64, end: i64, place: i64, timestamp: i64
) -> None:
    """The unique id, then the words of the keys. Pairs without a name or a value do not count; of equal names the last
    one does.
    """
    unique_at: i64 = 0
    unique_end: i64 = 0
    keys_at: i64 = 0
    keys_end: i64 = 0
    pair_at: i64 = topic_end + 2
    while pair_at < end:
        name_end: i64 = pair_at
        while name_end < end:
            byte: i64 = data[name_end]
            if byte in (_NAME_END, _PAIR_END):
                break
            name_end += 1
        pair_end: i64 = name_end
        while pair_end < end and data[pair_end] != _PAIR_END:
            pair_end += 1
        if name_end + 1 < pair_end:
            size: i64 = name_end - pair_at
            if size == 8 and data[pair_at:name_end] == _UNIQ_KEY:
                unique_at, unique_end = name_end + 1, pair_end
            elif size == 4 and data[pair_at:name_end] == _KEYS:
                keys_at, keys_end = name_end + 1, pair_end
        pair_at = pair_end + 1
    if unique_at == keys_at:  # there are none
        return
    begun: i64 = _hash_on(0, data, topic_at, topic_end)
    if begun >= 0:
        begun = (31 * begun + _JOINT) & _WORD
    if unique_at > 0:
        _add(found, begun, data, topic_at, topic_end, unique_at, unique_end, place, timestamp)
    while keys_at < keys_end:
        word_end: i64 = keys_at
        while word_end < keys_end and data[word_end] != _BLANK:
            word_end += 1
        if word_end > keys_at:
            _add(found, begun, data, topic_at, topic_end, keys_at, word_end, place, timestamp)
        keys_at = word_end + 1


def _hash_on(value: i64, data: bytes, start: i64, end: i64) -> i64:
    """The hash of a text so far, after some more bytes of it; -1 where they are not all ASCII."""
    while start < end:
        byte: i64 = data[start]
        if byte >= _ASCII_END:
            return -1
        value = (31 * value + byte) & _WORD
        start += 1
    return value


def _add(
    found: HashedKeys, begun: i64, data: bytes, topic_at: i64, topic_end: i64, at: i64, end: i64, place: i64,
    timestamp: i64,
) -> None:  # fmt: skip
    """One key; `begun` is the hash up to the key, or -1."""
    value: i64 = _hash_on(begun, data, at, end) if begun >= 0 else -1
    if value < 0:
        found.hashes.append(key_hash(data[topic_at:topic_end], data[at:end]))
    else:
        found.hashes.append((2 * _SIGN - value if value & _SIGN else value) & HASH_MAX)
    found.offsets.append(place)
    found.timestamps.append(timestamp)
