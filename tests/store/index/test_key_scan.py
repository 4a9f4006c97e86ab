"""Search for keys in the part of the log that is not indexed yet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message.flags import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from orbitmq.message.java_hash import CELL_SIZE_MAX
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.unit import MAGIC_LONG_TOPIC, body_crc, pack_unit, unit_size
from orbitmq.store.index.key_scan import FoundKeys, HashedKeys, key_hash, key_hashes, keys_of, scan, scan_one
from orbitmq.store.index.log_keys import hashed, scan_hashes, scan_one_hashes
from orbitmq.store.index.loops import enter, enter_found, walk
from tests.support.golden import vectors
from tests.support.stores import HOST, HOST_V6

START = 1_000_000
KEY = st.text(st.characters(exclude_characters="\x01\x02 ", exclude_categories=["Cs"]), min_size=1, max_size=80)
TOPIC = st.text(st.sampled_from("abT_é%"), min_size=1, max_size=20)
FLAGS = st.sampled_from([0, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK])


@st.composite
def messages(draw: st.DrawFn) -> tuple[bytes, list[str], str, int]:
    """A unit without its place, the keys it is found by, its topic and its store time."""
    topic, unique, words = draw(TOPIC), draw(st.none() | KEY), draw(st.lists(KEY, max_size=3))
    properties = {"UNIQ_KEY": unique, "KEYS": draw(st.sampled_from([" ", "  "])).join(words), "TAGS": "UNIQ_KEY"}
    text = encode_properties({name: value for name, value in properties.items() if value}).encode()
    born, stored, sys_flag = draw(st.sampled_from([HOST, HOST_V6])), draw(st.sampled_from([HOST, HOST_V6])), draw(FLAGS)
    sys_flag |= (0x10 if born == HOST_V6 else 0) | (0x20 if stored == HOST_V6 else 0)
    body, timestamp = draw(st.binary(max_size=30)), draw(st.integers(0, 1 << 50))
    size = unit_size(sys_flag, body, topic.encode(), text)
    unit = pack_unit(
        size, body_crc(body), 0, 0, 0, 0, sys_flag, 1, born, timestamp, stored, 0, 0, body, topic.encode(), text
    )
    keys = [key for key in (unique, *words) if key] if sys_flag & 0xC != TRANSACTION_ROLLBACK else []
    return unit, keys, topic, timestamp


@given(st.lists(messages(), max_size=8), st.integers(0, 200))
def test_every_key_of_every_whole_unit_is_found_in_order(
    stored: list[tuple[bytes, list[str], str, int]], cut: int
) -> None:
    data = b"".join(unit for unit, *_ in stored)
    data = data[: max(0, len(data) - cut)]
    expected = FoundKeys([], [], [], [])
    position = 0
    for unit, keys, topic, timestamp in stored:
        if position + len(unit) > len(data):
            break
        expected.topics.extend([topic.encode()] * len(keys))
        expected.keys.extend(key.encode() for key in keys)
        expected.offsets.extend([START + position] * len(keys))
        expected.timestamps.extend([timestamp] * len(keys))
        position += len(unit)
    assert scan(data, START, 100) == (position, expected)
    assert scan_hashes(data, START, 100) == walk(data, START, 100) == (position, hashed(expected))


@given(messages())
def test_one_unit_is_scanned_like_many(stored: tuple[bytes, list[str], str, int]) -> None:
    assert scan_one(stored[0], START) == scan(stored[0], START, 1)
    assert scan_one_hashes(stored[0], START) == walk(stored[0], START, 1)


def test_a_unit_with_a_long_topic_is_left_to_the_scan_of_one() -> None:
    topic, properties = b"t" * 200, b"KEYS\x01k"
    head = pack_unit(92 + 200 + len(properties), 0, 0, 0, 0, 0, 0, 1, HOST, 5, HOST, 0, 0, b"", b"", b"")[:88]
    head = head[:4] + (MAGIC_LONG_TOPIC + (1 << 32)).to_bytes(4, "big") + head[8:]
    unit = head + len(topic).to_bytes(2, "big") + topic + len(properties).to_bytes(2, "big") + properties
    assert scan(unit, START, 1) == (0, FoundKeys([], [], [], []))
    assert walk(unit, START, 1) == (0, HashedKeys([], [], []))
    assert scan_one(unit, START) == (len(unit), FoundKeys([topic], [b"k"], [START], [5]))


def test_a_scan_takes_no_more_messages_than_asked_for() -> None:
    unit = pack_unit(99, 0, 0, 0, 0, 0, 0, 1, HOST, 5, HOST, 0, 0, b"", b"T", b"KEYS\x01ab")
    assert scan(unit * 5, START, 2)[0] == walk(unit * 5, START, 2)[0] == 2 * len(unit)


@given(st.binary(max_size=300))
def test_a_scan_of_anything_ends(data: bytes) -> None:
    size, _ = scan(data, START, 10)
    assert 0 <= size <= len(data)


@given(st.lists(messages(), min_size=1, max_size=3), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255))))
def test_damage_is_taken_alike_byte_by_byte(
    stored: list[tuple[bytes, list[str], str, int]], damage: list[tuple[int, int]]
) -> None:
    data = bytearray(b"".join(unit for unit, *_ in stored))
    for place, value in damage:
        data[place % len(data)] = value
    size, found = scan(bytes(data), START, 10)
    assert walk(bytes(data), START, 10) == (size, hashed(found))


@given(st.lists(st.tuples(TOPIC, KEY), max_size=30))
def test_hashes_together_are_those_of_one_by_one(pairs: list[tuple[str, str]]) -> None:
    topics, keys = [topic.encode() for topic, _ in pairs], [key.encode() for _, key in pairs]
    assert key_hashes(topics, keys) == [key_hash(*pair) for pair in zip(topics, keys, strict=True)]


def test_hashes_are_those_of_rocketmq() -> None:
    rows = [row for row in vectors()["index_key_hash"] if row["topic"] is not None]
    topics, keys = [row["topic"].encode() for row in rows], [row["key"].encode() for row in rows]
    expected = [row["keyHash"] for row in rows]
    assert list(map(key_hash, topics, keys)) == expected
    short = [index for index, key in enumerate(keys) if key.isascii() and len(key) <= CELL_SIZE_MAX]
    assert key_hashes([topics[i] for i in short], [keys[i] for i in short]) == [expected[i] for i in short]
    assert len(short) > 10


def test_the_hash_of_the_smallest_number_is_zero() -> None:
    assert key_hash(b"", b"") == ord("#")
    topic, key = _text_of_hash(-(2**31))
    assert key_hash(topic, key) == key_hashes([topic], [key])[0] == 0


def _text_of_hash(wanted: int) -> tuple[bytes, bytes]:
    """A topic and a key whose `topic#key` has a hash: digits of the number to base 31 behind a prefix."""
    rest = (wanted - ((ord("T") * 31 + ord("#")) * 31**7)) % 2**32 - sum(40 * 31**power for power in range(7))
    rest %= 2**32
    digits = []
    for _ in range(7):
        rest, digit = divmod(rest, 31)
        digits.append(40 + digit)
    assert rest == 0
    return b"T", bytes(reversed(digits))


@given(st.lists(st.sampled_from(["\x01", "\x02", "UNIQ_KEY", "KEYS", " ", "a", "é"])).map("".join))
def test_keys_are_those_of_the_decoded_properties(text: str) -> None:
    properties = decode_properties(text)
    expected = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
    expected += [word for word in properties.get("KEYS", "").split(" ") if word]
    assert [key.decode() for key in keys_of(text.encode())] == expected


@given(st.lists(messages(), max_size=8), st.integers(1, 9), st.integers(0, 40), st.sampled_from([0, 1, 1 << 40]))
def test_keys_are_entered_as_they_are_found_like_one_after_the_other(
    stored: list[tuple[bytes, list[str], str, int]], count_max: int, room: int, begin: int
) -> None:
    data = b"".join(unit for unit, *_ in stored)
    size, found = walk(data, START, count_max)
    expected, table = bytearray(2000), bytearray(2000)
    told = enter_found(data, START, count_max, table, 7, 3, room, begin)
    if len(found.hashes) > room:
        assert told == (0, 0, 0, 0, 0)
        assert not any(table)
        return
    used = enter(expected, 7, 3, begin, *found)
    last = (found.offsets[-1], found.timestamps[-1]) if found.offsets else (0, 0)
    assert told == (size, len(found.hashes), used, *last)
    assert table == expected


def test_nothing_is_entered_behind_the_end_of_a_file() -> None:
    text = encode_properties({"KEYS": " ".join(map(str, range(30)))}).encode()
    unit = pack_unit(unit_size(0, b"", b"T", text), 0, 0, 0, 0, 0, 0, 1, HOST, 2, HOST, 0, 0, b"", b"T", text)
    table = bytearray(500)
    with pytest.raises(IndexError, match="no place for 30 entries from 1 on"):
        enter_found(unit, START, 9, table, 7, 1, 100, 0)
    assert not any(table)
    many = encode_properties({"KEYS": "k " * 1500}).encode()  # more than there is room for at first
    unit = pack_unit(unit_size(0, b"", b"T", many), 0, 0, 0, 0, 0, 0, 1, HOST, 2, HOST, 0, 0, b"", b"T", many)
    table = bytearray(40 + 28 + 20 * 1502)
    assert enter_found(unit, START, 9, table, 7, 1, 1500, 0)[:2] == (len(unit), 1500)
