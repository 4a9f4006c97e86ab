"""The nouns of the application: a queue, a message to send, a message received. Pure data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from orbitmq.errors import MessageIllegal
from orbitmq.message.properties import (
    BUYER_ID,
    DELAY,
    EXPIRES_AFTER_MS,
    EXPIRES_AT_MS,
    KEYS,
    NAME_END,
    PAIR_END,
    RESERVED,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    WAIT,
)

MASTER_ID = 0
"""The broker id of a master; slaves of its name have others."""


@dataclass(frozen=True, order=True, slots=True)
class MessageQueue:
    """One queue of a topic on one broker; queues are ordered by topic, broker name and id."""

    topic: str
    broker_name: str
    """The name of the broker as in its configuration, not an address."""
    queue_id: int
    """0 and up."""


@dataclass(init=False, slots=True)
class Message:
    """A message to send. `properties` holds everything that travels as a property, tags and keys included.

    `keys` is one text with keys separated by a space, or an iterable of keys. `properties` of the constructor
    are the application's own; a reserved or blank name, or a blank value, raises MessageIllegal. What breaks a limit
    (an empty or too large body, a topic that is no name) raises MessageIllegal when the message is sent.

    `delay_level` above 0 delays the delivery: the levels are the broker's, by default 1 s, 5 s, 10 s, 30 s, 1 to 10
    minutes, 20 and 30 minutes, 1 and 2 hours (1 to 18).

    `deliver_at`, a datetime with a time zone, and `deliver_after`, a timedelta or seconds, name any time instead, to
    the millisecond: at brokers of orbitmq and RocketMQ 5, up to three days ahead if they are not configured for more.
    Brokers of RocketMQ 4 deliver such a message at once.

    `expires_at` and `expires_after`, of the same types, say until when the message is worth consuming; a span counts
    from delivery, so it goes with `deliver_at` and `deliver_after` and not with `delay_level`, whose time only brokers
    know. Push and lite pull consumers of orbitmq skip a message that has expired; those of RocketMQ do not.
    """

    topic: str
    body: bytes
    flag: int
    """A number for the application; brokers hand it on."""
    properties: dict[str, str]
    transaction_id: str | None
    """Of a message in a transaction: the id under which its outcome is known."""

    def __init__(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        flag: int = 0,
        wait_store_ok: bool = True,
        delay_level: int = 0,
        deliver_at: datetime | None = None,
        deliver_after: timedelta | float | None = None,
        expires_at: datetime | None = None,
        expires_after: timedelta | float | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.topic = topic
        self.body = body
        self.flag = flag
        self.properties = {}
        self.transaction_id = None
        if tags is not None:
            if not isinstance(tags, str):
                raise _not_text("tags", tags)
            if tags:
                self.properties[TAGS] = tags
        if keys is not None and (text := _joined(keys)):
            self.properties[KEYS] = text
        self.properties[WAIT] = "true" if wait_store_ok else "false"
        if delay_level:
            self.properties[DELAY] = _level(delay_level)
        if (delay_level != 0) + (deliver_at is not None) + (deliver_after is not None) > 1:
            raise MessageIllegal("set only one of delay_level, deliver_at and deliver_after")
        if deliver_at is not None:
            self.properties[TIMER_DELIVER_MS] = _time_ms("deliver_at", deliver_at)
        if deliver_after is not None:
            self.properties[TIMER_DELAY_MS] = _span_ms("deliver_after", deliver_after)
        if expires_after is not None and (expires_at is not None or delay_level):
            raise MessageIllegal("set expires_after neither with expires_at nor with delay_level")
        if expires_at is not None:
            self.properties[EXPIRES_AT_MS] = _time_ms("expires_at", expires_at)
        if expires_after is not None:
            self.properties[EXPIRES_AFTER_MS] = _span_ms("expires_after", expires_after)
        if properties is not None:
            for name, value in _mapping(properties).items():
                self.set_property(name, value)

    @property
    def tags(self) -> str | None:
        """The tag, None without one. A message has one, whatever the name says."""
        return self.properties.get(TAGS)

    @property
    def keys(self) -> str:
        """All keys separated by a space, empty without any."""
        return self.properties.get(KEYS, "")

    @property
    def wait_store_ok(self) -> bool:
        """Whether the broker must respond only when the message is durable, as configured there."""
        return self.properties.get(WAIT, "true").lower() == "true"

    @property
    def delay_level(self) -> int:
        """0 is no delay."""
        text = self.properties.get(DELAY, "0")
        return int(text) if text.isdecimal() else 0

    @property
    def buyer_id(self) -> str | None:
        """The property BUYER_ID, None without it."""
        return self.properties.get(BUYER_ID)

    def set_property(self, name: str, value: str) -> None:
        """Set one of the application's own properties. MessageIllegal for a name or value that cannot travel."""
        if not isinstance(name, str):
            raise _not_text("the name of a property", name)
        if not isinstance(value, str):
            raise _not_text(f"property {name!a}", value)
        if not name or not name.strip() or not value or not value.strip():
            raise MessageIllegal(f"property {name!r}: name and value must not be blank")
        if name in RESERVED:
            raise MessageIllegal(f"property {name!r} is reserved for the system; choose another name")
        if NAME_END in name or PAIR_END in name or PAIR_END in value:
            raise MessageIllegal(f"property {name!r} contains a separator character (0x01 or 0x02)")
        self.properties[name] = value

    def get_property(self, name: str, default: str | None = None) -> str | None:
        """The value of any property, the system's included."""
        return self.properties.get(name, default)


