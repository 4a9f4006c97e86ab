"""POP consumption: names of its topics, and the handle by which a consumer acknowledges what it was handed. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from orbitmq.errors import MessageIllegal
from orbitmq.message.model import Message
from orbitmq.message.topics import RETRY_PREFIX, REVIVE_PREFIX

POP_CK: Final = "POP_CK"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
NORMAL, RETRY = "0", "1"
ORDERLY_REVIVE_QUEUE: Final = 999
MAX_MESSAGES: Final = 32  # of one response: a checkpoint has a bit for each
_PARTS: Final = 8
_INT64_DIGITS: Final = 19


def revive_topic(cluster: str) -> str:
    """Where the brokers of a cluster keep what is in flight."""
    return REVIVE_PREFIX + cluster


def pop_retry_topic(topic: str, group: str) -> str:
    """Where messages of `topic` wait that `group` has not acknowledged in time; not the retry topic of push
    consumers.
    """
    return f"{RETRY_PREFIX}{group}_{topic}"


def pop_retry_topics(group: str, topics: Collection[str]) -> frozenset[str]:
    """Which of all topics are retry topics of a group that pops. The one of push consumers of `group_x` may begin
    alike, so what follows must be a topic.
    """
    known, prefix = frozenset(topics), pop_retry_topic("", group)
    return frozenset(name for name in known if name.startswith(prefix) and name.removeprefix(prefix) in known)


def retry_group(message: Message, topic: str | None) -> str:
    """The group of a message in a retry topic; `topic` is where it was sent to. A name alone does not tell: that of a
    group may hold the `_` that POP consumption puts between group and topic.
    """
    name = message.topic.removeprefix(RETRY_PREFIX)
    if topic is not None and FIRST_POP_TIME in message.properties:
        return name.removesuffix(f"_{topic}")
    return name


class Receipt(NamedTuple):
    """What names one delivery of a message: the text POP_CK. `start` is the queue offset at which the response began in
    that queue, times are milliseconds.
    """

    start: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    kind: str
    broker_name: str
    queue_id: int
    offset: int

    def encode(self) -> str:
        return " ".join(map(str, self))

    @classmethod
    def decode(cls, text: str) -> Receipt:
        """MessageIllegal for what is none. An orderly consumer of RocketMQ leaves the offset out."""
        parts = text.split(" ")
        if len(parts) not in (_PARTS - 1, _PARTS, _PARTS + 1):
            raise MessageIllegal(f"the receipt of a message has {_PARTS} parts, {text[:100]!r} has {len(parts)}")
        start, pop_ms, invisible_ms, revive_queue, kind, broker_name, queue_id, *rest = parts
        numbers = [start, pop_ms, invisible_ms, revive_queue, queue_id, rest[0] if rest else "-1"]
        if not all(_is_number(one) for one in numbers):
            raise MessageIllegal(f"the receipt {text[:100]!r} of a message has a part that is no number")
        values = [int(one) for one in numbers]
        return cls(values[0], values[1], values[2], values[3], kind, broker_name, values[4], values[5])


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= _INT64_DIGITS
