"""Messages from one protocol to the other and back, and the queue of a message group."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import StatusError
from orbitmq.message.compression import compress
from orbitmq.message.flags import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_ZLIB, TRANSACTION_PREPARED
from orbitmq.message.hosts import encode_host
from orbitmq.message.ids import offset_message_id
from orbitmq.message.java_hash import string_hash
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.topic_types import MessageType as TopicType
from orbitmq.message.topic_types import message_type
from orbitmq.message.unit import Unit, decode_unit, encode_unit
from orbitmq.proxy.checks import RESERVED, Limits, check_message
from orbitmq.proxy.messages import IncomingMessage, incoming_message, outgoing_message, queue_of_group
from orbitmq.wire.v2.enums import DigestType, Encoding, MessageType
from orbitmq.wire.v2.messages import FIRST_MS, LAST_MS, Message, Resource, milliseconds_of, set_time

NOW_MS = 1_700_000_000_000
BORN, STORE = encode_host("10.0.0.7", 54321), encode_host("10.0.0.1", 10911)
HANDLE = "0 1700000000000 60000 3 0 broker-a 2 117 4096"
LIMITS = Limits()


def stored(properties: dict[str, str], body: bytes = b"x", **fields: Any) -> Unit:
    """A unit as it comes out of the log."""
    values: dict[str, Any] = {
        "size": 0, "body_crc": 0, "queue_id": 2, "flag": 0, "queue_offset": 117, "physical_offset": 4096, "sys_flag": 0,
        "born_timestamp": NOW_MS - 5, "born_host": BORN, "store_timestamp": NOW_MS, "store_host": STORE,
        "reconsume_times": 0, "prepared_transaction_offset": 0, "body": body, "topic": "Orders",
        "properties": encode_properties(properties),
    }  # fmt: skip
    return decode_unit(encode_unit(Unit(**values | fields)))


def unit_of(record: IncomingMessage) -> Unit:
    return stored(
        record.properties,
        record.body,
        topic=record.topic,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
    )


def received(properties: dict[str, str], body: bytes = b"x", **fields: Any) -> Any:
    """What a client receives for a stored message; it must survive the wire."""
    message = outgoing_message(stored(properties, body, **fields), "Orders", HANDLE, NOW_MS)
    assert Message.FromString(message.SerializeToString()) == message
    return message


def sent() -> Any:
    """A message with every field that is stored."""
    message = Message(topic=Resource(name="Orders"), user_properties={"colour": "red"}, body=b"body")
    system = message.system_properties
    system.tag = "paid"
    system.keys.extend(["k1", "k2"])
    system.message_id = "01A0B1"
    system.body_encoding = Encoding.IDENTITY
    system.message_type = MessageType.FIFO
    set_time(system.born_timestamp, NOW_MS - 5)
    system.born_host = "laptop"
    system.message_group = "customer-1"
    system.trace_context = "00-1-2-01"
    return message


def test_a_message_is_stored_with_the_properties_of_version_4() -> None:
    record = incoming_message(sent(), "Orders", "10.0.0.7", NOW_MS)
    assert record == IncomingMessage(
        "Orders",
        b"body",
        0,
        {
            "colour": "red",
            "TAGS": "paid",
            "KEYS": "k1 k2",
            "UNIQ_KEY": "01A0B1",
            "RECONSUME_TIME": "0",
            "PGROUP": "Orders",
            "__SHARDINGKEY": "customer-1",
            "TRACE_CONTEXT": "00-1-2-01",
            "__BORNHOST": "laptop",
            "BORN_TIMESTAMP": str(NOW_MS - 5),
        },
        NOW_MS - 5,
        "customer-1",
    )


def test_a_message_without_time_and_host_gets_those_of_its_arrival() -> None:
    message = sent()
    message.system_properties.ClearField("born_timestamp")
    message.system_properties.ClearField("born_host")
    record = incoming_message(message, "Orders", "10.0.0.7", NOW_MS)
    assert (record.born_timestamp, record.properties["__BORNHOST"]) == (NOW_MS, "10.0.0.7")


def test_a_half_message_is_marked_in_flag_and_properties() -> None:
    message = sent()
    message.system_properties.message_type = MessageType.TRANSACTION
    message.system_properties.orphaned_transaction_recovery_duration.seconds = 30
    record = incoming_message(message, "Orders", "", NOW_MS)
    assert record.sys_flag == TRANSACTION_PREPARED
    assert record.properties["TRAN_MSG"] == "true"
    assert record.properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "30"
    assert message_type(record.properties) is TopicType.TRANSACTION


def test_a_delayed_message_waits_for_its_millisecond() -> None:
    message = sent()
    set_time(message.system_properties.delivery_timestamp, NOW_MS + 1_234)
    assert incoming_message(message, "Orders", "", NOW_MS).properties["TIMER_DELIVER_MS"] == str(NOW_MS + 1_234)
    message.system_properties.delivery_timestamp.seconds = -(1 << 62)
    assert incoming_message(message, "Orders", "", NOW_MS).properties["TIMER_DELIVER_MS"] == "0"


def test_a_packed_body_keeps_its_bytes_and_gets_the_bit() -> None:
    message = sent()
    message.body = zlib.compress(b"body")
    message.system_properties.body_encoding = Encoding.GZIP
    record = incoming_message(message, "Orders", "", NOW_MS)
    assert (record.sys_flag, record.body) == (COMPRESSED, message.body)


TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20).filter(str.strip)
WORDS = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="|"), min_size=1, max_size=12)
TIMES = st.integers(0, LAST_MS)


@st.composite
def messages(draw: st.DrawFn) -> Any:
    names = TEXTS.filter(lambda name: name not in RESERVED)
    message = Message(topic=Resource(name="Orders"), body=draw(st.binary(min_size=1, max_size=50)))
    message.user_properties.update(draw(st.dictionaries(names, TEXTS, max_size=4)))
    system = message.system_properties
    system.message_id = draw(WORDS)
    system.keys.extend(draw(st.lists(WORDS, max_size=3)))
    system.message_type = MessageType.NORMAL
    system.born_host = draw(WORDS)
    set_time(system.born_timestamp, draw(TIMES))
    if draw(st.booleans()):
        system.tag = draw(WORDS)
    if draw(st.booleans()):
        system.trace_context = draw(TEXTS)
    kind = draw(st.sampled_from([MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION]))
    system.message_type = kind
    if kind == MessageType.FIFO:
        system.message_group = draw(WORDS)
    if kind == MessageType.DELAY:
        set_time(system.delivery_timestamp, draw(st.integers(0, NOW_MS + 1000)))
    return message


@given(messages())
def test_what_was_sent_is_received(message: Any) -> None:
    check_message(message, LIMITS, NOW_MS)
    again = outgoing_message(unit_of(incoming_message(message, "Orders", "", NOW_MS)), "Orders", HANDLE, NOW_MS)
    assert Message.FromString(again.SerializeToString()) == again
    extra = {"__SHARDINGKEY", "TRACE_CONTEXT"} - set(message.user_properties)  # not reserved there, so clients see them
    for name in extra & set(again.user_properties):
        del again.user_properties[name]
    system = again.system_properties
    for name in (
        "body_digest", "body_encoding", "store_timestamp", "store_host", "queue_id", "queue_offset", "receipt_handle",
        "delivery_attempt",
    ):  # fmt: skip
        system.ClearField(name)
    for name in extra & set(message.user_properties):
        del message.user_properties[name]
    assert again == message


PIECES = st.lists(st.sampled_from(["\x01", "\x02", "TAGS", "REAL_TOPIC", "a", " ", "|", "é"]), max_size=5).map("".join)


@given(st.dictionaries(PIECES, PIECES, max_size=2), st.lists(PIECES, max_size=2), *[PIECES] * 5)
def test_no_text_of_a_client_makes_another_property(
    user: dict[str, str], keys: list[str], tag: str, message_id: str, group: str, context: str, host: str
) -> None:
    message = Message(topic=Resource(name="Orders"), user_properties=user, body=b"x")
    system = message.system_properties
    system.keys.extend(keys)
    system.tag, system.message_id, system.message_group = tag, message_id, group
    system.trace_context, system.born_host = context, host
    try:
        check_message(message, LIMITS, NOW_MS)
    except StatusError:
        return
    properties = incoming_message(message, "Orders", "", NOW_MS).properties
    assert decode_properties(encode_properties(properties)) == properties


def test_a_stored_message_says_where_it_is_and_how_often_it_came() -> None:
    system = received({"UNIQ_KEY": "01"}, reconsume_times=2).system_properties
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (2, 117, 3)
    assert (system.born_host, system.store_host) == ("10.0.0.7", "10.0.0.1:10911")
    assert milliseconds_of(system.store_timestamp) == NOW_MS
    assert system.receipt_handle == HANDLE
    assert not system.HasField("invisible_duration")
    assert not system.HasField("tag")


def test_a_message_without_unique_id_has_its_offset_id() -> None:
    assert received({}).system_properties.message_id == offset_message_id(STORE, 4096)


def test_reserved_properties_are_hidden_and_others_are_not() -> None:
    message = received(dict.fromkeys(RESERVED, "1") | {"a": "1", "__SHARDINGKEY": "g"})
    assert dict(message.user_properties) == {"a": "1", "__SHARDINGKEY": "g"}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, MessageType.NORMAL),
        ({"__SHARDINGKEY": "g"}, MessageType.FIFO),
        ({"DELAY": "3", "__SHARDINGKEY": "g"}, MessageType.DELAY),
        ({"TIMER_DELIVER_MS": "5"}, MessageType.DELAY),
        ({"TIMER_DELAY_SEC": "5"}, MessageType.DELAY),
        ({"TIMER_DELAY_MS": "5"}, MessageType.NORMAL),
        ({"TRAN_MSG": "true", "DELAY": "3"}, MessageType.TRANSACTION),
        ({"TRAN_MSG": "True"}, MessageType.NORMAL),
    ],
)
def test_the_type_follows_from_the_properties(properties: dict[str, str], expected: MessageType) -> None:
    assert received(properties).system_properties.message_type == expected


def test_the_delivery_time_is_that_of_the_properties() -> None:
    assert milliseconds_of(received({"TIMER_DELIVER_MS": "5"}).system_properties.delivery_timestamp) == 5
    by_span = received({"TIMER_DELAY_SEC": "5"}).system_properties
    assert milliseconds_of(by_span.delivery_timestamp) == NOW_MS + 5_000
    for text in ("-5", "soon", "9" * 30, "١"):
        assert not received({"TIMER_DELIVER_MS": text}).system_properties.HasField("delivery_timestamp")
        assert not received({"TIMER_DELAY_SEC": text}).system_properties.HasField("delivery_timestamp")


def test_dead_letters_say_where_they_came_from() -> None:
    origin = {"DLQ_ORIGIN_TOPIC": "Orders", "DLQ_ORIGIN_MESSAGE_ID": "01"}
    dead = received(origin).system_properties.dead_letter_queue
    assert (dead.topic, dead.message_id) == ("Orders", "01")
    assert not received({"DLQ_ORIGIN_TOPIC": "Orders"}).system_properties.HasField("dead_letter_queue")


@pytest.mark.parametrize(
    ("topic", "namespace", "name"),
    [
        ("Orders", "", "Orders"),
        ("shop%Orders", "shop", "Orders"),
        ("%DLQ%billing", "", "%DLQ%billing"),
        ("%DLQ%shop%billing", "shop", "%DLQ%billing"),
        ("RMQ_SYS_TRACE_TOPIC", "", "RMQ_SYS_TRACE_TOPIC"),
    ],
)
def test_a_topic_is_named_without_its_namespace(topic: str, namespace: str, name: str) -> None:
    resource = outgoing_message(stored({}), topic, None, NOW_MS).topic
    assert (resource.resource_namespace, resource.name) == (namespace, name)


def _digest(body: bytes) -> str:
    return hashlib.md5(body).hexdigest().upper()


@pytest.mark.parametrize("flag", [COMPRESSED, COMPRESSED | COMPRESSION_ZLIB])
def test_a_compressed_body_arrives_decompressed_with_its_digest(flag: int) -> None:
    message = received({}, compress(b"body" * 99), sys_flag=flag)
    assert message.body == b"body" * 99
    assert message.system_properties.body_encoding == Encoding.IDENTITY
    assert message.system_properties.body_digest.type == DigestType.MD5
    assert message.system_properties.body_digest.checksum == _digest(b"body" * 99)


@pytest.mark.parametrize("body", [gzip.compress(b"body", mtime=0), b"no compression", compress(b"body")[:-2]])
@pytest.mark.parametrize("flag", [COMPRESSED, COMPRESSED | COMPRESSION_LZ4, COMPRESSED | 0x700])
def test_what_does_not_decompress_arrives_as_it_is(body: bytes, flag: int) -> None:
    message = received({}, body, sys_flag=flag)
    assert message.body == body
    assert message.system_properties.body_encoding == Encoding.GZIP
    assert message.system_properties.body_digest.checksum == _digest(body)


INT32S, INT64S = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)


@given(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.fixed_dictionaries(
        {"queue_id": INT32S, "queue_offset": INT64S, "born_timestamp": INT64S, "store_timestamp": INT64S}
        | {"reconsume_times": INT32S, "physical_offset": INT64S, "sys_flag": INT32S.map(lambda flag: flag & ~0x30)}
    ),
    st.binary(max_size=30),
)
def test_whatever_a_client_of_version_4_stored_arrives(text: str, fields: dict[str, int], body: bytes) -> None:
    unit = stored({}, body, **fields)
    unit.properties = text
    message = outgoing_message(unit, "Orders", HANDLE, NOW_MS)
    assert Message.FromString(message.SerializeToString()) == message
    assert FIRST_MS <= milliseconds_of(message.system_properties.born_timestamp) <= LAST_MS


# Printed by a Java program: String.hashCode, and Hashing.consistentHash of Guava 31.0.1 for each number of queues.
QUEUES = (1, 2, 3, 7, 8, 16, 100, 1024)
CHOSEN_BY_GUAVA = [
    ("", 0, (0, 0, 0, 0, 0, 0, 0, 0)),
    ("a", 97, (0, 0, 0, 0, 0, 0, 29, 346)),
    ("order-1", -1207111310, (0, 0, 0, 3, 3, 3, 3, 489)),
    ("order-2", -1207111309, (0, 0, 2, 2, 2, 11, 46, 184)),
    ("customer-4711", 2103202930, (0, 1, 1, 3, 3, 10, 88, 123)),
    ("group", 98629247, (0, 0, 0, 0, 0, 8, 80, 391)),
    ("Grüße", 69215351, (0, 0, 0, 5, 7, 7, 36, 791)),
    ("订单", 1129459, (0, 1, 1, 1, 7, 7, 50, 50)),
    ("😀", 1772899, (0, 1, 1, 4, 4, 4, 31, 748)),
    ("zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", -291400512, (0, 0, 0, 4, 4, 4, 19, 173)),
    ("polygenelubricants", -2147483648, (0, 1, 2, 2, 2, 2, 58, 185)),
]


@pytest.mark.parametrize(("group", "hashed", "chosen"), CHOSEN_BY_GUAVA)
def test_a_message_group_has_the_queue_that_rocketmq_chooses(group: str, hashed: int, chosen: tuple[int, ...]) -> None:
    assert string_hash(group) == hashed
    assert tuple(queue_of_group(group, count) for count in QUEUES) == chosen


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 500))
def test_a_new_queue_takes_groups_over_and_moves_no_others(group: str, count: int) -> None:
    before, after = queue_of_group(group, count), queue_of_group(group, count + 1)
    assert 0 <= before < count
    assert after in (before, count)
