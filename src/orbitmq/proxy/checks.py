"""What a request of a RocketMQ 5 client must fulfil. Pure; knows neither topics nor groups of the broker.

Each check raises StatusError with the code that RocketMQ's front has for it; `check_message` runs those of a message in
its order, so that a message with two faults has the same one reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError

from orbitmq.errors import ExpressionIllegal, MessageIllegal, StatusError
from orbitmq.filter.sql92 import compile_sql92
from orbitmq.filter.tags import tag_subscription
from orbitmq.message import properties as names
from orbitmq.message.namespace import Namespace
from orbitmq.message.pop import FIRST_POP_TIME, POP_CK
from orbitmq.message.topics import check_consumer_group, check_topic, is_system_group, is_system_topic
from orbitmq.wire.v2.enums import ClientType, Code, FilterType, MessageType
from orbitmq.wire.v2.messages import milliseconds_of

RESERVED: Final[frozenset[str]] = names.RESERVED | {
    POP_CK, FIRST_POP_TIME, names.TRAN_PREPARED_QUEUE_OFFSET, names.TIMER_DELAY_MS, names.TIMER_DELAY_SEC,
    names.TIMER_DELIVER_MS, names.TIMER_ENQUEUE_MS, names.TIMER_DEQUEUE_MS, names.TIMER_ROLL_TIMES, names.TIMER_OUT_MS,
    names.TIMER_DEL_UNIQKEY, names.TIMER_DELAY_LEVEL, names.BORN_HOST, names.BORN_TIMESTAMP, names.DLQ_ORIGIN_TOPIC,
    names.DLQ_ORIGIN_MESSAGE_ID, "POP_CK_OFFSET", "DUP_INFO", "EXTEND_UNIQ_INFO", "__CRC32#",
}  # fmt: skip
"""Names that users of RocketMQ 5 clients may not give a property, and do not receive."""

SERVED_CLIENTS: Final = frozenset((ClientType.PRODUCER, ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER))
KNOWS_ILLEGAL_POLLING_TIME: Final = "5.0.3"  # the first client version that does; versions are compared as texts
SEND_SIZE_MAX: Final = 6 << 20  # bytes: of the largest body, its properties, and what a batch has besides
REQUEST_SIZE_MAX: Final = 1 << 20  # bytes of a request that has no message: thousands of names or receipt handles
BATCH_MAX: Final = 1024  # messages or handles of one request: their checks take 20 ms of the event loop
SHOWN_MAX: Final = 40  # characters of a peer's text in an error
HOUR_MS: Final = 3_600_000
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")  # Java's ISO control characters


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client may ask for. Sizes are bytes."""

    body_size_max: int = 4 << 20
    user_properties_max: int = 128
    properties_size_max: int = 16 << 10  # user properties, tag and keys
    message_group_size_max: int = 63
    delay_max_ms: int = 24 * HOUR_MS
    recovery_max_s: int = 3600
    invisible_min_ms: int = 10_000  # of a receive
    invisible_max_ms: int = 12 * HOUR_MS
    polling_min_ms: int = 5_000
    polling_max_ms: int = 20_000


def parsed(kind: Any, data: bytes, size_max: int = REQUEST_SIZE_MAX) -> Any:
    """The request of class `kind`. StatusError if it is none, or has more bytes than one may need: of an empty entry
    two bytes are sent, and sixty are kept.
    """
    if len(data) > size_max:
        raise StatusError(Code.PAYLOAD_TOO_LARGE, f"a request of {len(data)} bytes, at most {size_max} are allowed")
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise StatusError(Code.BAD_REQUEST, f"this is no {kind.__name__}") from error


def parsed_send(kind: Any, data: bytes) -> Any:
    """`parsed` of the request that may be large."""
    if len(data) > SEND_SIZE_MAX:
        raise StatusError(Code.MESSAGE_BODY_TOO_LARGE, f"a send of {len(data)} bytes, at most {SEND_SIZE_MAX}")
    return parsed(kind, data, SEND_SIZE_MAX)


