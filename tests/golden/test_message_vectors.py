"""The message room against results of RocketMQ's own classes."""

from __future__ import annotations

import ipaddress
import zlib
from datetime import UTC
from typing import Any

import pytest

from orbitmq.errors import ConfigurationError, MessageIllegal, UnitError
from orbitmq.message import flags, properties, topics
from orbitmq.message.batch import encode_batch
from orbitmq.message.compression import COMPRESSION_FLAGS, compress, decompress
from orbitmq.message.delay import delivery_timestamp, parse_delay_levels
from orbitmq.message.hosts import encode_host, host_text
from orbitmq.message.ids import decode_offset_message_id, decode_unique_id, offset_message_id
from orbitmq.message.java_hash import string_hash, tags_code
from orbitmq.message.model import Message, MessageQueue
from orbitmq.message.unit import body_crc, decode_unit, encode_unit, message_of
from tests.support.batches import decode_batch
from tests.support.golden import vectors

WRITTEN_AT_MS = 1_795_300_000_000  # the day the vectors were made; unique ids are read back relative to it


def section(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = vectors()[name]
    assert found
    return found


def refused(check: Any, *arguments: Any) -> bool:
    try:
        check(*arguments)
    except MessageIllegal:
        return True
    return False


def test_string_hash() -> None:
    for row in section("string_hash"):
        assert string_hash(row["s"]) == row["hash"], row
        assert tags_code(row["s"]) == row["tagsCode"], row


def test_properties_encode() -> None:
    for row in section("properties_encode"):
        in_java_order = [pair.split("\x01", 1)[0] for pair in row["encoded"].split("\x02") if pair]
        text = properties.encode_properties({name: row["properties"][name] for name in in_java_order})
        assert text == row["encoded"]
        assert text.encode().hex() == row["encodedUtf8Hex"]
        assert properties.decode_properties(text) == row["decoded"]


def test_properties_decode() -> None:
    for row in section("properties_decode"):
        assert properties.decode_properties(row["encoded"]) == row["decoded"], row


def test_offset_message_id() -> None:
    for row in section("offset_msg_id"):
        if "ip" not in row:
            continue
        host = encode_host(str(ipaddress.ip_address(bytes.fromhex(row["ip"]))), row["port"])
        assert offset_message_id(host, row["offset"]) == row["msgId"]
        found = decode_offset_message_id(row["msgId"])
        assert ipaddress.ip_address(found.host) == ipaddress.ip_address(row["decodedHost"])
        assert (found.port, found.physical_offset) == (row["decodedPort"], row["decodedOffset"])


def test_offset_message_id_refuses_what_is_none() -> None:
    broken = [row["msgId"] for row in section("offset_msg_id") if "ip" not in row]
    assert broken
    for text in broken:
        assert refused(decode_offset_message_id, text), text


def test_unique_id_decode() -> None:
    for row in section("unique_id_decode"):
        found = decode_unique_id(row["id"], WRITTEN_AT_MS, UTC)
        assert ipaddress.ip_address(found.ip) == ipaddress.ip_address(row["ip"]), row
        assert (found.pid, found.created_ms) == (row["pid"], row["nearlyTime"]), row


def test_group_topics() -> None:
    for row in section("group_topics"):
        group = row["group"]
        assert topics.retry_topic(group) == row["retryTopic"]
        assert topics.dlq_topic(group) == row["dlqTopic"]
        assert topics.reply_topic(group) == row["replyTopic"]
        assert topics.is_system_group(group) == row["isSysConsumerGroup"]
        assert topics.is_lmq(group) == row["isLmq"]


def test_system_topics() -> None:
    assert sorted(topics.SYSTEM_TOPICS) == section("system_topics")
    forbidden = topics.SEND_FORBIDDEN_TOPICS - {topics.TIMER_TOPIC}  # a topic of RocketMQ 5
    assert sorted(forbidden) == section("not_allowed_send_topics")


def test_names() -> None:
    client_only = {topics.DEFAULT_PRODUCER_GROUP, topics.DEFAULT_CONSUMER_GROUP}
    for row in section("validators_names"):
        name = row["name"]
        assert refused(topics.check_topic, name) == (row["clientCheckTopic"] != "ok"), row
        if name not in client_only:
            assert refused(topics.check_group, name) == (row["clientCheckGroup"] != "ok"), row
        if name:
            assert topics.is_system_topic(name) == row["isSystemTopic"], row
            assert (name in topics.SEND_FORBIDDEN_TOPICS) == row["isNotAllowedSend"], row
            assert refused(topics.check_send_allowed, name) == row["isNotAllowedSend"], row


def test_user_properties() -> None:
    assert sorted(properties.RESERVED) == section("reserved_properties")
    for row in section("put_user_property"):
        message = Message("T", b"x")
        assert refused(message.set_property, row["name"], row["value"]) == (row["result"] != "ok"), row


def test_perm() -> None:
    for row in section("perm"):
        perm = row["perm"]
        assert flags.perm_text(perm) == row["string"]
        assert bool(perm & flags.PERM_READ) == row["readable"]
        assert bool(perm & flags.PERM_WRITE) == row["writeable"]
        assert bool(perm & flags.PERM_INHERIT) == row["inherited"]


def test_pull_sys_flag() -> None:
    for row in section("pull_sys_flag"):
        flag = flags.pull_flag(
            commit_offset=row["commitOffset"],
            suspend=row["suspend"],
            subscription=row["subscription"],
            class_filter=row["classFilter"],
            lite=row["litePull"],
        )
        assert flag == row["flag"]
        assert flag & ~flags.PULL_COMMIT_OFFSET == row["clearCommit"]


def test_topic_sys_flag() -> None:
    for row in section("topic_sys_flag"):
        flag = row["flag"]
        assert bool(flag & flags.TOPIC_UNIT) == row["unit"]
        assert bool(flag & flags.TOPIC_UNIT_SUBSCRIPTION) == row["unitSub"]
        assert flag | flags.TOPIC_UNIT == row["setUnit"]


def test_message_sys_flag() -> None:
    names = {flags.COMPRESSION_LZ4: "LZ4", flags.COMPRESSION_ZSTD: "ZSTD", flags.COMPRESSION_ZLIB: "ZLIB", 0: "ZLIB"}
    for row in section("message_sys_flag"):
        flag = row["flag"]
        assert flags.transaction_type(flag) == row["transaction"]
        assert flags.with_transaction_type(flag, flags.TRANSACTION_COMMIT) == row["resetCommit"]
        assert flag & ~flags.COMPRESSED == row["clearCompressed"]
        kind = names.get(flag & flags.COMPRESSION_MASK)
        assert kind == (None if isinstance(row["compressionType"], dict) else row["compressionType"])
        if kind is None:
            with pytest.raises(UnitError):
                decompress(b"", flags.COMPRESSED | flag)


def test_message_queues_sort_as_in_java() -> None:
    for row in section("message_queue_sorted"):
        queues = [MessageQueue(topic, broker, int(number)) for topic, broker, number in (q.split("|") for q in row)]
        assert sorted(sorted(queues, key=hash)) == queues


def java_host(data: bytes) -> str:
    """Java writes IPv6 addresses without the short form."""
    ip = ipaddress.ip_address(data[:-4])
    text = str(ip) if ip.version == 4 else ":".join(f"{int(part, 16):x}" for part in ip.exploded.split(":"))
    return f"{text}:{int.from_bytes(data[-4:], 'big')}"


def test_message_record() -> None:
    for row in section("message_record"):
        record = bytes.fromhex(row["record"])
        decoded = row["decoded"]
        unit = decode_unit(record)
        assert encode_unit(unit) == record
        if not unit.sys_flag & flags.COMPRESSED:  # Java made these checksums before it packed the bodies
            assert body_crc(unit.body) == unit.body_crc
        message = message_of(unit, "broker-a")
        assert message.queue == MessageQueue(decoded["topic"], "broker-a", decoded["queueId"])
        assert (message.flag, message.sys_flag) == (decoded["flag"], decoded["sysFlag"])
        assert (message.queue_offset, message.commit_log_offset) == (decoded["queueOffset"], decoded["commitLogOffset"])
        assert (message.born_timestamp, message.store_timestamp) == (
            decoded["bornTimestamp"],
            decoded["storeTimestamp"],
        )
        assert (java_host(unit.born_host), java_host(unit.store_host)) == (decoded["bornHost"], decoded["storeHost"])
        assert (message.born_host, message.store_host) == (host_text(unit.born_host), host_text(unit.store_host))
        assert message.reconsume_times == decoded["reconsumeTimes"]
        assert message.prepared_transaction_offset == decoded["preparedTransactionOffset"]
        assert message.body_crc == decoded["bodyCRC"]
        assert message.body.hex() == decoded["body"]
        assert message.properties == (decoded["properties"] or {})
        assert message.offset_msg_id == row["msgId"]


def test_batch_encode() -> None:
    for row in section("batch_encode"):
        buffer = bytes.fromhex(row["encoded"])
        items = decode_batch(buffer)
        assert encode_batch([(item.flag, item.body, item.properties.decode()) for item in items]) == buffer
        found = [
            {"flag": item.flag, "body": item.body.hex(), "properties": properties.decode_properties(text)}
            for item in items
            for text in [item.properties.decode()]
        ]
        assert found == row["messages"]


def test_compression() -> None:
    for row in section("compress"):
        flag = flags.COMPRESSED | COMPRESSION_FLAGS[row["type"]]
        plain = bytes.fromhex(row["plain"])
        assert decompress(bytes.fromhex(row["packed"]), flag) == plain
        assert decompress(compress(plain, row["type"], row["level"]), flag) == plain


def test_crc() -> None:
    for row in section("crc32"):
        assert body_crc(bytes.fromhex(row["hex"])) == row["crc32"]
        assert body_crc(bytes.fromhex(row["hex"])) == zlib.crc32(bytes.fromhex(row["hex"])) % (1 << 31)


def test_delay_levels() -> None:
    for row in section("delay_levels"):
        try:
            levels = parse_delay_levels(row["table"])
        except ConfigurationError:
            assert not row["result"]["ok"], row
            continue
        assert row["result"]["ok"], row
        assert len(levels) == row["result"]["maxDelayLevel"]
        for level, due in row["result"]["deliverAtOfStore1000000"].items():
            assert delivery_timestamp(levels, int(level), 1_000_000) == due
