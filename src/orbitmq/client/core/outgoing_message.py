"""A message to be sent: checked, named, encoded. Pure; the caller passes time and unique id.

The user's object is never changed, so it may be sent again; each send has its own id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from orbitmq.client.core.outgoing import Outgoing
from orbitmq.errors import MessageIllegal
from orbitmq.message.batch import encode_batch
from orbitmq.message.compression import COMPRESSION_FLAGS, DEFAULT_LEVEL, ZLIB, compress
from orbitmq.message.expiry import with_expiry
from orbitmq.message.flags import COMPRESSED, TRANSACTION_PREPARED
from orbitmq.message.model import Message
from orbitmq.message.namespace import NO_NAMESPACE, Namespace
from orbitmq.message.properties import (
    DELAY,
    EXPIRES_AFTER_MS,
    INSTANCE_ID,
    MAX_RECONSUME_TIMES,
    MSG_TYPE,
    NAME_END,
    PAIR_END,
    PROPERTIES_SIZE_MAX,
    RECONSUME_TIME,
    REPLY,
    TIMES,
    TRAN_MSG,
    UNIQ_KEY,
    UNPAIRED,
    WAIT,
    can_travel,
    decode_properties,
    encode_properties,
)
from orbitmq.message.topics import RETRY_PREFIX, check_send_allowed, check_topic

_DELAYED = DELAY + NAME_END
_TIMED = "TIMER_DEL"  # how the name of each property of TIMES begins
_NO_WAIT = f"{WAIT}{NAME_END}false"


@dataclass(frozen=True, slots=True)
class Packing:
    """Limits and compression of bodies. `size_max` is measured before compression."""

    size_max: int = 4 << 20
    compress_from: int = 4096
    kind: str = ZLIB
    level: int = DEFAULT_LEVEL
    namespace: Namespace = NO_NAMESPACE
    now_ms: Callable[[], int] | None = None
    """The time, for messages that expire after a span."""


def check_message(message: object, size_max: int) -> Message:
    """Return the message; raise MessageIllegal, which names the rule that `message` breaks."""
    if not isinstance(message, Message) or not _has_right_types(message):
        _refuse_types(message)
    _check_topic(message.topic)
    if not message.body:
        raise MessageIllegal("the body is empty")
    if len(message.body) > size_max:
        raise MessageIllegal(f"a body of {len(message.body)} bytes, at most {size_max} are allowed (max_message_size)")
    return message


@lru_cache(maxsize=1024)  # a producer sends to few topics, many times
def _check_topic(topic: str) -> None:
    check_topic(topic)
    check_send_allowed(topic)


def _has_right_types(message: Any) -> bool:
    """Check at run time what type checkers ensure: not every application uses one."""
    return (
        isinstance(message.topic, str)
        and isinstance(message.body, bytes)
        and isinstance(message.flag, int)
        and isinstance(message.properties, dict)
    )


def _refuse_types(message: object) -> NoReturn:
    if not isinstance(message, Message):
        raise MessageIllegal(f"message must be a Message, not {type(message).__name__}")
    for name, kind, wanted in _TYPES:
        if not isinstance(value := getattr(message, name), kind):
            raise MessageIllegal(f"{name} of the message must be {wanted}, not {type(value).__name__}")
    raise AssertionError("a message with the right types is not refused")


_TYPES: Sequence[tuple[str, type[Any], str]] = (
    ("topic", str, "text"),
    ("body", bytes, "bytes"),
    ("flag", int, "a whole number"),
    ("properties", dict, "a dict"),
)


def outgoing(unchecked: object, new_id: Callable[[], str], packing: Packing) -> Outgoing:
    """The message, checked and encoded. MessageIllegal if it breaks a rule or its properties are too long."""
    message = check_message(unchecked, packing.size_max)
    properties = _dated(message.properties, packing)
    msg_id = properties.get(UNIQ_KEY)
    if msg_id is None:
        msg_id = new_id()
        properties = {**properties, UNIQ_KEY: msg_id}
    topic = message.topic
    if packing.namespace.name:
        properties = {**properties, INSTANCE_ID: packing.namespace.name}
        topic = _inside(message, packing.namespace)
    body, sys_flag = message.body, 0
    if len(body) >= packing.compress_from:
        body = compress(body, packing.kind, packing.level)
        sys_flag = COMPRESSED | COMPRESSION_FLAGS[packing.kind]
    times = times_max = None
    if message.topic.startswith(RETRY_PREFIX):  # they travel in the header, where they need no room
        properties = dict(properties)
        times, times_max = _taken(properties, RECONSUME_TIME), _taken(properties, MAX_RECONSUME_TIMES)
    text = _text(properties)
    if properties.get(TRAN_MSG, "").lower() == "true":
        sys_flag |= TRANSACTION_PREPARED
    return Outgoing(
        topic,
        body,
        text,
        msg_id,
        message.flag,
        sys_flag,
        reconsume_times=times or 0,
        reconsume_times_max=times_max,
        original_size=len(message.body),
    )


def _dated(properties: dict[str, str], packing: Packing) -> dict[str, str]:
    if EXPIRES_AFTER_MS not in properties or packing.now_ms is None:
        return properties
    return with_expiry(properties, packing.now_ms())


def _taken(properties: dict[str, str], name: str) -> int | None:
    text: object = properties.pop(name, None)
    if text is None:
        return None
    if not isinstance(text, str) or not text.isdecimal():
        raise MessageIllegal(f"property {name} of a message to a retry topic must be a whole number, not {text!a}")
    return int(text)


def _inside(message: Message, namespace: Namespace) -> str:
    """The topic in the namespace; replies go to the cluster's topic, which is in none."""
    if message.properties.get(MSG_TYPE) == REPLY:
        return message.topic
    check_topic(topic := namespace.wrap(message.topic))
    return topic


