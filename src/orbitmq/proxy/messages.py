"""Messages between two protocols: what a RocketMQ 5 client sends as the broker stores it, and back. Pure.

Properties of RocketMQ 4 carry what the newer protocol has fields for. Whether a message is valid decides `checks`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from orbitmq.errors import UnitError
from orbitmq.message.compression import decompress
from orbitmq.message.flags import COMPRESSED, TRANSACTION_PREPARED
from orbitmq.message.hosts import decode_host, host_text
from orbitmq.message.ids import offset_message_id
from orbitmq.message.java_hash import string_hash
from orbitmq.message.namespace import split_namespace
from orbitmq.message.properties import (
    BORN_HOST,
    BORN_TIMESTAMP,
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    KEYS,
    PGROUP,
    RECONSUME_TIME,
    SHARDING_KEY,
    TAGS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRACE_CONTEXT,
    TRAN_MSG,
    UNIQ_KEY,
    decode_properties,
)
from orbitmq.message.unit import Unit
from orbitmq.proxy.checks import RESERVED
from orbitmq.wire.v2.enums import DigestType, Encoding, MessageType
from orbitmq.wire.v2.messages import FIRST_MS, LAST_MS, Message, milliseconds_of, set_time

KEY_SEPARATOR: Final = " "
INT32_MAX: Final = (1 << 31) - 1
TIME_DIGITS_MAX: Final = 18  # what is longer is no time
JUMP_FACTOR: Final = 2862933555777941757
WORD64: Final = (1 << 64) - 1
TWO_TO_31: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message as the broker stores it. Times are milliseconds since the epoch."""

    topic: str
    body: bytes
    sys_flag: int
    properties: dict[str, str]
    born_timestamp: int
    message_group: str
    """Decides the queue; empty without one."""


def incoming_message(message: Any, topic: str, remote_host: str, now_ms: int) -> IncomingMessage:
    """The message that a client sent to `topic`, after the checks; `remote_host` is where it came from."""
    system = message.system_properties
    properties = {name: value for name, value in message.user_properties.items() if name and value}
    is_transaction: bool = system.message_type == MessageType.TRANSACTION
    group: str = system.message_group
    born_ms = _born_ms(system, now_ms)
    if system.tag:
        properties[TAGS] = system.tag
    if keys := KEY_SEPARATOR.join([key for key in system.keys if key]):
        properties[KEYS] = keys
    properties[UNIQ_KEY] = system.message_id
    if is_transaction:
        properties[TRAN_MSG] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            properties[CHECK_IMMUNITY_TIME_IN_SECONDS] = str(system.orphaned_transaction_recovery_duration.seconds)
    if system.HasField("delivery_timestamp"):
        properties[TIMER_DELIVER_MS] = str(max(milliseconds_of(system.delivery_timestamp), 0))
    properties[RECONSUME_TIME] = str(max(system.delivery_attempt, 0))
    properties[PGROUP] = topic  # the group that transaction checks go to: clients of version 5 have no producer groups
    if group:
        properties[SHARDING_KEY] = group
    if system.trace_context:
        properties[TRACE_CONTEXT] = system.trace_context
    if host := system.born_host or remote_host:
        properties[BORN_HOST] = host
    properties[BORN_TIMESTAMP] = str(born_ms)
    sys_flag = TRANSACTION_PREPARED if is_transaction else 0
    if system.body_encoding == Encoding.GZIP:
        sys_flag |= COMPRESSED
    return IncomingMessage(topic, message.body, sys_flag, properties, born_ms, group)


def _born_ms(system: Any, now_ms: int) -> int:
    if not system.HasField("born_timestamp"):
        return now_ms
    born_ms = milliseconds_of(system.born_timestamp)
    return born_ms if FIRST_MS <= born_ms <= LAST_MS else now_ms


def outgoing_message(unit: Unit, topic: str, handle: str | None, now_ms: int) -> Any:
    """The Message that a client receives for a stored one.

    `topic` is the one it was sent to, also when it comes from a retry topic; `handle` its receipt handle.
    """
    message = Message()
    properties = decode_properties(unit.properties)
    set_resource(message.topic, topic)
    user_properties = message.user_properties
    for name, value in properties.items():
        if name not in RESERVED:
            user_properties[name] = value
    system = message.system_properties
    _set_body(message, system, unit)
    _set_sent(system, properties, unit, now_ms)
    _set_stored(system, properties, unit)
    if handle is not None:
        system.receipt_handle = handle
    return message


