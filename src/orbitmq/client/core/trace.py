"""Message traces in RocketMQ's format: events of a message, where, and how long they took. Pure.

Records are fields joined by \x01, each ends with \x02; the first field is the kind:

    Pub             timestamp region group topic msgId tags keys brokerAddress bodySize costMs kind offsetMsgId success
    SubBefore       timestamp region group requestId msgId retries keys
    SubAfter        requestId msgId costMs success keys outcome timestamp group
    EndTransaction  timestamp region group topic msgId tags keys brokerAddress kind transactionId state fromCheck

A missing text is the word null, as Java prints it. In the cloud's format SubAfter ends with its outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import ClassVar, TypeAlias

from orbitmq.errors import BodyError

FIELD_END, RECORD_END = "\x01", "\x02"
LOCAL, CLOUD = "LOCAL", "CLOUD"  # access channels
CLOUD_TOPIC_PREFIX = "rmq_sys_TRACE_DATA_"  # of the topic of a region
NULL = "null"


class Outcome(IntEnum):
    """The outcome of a call of the listener."""

    SUCCESS = 0
    """It returned success."""
    TIME_OUT = 1
    """It took too long; only Java's clients write this."""
    EXCEPTION = 2
    """It raised an exception."""
    RETURNED_NOTHING = 3
    """It returned no status."""
    FAILED = 4
    """It returned that the messages must be delivered again."""


@dataclass(frozen=True, slots=True)
class Published:
    """A message was sent: `timestamp` is when, in milliseconds since the epoch, `cost_ms` the latency, `region_id` and
    `broker_address` (`host:port`) where to, `body_size` the bytes sent, `kind` a `MessageKind`. `topic`, `msg_id`,
    `tags`, `keys` and `offset_msg_id` are the message's; `success` is false when flush or replication was not
    confirmed.
    """

    name: ClassVar[str] = "Pub"
    fewest: ClassVar[int] = 12
    timestamp: int
    region_id: str
    group: str
    topic: str
    msg_id: str
    tags: str | None
    keys: str | None
    broker_address: str
    body_size: int
    cost_ms: int
    kind: int
    offset_msg_id: str | None = None
    success: bool = True


@dataclass(frozen=True, slots=True)
class ConsumeBegun:
    """A listener is called with a message. `ConsumeEnded` has the same `request_id`. `timestamp` is when, in
    milliseconds since the epoch, `retries` how often the message failed before; `region_id`, `msg_id` and `keys` are
    the message's.
    """

    name: ClassVar[str] = "SubBefore"
    fewest: ClassVar[int] = 7
    timestamp: int
    region_id: str | None
    group: str
    request_id: str
    msg_id: str
    retries: int
    keys: str | None


@dataclass(frozen=True, slots=True)
class ConsumeEnded:
    """A listener has returned: `timestamp` is when, in milliseconds since the epoch, `cost_ms` the duration of the call
    divided by the number of messages, `outcome` an `Outcome`, `success` whether the message is consumed. `request_id`
    is that of `ConsumeBegun`; `msg_id` and `keys` are the message's.
    """

    name: ClassVar[str] = "SubAfter"
    fewest: ClassVar[int] = 6
    request_id: str
    msg_id: str
    cost_ms: int
    success: bool
    keys: str | None
    outcome: int
    timestamp: int = 0
    group: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A producer has decided about a half message: `timestamp` is when, in milliseconds since the epoch, `state` the
    decision, in RocketMQ's spelling, `from_check` whether it responds to a transaction check, `broker_address`
    (`host:port`) where, `kind` a `MessageKind`. `region_id`, `topic`, `msg_id`, `tags`, `keys` and `transaction_id` are
    the message's.
    """

    name: ClassVar[str] = "EndTransaction"
    fewest: ClassVar[int] = 12
    timestamp: int
    region_id: str
    group: str
    topic: str
    msg_id: str
    tags: str | None
    keys: str | None
    broker_address: str
    kind: int
    transaction_id: str | None
    state: str
    from_check: bool


Record: TypeAlias = Published | ConsumeBegun | ConsumeEnded | TransactionEnded
"""One record of a trace."""
_KINDS: Mapping[str, type[Record]] = {
    kind.name: kind for kind in (Published, ConsumeBegun, ConsumeEnded, TransactionEnded)
}


def encode_record(record: Record, channel: str = LOCAL) -> str:
    """The text of one record. Java omits the end of a SubAfter in the cloud's format, which damages the next record."""
    values = [getattr(record, field.name) for field in fields(record)]
    if channel == CLOUD and isinstance(record, ConsumeEnded):
        values = values[: ConsumeEnded.fewest]
    return FIELD_END.join([record.name, *map(_text, values)]) + RECORD_END


def _text(value: object) -> str:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value) if isinstance(value, int) else value)


def decode_trace(body: bytes) -> list[Record]:
    """The records in a message of a trace topic, except those of unknown kinds. BodyError when one is malformed.

    Writers of other versions omit fields at the end, or add some; both are accepted.
    """
    found: list[Record] = []
    for text in body.decode(errors="replace").split(RECORD_END):
        name, *values = text.split(FIELD_END)
        kind = _KINDS.get(name)
        if kind is not None:
            found.append(_record(kind, values))
    return found


def _record(kind: type[Record], values: Sequence[str]) -> Record:
    if kind is Published and len(values) == Published.fewest:  # old writers omit the offset id before the last field
        values = [*values[:-1], NULL, values[-1]]
    names = [field.name for field in fields(kind)]
    types = {field.name: str(field.type) for field in fields(kind)}
    try:
        if len(values) < kind.fewest:
            raise ValueError(f"{len(values)} fields, at least {kind.fewest} are needed")
        parsed = {name: _PARSERS[types[name]](value) for name, value in zip(names, values, strict=False)}
    except ValueError as error:
        raise BodyError(f"a {kind.name} record of a trace that cannot be read: {error}") from error
    return kind(**parsed)  # type: ignore[arg-type]


_PARSERS: Mapping[str, Callable[[str], object]] = {
    "int": int,
    "bool": lambda text: text == "true",
    "str": str,
    "str | None": lambda text: None if text == NULL else text,
}