def resource_name(resource: Any) -> str:
    """What the broker calls a Resource: its name, with its namespace if it has one."""
    namespace: str = resource.resource_namespace
    name: str = resource.name
    return Namespace(namespace).wrap(name) if namespace else name


def checked_topic(resource: Any) -> str:
    """The broker's name of a topic that clients may use."""
    topic = resource_name(resource)
    try:
        check_topic(topic)
    except MessageIllegal as error:
        raise StatusError(Code.ILLEGAL_TOPIC, str(error)) from error
    if is_system_topic(topic):
        raise StatusError(Code.ILLEGAL_TOPIC, f"{topic} is a system topic: use one of your own")
    return topic


def checked_group(resource: Any) -> str:
    """The broker's name of a consumer group that clients may use."""
    group = resource_name(resource)
    try:
        check_consumer_group(group)
    except MessageIllegal as error:
        raise StatusError(Code.ILLEGAL_CONSUMER_GROUP, str(error)) from error
    if is_system_group(group):
        raise StatusError(Code.ILLEGAL_CONSUMER_GROUP, f"{group} is a system group: use one of your own")
    return group


def checked_topic_of_send(request: Any) -> str:
    """The broker's name of the topic that all messages of a SendMessageRequest have."""
    messages = request.messages
    if not messages:
        raise StatusError(Code.MESSAGE_CORRUPTED, "the request contains no message: send at least one")
    if len(messages) > BATCH_MAX:
        raise StatusError(Code.PAYLOAD_TOO_LARGE, f"{len(messages)} messages, at most {BATCH_MAX} are sent at once")
    topic = messages[0].topic
    name = checked_topic(topic)
    if any(message.topic != topic for message in messages):
        raise StatusError(
            Code.MESSAGE_CORRUPTED,
            f"the messages of the request have other topics than {name}: send one topic at a time",
        )
    if len(messages) > 1:
        _check_batch(messages)
    return name


def _check_batch(messages: Any) -> None:
    """A broker stores a batch at once and with the flags of its first message: a half message in it would be delivered
    undecided, one to be delivered later at once, and a body that is compressed otherwise could not be read. RocketMQ's
    front lets all that happen.
    """
    encoding = messages[0].system_properties.body_encoding
    for message in messages:
        system = message.system_properties
        if system.message_type == MessageType.TRANSACTION or system.HasField("delivery_timestamp"):
            raise StatusError(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                "messages of a transaction, and such to be delivered later, are sent one at a time",
            )
        if system.body_encoding != encoding:
            raise StatusError(Code.BAD_REQUEST, "the bodies of a batch have several encodings: send one at a time")


def check_message(message: Any, limits: Limits, now_ms: int) -> None:
    """Everything that concerns one message to send, but its topic."""
    system = message.system_properties
    check_body(message.body, limits)
    size = _check_user_properties(message.user_properties, limits)
    tag: str = system.tag
    if tag:
        check_tag(tag)
        size += _size(tag)
    for key in system.keys:
        check_key(key)
        size += _size(key)
    if size > limits.properties_size_max:
        raise StatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"user properties, tag and keys have {size} bytes, at most {limits.properties_size_max} are allowed: put "
            "the data into the body",
        )
    check_message_id(system.message_id)
    if system.message_type == MessageType.TRANSACTION and system.HasField("orphaned_transaction_recovery_duration"):
        check_recovery_s(system.orphaned_transaction_recovery_duration.seconds, limits)
    if system.HasField("delivery_timestamp"):
        check_delivery_ms(milliseconds_of(system.delivery_timestamp), limits, now_ms)
    group: str = system.message_group
    if group:
        check_message_group(group, limits)
    _check_texts(system)