def _set_body(message: Any, system: Any, unit: Unit) -> None:
    """The body, decompressed: of zlib and gzip, which have one name in this protocol, each client knows another one.

    What cannot be decompressed, as gzip, is for the client to decide.
    """
    encoding = Encoding.IDENTITY
    body = unit.body
    if unit.sys_flag & COMPRESSED:
        try:
            body = decompress(body, unit.sys_flag)
        except UnitError:
            encoding = Encoding.GZIP
    message.body = body
    system.body_encoding = encoding
    digest = system.body_digest
    digest.type = DigestType.MD5
    digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()


def _set_sent(system: Any, properties: Mapping[str, str], unit: Unit, now_ms: int) -> None:
    """What the producer said of its message."""
    get = properties.get
    if (tag := get(TAGS)) is not None:
        system.tag = tag
    if (keys := get(KEYS)) is not None:
        system.keys.extend([key for key in keys.split(KEY_SEPARATOR) if key])
    system.message_id = message_id_of(unit, properties)
    system.message_type = stored_type(properties)
    if (group := get(SHARDING_KEY)) is not None:
        system.message_group = group
    if (context := get(TRACE_CONTEXT)) is not None:
        system.trace_context = context
    if (delivery_ms := _delivery_ms(properties, now_ms)) is not None:
        set_time(system.delivery_timestamp, delivery_ms)
    set_time(system.born_timestamp, unit.born_timestamp)
    system.born_host = get(BORN_HOST) or decode_host(unit.born_host)[0]


def message_id_of(unit: Unit, properties: Mapping[str, str]) -> str:
    """What its consumers know the message by."""
    return properties.get(UNIQ_KEY) or offset_message_id(unit.store_host, unit.physical_offset)


def _set_stored(system: Any, properties: Mapping[str, str], unit: Unit) -> None:
    """Where the message is, and how often it was delivered."""
    set_time(system.store_timestamp, unit.store_timestamp)
    system.store_host = host_text(unit.store_host)
    system.queue_id = unit.queue_id
    system.queue_offset = unit.queue_offset
    system.delivery_attempt = min(unit.reconsume_times, INT32_MAX - 1) + 1
    dead_topic, dead_id = properties.get(DLQ_ORIGIN_TOPIC), properties.get(DLQ_ORIGIN_MESSAGE_ID)
    if dead_topic is not None and dead_id is not None:
        system.dead_letter_queue.topic = dead_topic
        system.dead_letter_queue.message_id = dead_id


def stored_type(properties: Mapping[str, str]) -> MessageType:
    """The type of a message to deliver. TIMER_DELAY_MS does not count here, only in the check of a send."""
    if properties.get(TRAN_MSG) == "true":
        return MessageType.TRANSACTION
    if DELAY in properties or TIMER_DELIVER_MS in properties or TIMER_DELAY_SEC in properties:
        return MessageType.DELAY
    return MessageType.FIFO if SHARDING_KEY in properties else MessageType.NORMAL


def _delivery_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """None also for a text that is no time: the message was stored by a client of any version."""
    if (delay := properties.get(TIMER_DELAY_SEC)) is not None:
        return now_ms + int(delay) * 1000 if _is_time(delay) else None
    at = properties.get(TIMER_DELIVER_MS)
    return int(at) if at is not None and _is_time(at) else None


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= TIME_DIGITS_MAX


def set_resource(resource: Any, name: str) -> None:
    """Give a Resource the name and namespace of what the broker calls `name`."""
    namespace, plain = split_namespace(name)
    resource.name = plain
    if namespace:
        resource.resource_namespace = namespace


def queue_of_group(message_group: str, queue_count: int) -> int:
    """The place of a message group's queue in the list of writable queues, of which there is at least one.

    Messages of clients on all fronts of a cluster must meet in one queue, so this is RocketMQ's choice: Guava's
    consistent hash of Java's hash, after Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm". A new
    queue takes over its share of the groups and moves no others.
    """
    state = string_hash(message_group) & WORD64
    chosen = 0
    while True:
        state = (state * JUMP_FACTOR + 1) & WORD64
        step = (state >> 33) + 1
        if step == TWO_TO_31:  # is negative in Java's 32 bits
            return chosen
        jumped = int((chosen + 1) / (step / TWO_TO_31))
        if jumped >= queue_count:
            return chosen
        chosen = jumped
