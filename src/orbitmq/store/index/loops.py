# cython: wraparound=False, boundscheck=False, annotation_typing=False
"""The two loops over every key of the index: one finds keys in the commit log, one adds them to a file.

In the platform wheel Cython compiles them, with the types of the `.pxd` next to this file, to loops over machine
integers: a tenth of the time that mypyc's code takes, which makes an object of every number from a buffer or a list.
Interpreted they serve tests only; `key_scan` and `struct`, which process hundreds of keys at once, are cheaper there.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from mmap import mmap
from typing import Final

from orbitmq.message.flags import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from orbitmq.message.properties import KEYS, UNIQ_KEY
from orbitmq.message.unit import MAGIC, STORE_TIMESTAMP_V4, SYS_FLAG_LOW_BYTE, V6_EXTRA
from orbitmq.store.index.key_scan import HASH_MAX, HashedKeys, key_hash

IS_COMPILED: Final = not __file__.endswith(".py")

# Constants of this module, inlined where it is compiled.
_HEAD_SIZE = 88  # of a unit with two IPv4 hosts, up to and including the body length
_MAGIC = MAGIC
_SYS_FLAG_AT = SYS_FLAG_LOW_BYTE
_TIME_AT = STORE_TIMESTAMP_V4
_V6_EXTRA = V6_EXTRA
_KIND_MASK = TRANSACTION_MASK
_KIND_ROLLBACK = TRANSACTION_ROLLBACK
_HASH_MAX = HASH_MAX
_WORD = 0xFFFFFFFF
_NAME_END = 1
_PAIR_END = 2
_BLANK = 32
_JOINT = 35
_ASCII_END = 128
_SLOTS_AT = 40  # in an index file, see the layout in `file`
_ENTRY_SIZE = 20
_SECONDS_MAX = 0x7FFFFFFF
_ROWS = 1024  # that there is room for at first

_UNIQ_KEY: Final = UNIQ_KEY.encode()
_KEYS: Final = KEYS.encode()


# ------------------------------------------------------------------------------------------------------------- finding


class _Rows:
    """Keys that were found: of each its hash, the place of its message in the log, and the store time of that."""

    def __init__(self) -> None:
        self.room = _ROWS
        self.count = 0
        self.numbers = array("q", bytes(24 * _ROWS))


def walk(data: bytes, offset: int, count_max: int) -> tuple[int, HashedKeys]:
    """The result of `key_scan.scan`, with the hashes of the keys, byte by byte."""
    rows = _Rows()
    size = _find(data, offset, count_max, rows)
    found = HashedKeys([], [], [])
    for row in range(rows.count):
        found.hashes.append(rows.numbers[3 * row])
        found.offsets.append(rows.numbers[3 * row + 1])
        found.timestamps.append(rows.numbers[3 * row + 2])
    return size, found


def _find(data: bytes, offset: int, count_max: int, rows: _Rows) -> int:
    """How many bytes of `data` are whole messages, whose keys are appended to `rows`.

    Compiled, no index into `data` is checked: each is below the end of a unit, and that is checked.
    """
    bytes_ = data
    length = len(data)
    position = 0
    left = count_max
    while left > 0 and position + _HEAD_SIZE <= length:
        left -= 1
        flags = bytes_[position + _SYS_FLAG_AT]
        born_extra = _V6_EXTRA * (flags >> 4 & 1)
        body_at = position + _HEAD_SIZE + born_extra + _V6_EXTRA * (flags >> 5 & 1)
        if body_at > length:
            break
        end = position + _int32(bytes_, position)
        topic_at = body_at + _int32(bytes_, body_at - 4) + 1
        if _int32(bytes_, position + 4) != _MAGIC or end > length or not position < topic_at < end:
            break
        if flags & _KIND_MASK != _KIND_ROLLBACK:
            time_at = position + _TIME_AT + born_extra
            timestamp = (_int32(bytes_, time_at) << 32) | (_int32(bytes_, time_at + 4) & _WORD)
            _add_keys(rows, bytes_, topic_at, end, offset + position, timestamp)
        position = end
    return position


def _append(rows: _Rows, key_hash_: int, offset: int, timestamp: int) -> None:
    if rows.count == rows.room:
        rows.numbers = array("q", bytes(rows.numbers) + bytes(24 * rows.room))
        rows.room *= 2
    at = 3 * rows.count
    rows.numbers[at] = key_hash_
    rows.numbers[at + 1] = offset
    rows.numbers[at + 2] = timestamp
    rows.count += 1


def _int32(data: bytes, at: int) -> int:
    value = data[at]
    value = value << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
    return value - ((value >> 31) << 32)


def _add_keys(rows: _Rows, data: bytes, topic_at: int, end: int, offset: int, timestamp: int) -> None:
    """The unique id, then the words of the keys. Pairs without a name or a value do not count; of equal names the last
    one does.
    """
    topic_end = topic_at + data[topic_at - 1]
    unique_at = unique_end = keys_at = keys_end = 0
    pair_at = topic_end + 2
    while pair_at < end:
        name_end = pair_at
        while name_end < end and data[name_end] != _NAME_END and data[name_end] != _PAIR_END:
            name_end += 1
        pair_end = name_end
        while pair_end < end and data[pair_end] != _PAIR_END:
            pair_end += 1
        if name_end + 1 < pair_end:
            if name_end - pair_at == 8 and data[pair_at:name_end] == _UNIQ_KEY:
                unique_at, unique_end = name_end + 1, pair_end
            elif name_end - pair_at == 4 and data[pair_at:name_end] == _KEYS:
                keys_at, keys_end = name_end + 1, pair_end
        pair_at = pair_end + 1
    if unique_at == keys_at:  # there are none
        return
    begun = _hash_on(0, data, topic_at, topic_end)
    if begun >= 0:
        begun = (31 * begun + _JOINT) & _WORD
    if unique_at > 0:
        _append(rows, _hash_of(begun, data, topic_at, topic_end, unique_at, unique_end), offset, timestamp)
    while keys_at < keys_end:
        word_end = keys_at
        while word_end < keys_end and data[word_end] != _BLANK:
            word_end += 1
        if word_end > keys_at:
            _append(rows, _hash_of(begun, data, topic_at, topic_end, keys_at, word_end), offset, timestamp)
        keys_at = word_end + 1


def _hash_on(value: int, data: bytes, start: int, end: int) -> int:
    """The hash of a text so far, after some more bytes of it; -1 where they are not all ASCII."""
    while start < end:
        if data[start] >= _ASCII_END:
            return -1
        value = (31 * value + data[start]) & _WORD
        start += 1
    return value


def _hash_of(begun: int, data: bytes, topic_at: int, topic_end: int, at: int, end: int) -> int:
    """`key_hash` of one key; `begun` is the hash up to the key, or -1."""
    value = _hash_on(begun, data, at, end) if begun >= 0 else -1
    if value < 0:
        return key_hash(data[topic_at:topic_end], data[at:end])
    return ((_WORD + 1 - value) if value > _HASH_MAX else value) & _HASH_MAX


# ------------------------------------------------------------------------------------------------------------ entering


def enter(
    data: mmap | bytearray, slot_count: int, number: int, begin: int,
    hashes: Sequence[int], offsets: Sequence[int], timestamps: Sequence[int],
) -> int:  # fmt: skip
    """Write the rows of the columns into an index file as its entries from `number` on, each with the slot that points
    to it; returns how many of the slots were empty. `begin` is the time, in milliseconds, from which seconds are
    counted; 0 if there is none. IndexError, and nothing is written, for rows outside the file.
    """
    table = data
    count = len(hashes)
    at = _place(len(data), slot_count, number, count)
    if count > min(len(offsets), len(timestamps)):
        raise IndexError(f"no place for {count} entries from {number} on")
    fresh = 0
    for row in range(count):
        seconds = _seconds(begin, timestamps[row])
        fresh += _enter(table, slot_count, at + _ENTRY_SIZE * row, number + row, hashes[row], offsets[row], seconds)
    return fresh


def enter_found(
    log: bytes, offset: int, count_max: int, data: mmap | bytearray, slot_count: int, number: int, room: int, begin: int
) -> tuple[int, int, int, int, int]:  # fmt: skip
    """`walk` and `enter` in one, without an object for each number. Returns how many bytes of `log` are done, how many
    keys they have, how many slots were empty, and place and store time of the last key's message; only zeros, and
    nothing is written, if there are more keys than `room`.
    """
    rows = _Rows()
    size = _find(log, offset, count_max, rows)
    count = rows.count
    if count > room:
        return 0, 0, 0, 0, 0
    table = data
    at = _place(len(data), slot_count, number, count)
    fresh = 0
    for row in range(count):
        seconds = _seconds(begin, rows.numbers[3 * row + 2])
        place = rows.numbers[3 * row + 1]
        fresh += _enter(table, slot_count, at + _ENTRY_SIZE * row, number + row, rows.numbers[3 * row], place, seconds)
    if count == 0:
        return size, 0, 0, 0, 0
    return size, count, fresh, rows.numbers[3 * count - 2], rows.numbers[3 * count - 1]


def _place(size: int, slot_count: int, number: int, count: int) -> int:
    """Where in a file of `size` bytes the entry `number` is. IndexError unless it and the next ones lie inside."""
    at = _SLOTS_AT + 4 * slot_count + _ENTRY_SIZE * number
    if slot_count <= 0 or number <= 0 or count > (size - at) // _ENTRY_SIZE:
        raise IndexError(f"no place for {count} entries from {number} on")
    return at


def _seconds(begin: int, timestamp: int) -> int:
    if begin <= 0:
        return 0
    seconds = (timestamp - begin) // 1000
    if seconds < 0:  # the clock was set back, or by decades
        return 0
    return min(_SECONDS_MAX, seconds)


def _enter(
    table: mmap | bytearray, slot_count: int, at: int, number: int, key_hash_: int, offset: int, seconds: int
) -> int:  # fmt: skip
    """Write one entry, then the slot that points to it; 1 if that was empty."""
    slot_at = _SLOTS_AT + 4 * (key_hash_ % slot_count)
    previous = table[slot_at]
    previous = previous << 24 | table[slot_at + 1] << 16 | table[slot_at + 2] << 8 | table[slot_at + 3]
    _put(table, at, key_hash_)
    _put(table, at + 4, offset >> 32)
    _put(table, at + 8, offset)
    _put(table, at + 12, seconds)
    _put(table, at + 16, previous)
    _put(table, slot_at, number)
    return 1 if previous == 0 else 0


def _put(table: mmap | bytearray, at: int, value: int) -> None:
    table[at] = value >> 24 & 255
    table[at + 1] = value >> 16 & 255
    table[at + 2] = value >> 8 & 255
    table[at + 3] = value & 255