def _check_texts(system: Any) -> None:
    """What RocketMQ does not check: texts that become properties as they are, and lite topics, which it ignores."""
    for name, text in (("trace context", system.trace_context), ("born host", system.born_host)):
        if _has_control(text):
            raise StatusError(Code.BAD_REQUEST, f"the {name} {_shown(text)} contains control characters: remove them")
    if system.lite_topic:
        raise StatusError(
            Code.UNSUPPORTED,
            f"the message is for the lite topic {_shown(system.lite_topic)}, and lite topics are not supported: send "
            "it to a topic",
        )


def check_body(body: bytes, limits: Limits) -> None:
    """A body of 1 to `limits.body_size_max` bytes."""
    size = len(body)
    if not size:
        raise StatusError(Code.MESSAGE_BODY_EMPTY, "the body of the message is empty: it needs at least one byte")
    if size > limits.body_size_max:
        raise StatusError(
            Code.MESSAGE_BODY_TOO_LARGE,
            f"the body has {size} bytes, at most {limits.body_size_max} are allowed: compress or divide it",
        )


def _check_user_properties(properties: Mapping[str, str], limits: Limits) -> int:
    """The size of names and values."""
    if len(properties) > limits.user_properties_max:
        raise StatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the message has {len(properties)} user properties, at most {limits.user_properties_max} are allowed: put "
            "the data into the body",
        )
    size = 0
    for name, value in properties.items():
        check_property(name, value)
        size += _size(name) + _size(value)
    return size


def check_property(name: str, value: str) -> None:
    """A user property whose name is free, and that can be stored."""
    if name in RESERVED:
        raise StatusError(
            Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property name {name!r} is reserved: choose another one"
        )
    if _has_control(name) or _has_control(value):
        raise StatusError(
            Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
            f"the property {_shown(name)} contains control characters in its name or value: remove them",
        )


def check_tag(tag: str) -> None:
    """A tag that subscriptions can name."""
    if tag.isspace():
        raise StatusError(Code.ILLEGAL_MESSAGE_TAG, "the tag of the message is blank: leave it out, or name one")
    if "|" in tag:
        raise StatusError(
            Code.ILLEGAL_MESSAGE_TAG, f"the tag {_shown(tag)} contains a bar, which separates tags: remove it"
        )
    if _has_control(tag):
        raise StatusError(Code.ILLEGAL_MESSAGE_TAG, f"the tag {_shown(tag)} contains control characters: remove them")


def check_key(key: str) -> None:
    """A key by which the message can be found. An empty one is left out."""
    if key.isspace():
        raise StatusError(Code.ILLEGAL_MESSAGE_KEY, "a key of the message is blank: leave it out, or name one")
    if _has_control(key):
        raise StatusError(Code.ILLEGAL_MESSAGE_KEY, f"the key {_shown(key)} contains control characters: remove them")


def check_message_id(message_id: str) -> None:
    """The unique id that the client gave the message; the store must be able to keep it."""
    if not message_id or message_id.isspace():
        raise StatusError(Code.ILLEGAL_MESSAGE_ID, "the message id is blank: clients must create one for each message")
    if _has_control(message_id):
        raise StatusError(
            Code.ILLEGAL_MESSAGE_ID, f"the message id {_shown(message_id)} contains control characters: remove them"
        )


def check_recovery_s(seconds: int, limits: Limits) -> None:
    """After how long the producer wants to be asked for the outcome of a transaction."""
    if not 0 <= seconds <= limits.recovery_max_s:
        raise StatusError(
            Code.BAD_REQUEST,
            f"the recovery time of the transaction is {seconds} s: choose one from 0 to {limits.recovery_max_s} s",
        )


def check_delivery_ms(delivery_ms: int, limits: Limits, now_ms: int) -> None:
    """When to deliver a message. A time that has passed means now."""
    if delivery_ms - now_ms > limits.delay_max_ms:
        raise StatusError(
            Code.ILLEGAL_DELIVERY_TIME,
            f"the delivery time is {delivery_ms - now_ms} ms ahead, at most {limits.delay_max_ms} ms are allowed: "
            "choose an earlier one",
        )