def outgoing_batch(unchecked: Sequence[object], new_id: Callable[[], str], packing: Packing) -> Outgoing:
    """One request of many messages, stored in their order in one queue.

    MessageIllegal unless there is at least one, all have the same topic and `wait_store_ok`, none is delayed or goes
    to a retry topic, and the whole is not larger than a single body may be. Batches are never compressed.
    """
    instance = {INSTANCE_ID: packing.namespace.name} if packing.namespace else {}
    ids: list[str] = []
    items: list[tuple[int, bytes, str]] = []
    messages = [check_message(one, packing.size_max) for one in unchecked]
    for message in messages:
        ids.append(message.properties.get(UNIQ_KEY) or new_id())
        properties = {**_dated(message.properties, packing), UNIQ_KEY: ids[-1], **instance}
        items.append((message.flag, message.body, _text(properties)))
    _check_batch(messages)
    body = encode_batch(items)
    if len(body) > packing.size_max:
        raise MessageIllegal(
            f"a batch of {len(body)} bytes, at most {packing.size_max} (max_message_size); send it in parts"
        )
    wait = {WAIT: messages[0].properties.get(WAIT, "true"), **instance}
    topic = _inside(messages[0], packing.namespace)
    return Outgoing(topic, body, encode_properties(wait), ",".join(ids), batch=True, original_size=len(body))


def joins(first: Outgoing, message: Outgoing) -> bool:
    """Whether a batch may hold both: neither compressed, delayed, in a transaction nor sent for retry, and equal in
    `wait_store_ok`.
    """
    return _is_plain(first) and _is_plain(message) and _waits(first) == _waits(message)


def _is_plain(message: Outgoing) -> bool:
    if message.sys_flag or message.batch or message.topic.startswith(RETRY_PREFIX):
        return False
    text = message.properties
    if _DELAYED not in text and _TIMED not in text:
        return True
    return not {DELAY, *TIMES}.intersection(decode_properties(text))


def _waits(message: Outgoing) -> bool:
    return _NO_WAIT not in message.properties or decode_properties(message.properties).get(WAIT, "true") != "false"


def joined(messages: Sequence[Outgoing]) -> Outgoing:
    """One request of several messages of a topic that `joins` accepts."""
    first = messages[0]
    body = encode_batch([(one.flag, one.body, one.properties) for one in messages])
    shared = {WAIT: "true" if _waits(first) else "false"}
    if instance := decode_properties(first.properties).get(INSTANCE_ID):
        shared[INSTANCE_ID] = instance
    ids = ",".join([one.msg_id for one in messages])
    return Outgoing(first.topic, body, encode_properties(shared), ids, batch=True, original_size=len(body))


def check_sequence(messages: object) -> None:
    """MessageIllegal unless this is an ordered collection of several messages that can be iterated repeatedly."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise MessageIllegal(f"messages must be a sequence of Message, not {type(messages).__name__}")


def _check_batch(messages: Sequence[Message]) -> None:
    if not messages:
        raise MessageIllegal("a batch needs at least one message")
    first = messages[0]
    if first.topic.startswith(RETRY_PREFIX):
        raise MessageIllegal("messages to a retry topic cannot go in a batch")
    for message in messages:
        if message.topic != first.topic:
            raise MessageIllegal(f"the messages of a batch must have one topic, not {first.topic} and {message.topic}")
        if message.wait_store_ok != first.wait_store_ok:
            raise MessageIllegal("the messages of a batch must agree in wait_store_ok")
        if message.delay_level or not TIMES.isdisjoint(message.properties):
            raise MessageIllegal("a delayed message cannot go in a batch")


def _text(properties: dict[str, str]) -> str:
    try:
        text = encode_properties(properties)
        size = len(text) if text.isascii() else len(text.encode())
    except (TypeError, UnicodeEncodeError) as error:
        raise MessageIllegal(_wrong_property(properties)) from error
    if text.count(PAIR_END) >= len(properties):
        name = next(name for name, value in properties.items() if PAIR_END in name or PAIR_END in value)
        raise MessageIllegal(f"property {name} holds the character \\x02, which ends a property")
    if size > PROPERTIES_SIZE_MAX:
        raise MessageIllegal(f"properties of {size} bytes, at most {PROPERTIES_SIZE_MAX} are allowed")
    return text


def _wrong_property(properties: Mapping[Any, Any]) -> str:
    """Why the properties cannot be written."""
    for name, value in properties.items():
        for what, text in ((f"the name {name!a} of a property", name), (f"property {name!a}", value)):
            if not isinstance(text, str):
                return f"{what} must be text, not {type(text).__name__}"
            if not can_travel(text):
                return f"{what} {UNPAIRED}"
    return "the properties cannot be written"
