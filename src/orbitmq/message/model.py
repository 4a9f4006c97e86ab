"""The nouns of the application: a queue, a message to send, a message received. Pure data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orbitmq.errors import MessageIllegal
from orbitmq.message.properties import (
    BUYER_ID,
    DELAY,
    KEYS,
    NAME_END,
    PAIR_END,
    RESERVED,
    TAGS,
    WAIT,
)


@dataclass(frozen=True, order=True, slots=True)
class MessageQueue:
    """One queue of a topic on one broker; queues are ordered by topic, broker name and id."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(init=False, slots=True)
class Message:
    """A message to send. `properties` holds everything that travels as a property, tags and keys included.

    `keys` is one text with keys separated by a space, or an iterable of keys. `properties` of the constructor
    are the application's own; a reserved or blank name, or a blank value, raises MessageIllegal.
    """

    topic: str
    body: bytes
    flag: int
    properties: dict[str, str]
    transaction_id: str | None

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
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.topic = topic
        self.body = body
        self.flag = flag
        self.properties = {}
        self.transaction_id = None
        if tags:
            self.properties[TAGS] = tags
        if keys:
            self.properties[KEYS] = keys if isinstance(keys, str) else " ".join(keys)
        self.properties[WAIT] = "true" if wait_store_ok else "false"
        if delay_level:
            self.properties[DELAY] = str(delay_level)
        for name, value in (properties or {}).items():
            self.set_property(name, value)

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> str:
        """All keys separated by a space, empty without any."""
        return self.properties.get(KEYS, "")

    @property
    def wait_store_ok(self) -> bool:
        """Whether the broker answers only when the message is as safe as it is configured to make it."""
        return self.properties.get(WAIT, "true").lower() == "true"

    @property
    def delay_level(self) -> int:
        """0 is no delay."""
        text = self.properties.get(DELAY, "0")
        return int(text) if text.isdecimal() else 0

    @property
    def buyer_id(self) -> str | None:
        return self.properties.get(BUYER_ID)

    def set_property(self, name: str, value: str) -> None:
        """Set one of the application's own properties. MessageIllegal for a name or value that cannot travel."""
        if not name or not name.strip() or not value or not value.strip():
            raise MessageIllegal(f"property {name!r}: name and value must not be blank")
        if name in RESERVED:
            raise MessageIllegal(f"property {name!r} is used by the system, choose another name")
        if NAME_END in name or PAIR_END in name or PAIR_END in value:
            raise MessageIllegal(f"property {name!r} holds one of the two separator characters")
        self.properties[name] = value

    def get_property(self, name: str, default: str | None = None) -> str | None:
        """The value of any property, the system's included."""
        return self.properties.get(name, default)


@dataclass(slots=True)
class MessageExt(Message):
    """A message as a consumer receives it.

    Hosts are `ip:port`. `msg_id` is the producer's unique id if there is one, else the offset id.
    `commit_log_offset` is its place in the broker's log, `queue_offset` its place in its queue.
    """

    topic: str
    body: bytes
    flag: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    transaction_id: str | None = None
    broker_name: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    store_size: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: str = ""
    store_timestamp: int = 0
    store_host: str = ""
    msg_id: str = ""
    offset_msg_id: str = ""
    commit_log_offset: int = 0
    body_crc: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def queue(self) -> MessageQueue:
        """The queue the message came from."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)