def check_message_group(group: str, limits: Limits) -> None:
    """The group within which messages are delivered in order."""
    if group.isspace():
        raise StatusError(Code.ILLEGAL_MESSAGE_GROUP, "the message group is blank: leave it out, or name one")
    if (size := _size(group)) > limits.message_group_size_max:
        raise StatusError(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"the message group {_shown(group)} has {size} bytes, at most {limits.message_group_size_max} are allowed: "
            "shorten it",
        )
    if _has_control(group):
        raise StatusError(
            Code.ILLEGAL_MESSAGE_GROUP, f"the message group {_shown(group)} contains control characters: remove them"
        )


def check_invisible_ms(invisible_ms: int, limits: Limits) -> None:
    """The invisible time of a receive without automatic renewal."""
    _check_invisible(invisible_ms, limits.invisible_min_ms, limits.invisible_max_ms)


def check_changed_invisible_ms(invisible_ms: int, limits: Limits) -> None:
    """A new invisible time of a message that was received; 0 gives it back."""
    _check_invisible(invisible_ms, 0, limits.invisible_max_ms)


def _check_invisible(invisible_ms: int, least_ms: int, most_ms: int) -> None:
    if not least_ms <= invisible_ms <= most_ms:
        raise StatusError(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"the invisible time is {invisible_ms} ms: choose one from {least_ms} to {most_ms} ms",
        )


def polling_ms(
    requested_ms: int | None, request_timeout_ms: int, remaining_ms: int | None, client_version: str, limits: Limits
) -> int:
    """How long a receive waits for messages.

    `requested_ms` is what the request says, `request_timeout_ms` what the client's settings say, and `remaining_ms` how
    long the client waits for the response; None is absent.
    """
    if requested_ms is None:
        requested_ms = limits.polling_max_ms if remaining_ms is None else remaining_ms - request_timeout_ms // 2
    polling = min(max(requested_ms, limits.polling_min_ms), limits.polling_max_ms)
    if remaining_ms is None or polling <= remaining_ms:
        return polling
    if remaining_ms >= limits.polling_min_ms:
        return remaining_ms
    known = client_version >= KNOWS_ILLEGAL_POLLING_TIME
    raise StatusError(
        Code.ILLEGAL_POLLING_TIME if known else Code.BAD_REQUEST,
        f"the client gives up after {remaining_ms} ms, and long polling takes at least {limits.polling_min_ms} ms: "
        "prolong the client's request timeout",
    )


def check_filter(topic: str, filter_type: int, expression: str) -> None:
    """A subscription to a topic whose expression can be compiled. A type that is not SQL means tags."""
    try:
        if filter_type == FilterType.SQL:
            compile_sql92(expression)
        else:
            tag_subscription(topic, expression)
    except (ExpressionIllegal, MessageIllegal) as error:
        raise StatusError(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from error


def check_client_id(client_id: str) -> None:
    """The header x-mq-client-id, which every request has."""
    if not client_id.strip():
        raise StatusError(Code.CLIENT_ID_REQUIRED, "the header x-mq-client-id is blank: clients must send their id")


def check_client_type(client_type: int) -> None:
    """A kind of client that is served."""
    if client_type not in SERVED_CLIENTS:
        raise StatusError(
            Code.UNRECOGNIZED_CLIENT_TYPE,
            f"clients of type {client_type} are not served: use a producer, push consumer or simple consumer",
        )


def check_transaction_id(transaction_id: str) -> None:
    """The id of a transaction to end."""
    if not transaction_id.strip():
        raise StatusError(
            Code.INVALID_TRANSACTION_ID,
            "the transaction id is blank: send the one from the response to the half message",
        )


def _has_control(text: str) -> bool:
    return not text.isprintable() and _CONTROL.search(text) is not None  # most texts are printable


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _shown(text: str) -> str:
    return repr(text[:SHOWN_MAX])