def _not_text(what: str, given: object) -> MessageIllegal:
    return MessageIllegal(f"{what} must be text, not {type(given).__name__}")


def _joined(keys: str | Iterable[str]) -> str:
    if isinstance(keys, str):
        return keys
    given: object = keys
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise MessageIllegal(f"keys must be text or several texts, not {type(given).__name__}")
    several = list(given)
    for key in several:
        if not isinstance(key, str):
            raise _not_text("each of the keys", key)
    return " ".join(several)


def _level(delay_level: object) -> str:
    if not isinstance(delay_level, int) or isinstance(delay_level, bool):
        raise MessageIllegal(f"delay_level must be a whole number, not {type(delay_level).__name__}")
    return str(delay_level)


def _time_ms(name: str, time: object) -> str:
    if not isinstance(time, datetime) or time.tzinfo is None:
        given = "one without" if isinstance(time, datetime) else type(time).__name__
        raise MessageIllegal(f"{name} must be a datetime with a time zone, not {given}")
    return str(max(0, round(time.timestamp() * 1000)))


def _span_ms(name: str, span: object) -> str:
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds < 0:
        raise MessageIllegal(f"{name} must be a timedelta or seconds from 0 on, not {span!r:.40}")
    return str(round(seconds * 1000))


def _mapping(properties: object) -> Mapping[str, str]:
    if not isinstance(properties, Mapping):
        raise MessageIllegal(f"properties must be a mapping from text to text, not {type(properties).__name__}")
    return properties


@dataclass(slots=True)
class MessageExt(Message):
    """A message as a consumer receives it.

    A listener sees a message that came again under the topic it was sent to.
    """

    topic: str
    body: bytes
    """As it was sent; a compressed one is unpacked already."""
    flag: int = 0
    """A number the sender gave."""
    properties: dict[str, str] = field(default_factory=dict)
    """Everything that travels as a property, the system's own included."""
    transaction_id: str | None = None
    """Of a message in a transaction."""
    broker_name: str = ""
    """The name of its broker as in the broker's configuration."""
    queue_id: int = 0
    """0 and up."""
    queue_offset: int = 0
    """Its place in its queue: 0 and up, dense."""
    store_size: int = 0
    """Bytes in the broker's log."""
    sys_flag: int = 0
    """The protocol's own bits: compression, transaction, kind of addresses."""
    born_timestamp: int = 0
    """When it was made, by its producer's clock; milliseconds since the epoch."""
    born_host: str = ""
    """`ip:port` of its producer."""
    store_timestamp: int = 0
    """When it was stored, by its broker's clock; milliseconds since the epoch."""
    store_host: str = ""
    """`ip:port` of its broker."""
    msg_id: str = ""
    """The producer's unique id if there is one, else the offset id."""
    offset_msg_id: str = ""
    """The id made of the broker's address and the place in its log."""
    commit_log_offset: int = 0
    """Its place in the broker's log, in bytes."""
    body_crc: int = 0
    """CRC-32 of the body as it was stored."""
    reconsume_times: int = 0
    """How often its group has failed to consume it."""
    prepared_transaction_offset: int = 0
    """Of a committed message of a transaction: where its half is in the log."""

    @property
    def queue(self) -> MessageQueue:
        """The queue the message came from."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)
