"""Message traces as RocketMQ writes and reads them: what happened to which message, where, how long it took. Pure.

Records are fields joined by \\x01, each ends with \\x02; the first field says which kind it is:

    Pub             timestamp region group topic msgId tags keys brokerAddress bodySize costMs kind offsetMsgId success
    SubBefore       timestamp region group requestId msgId retries keys
    SubAfter        requestId msgId costMs success keys outcome timestamp group
    EndTransaction  timestamp region group topic msgId tags keys brokerAddress kind transactionId state fromCheck

A text that is missing is the word null, as Java prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import ClassVar, TypeAlias

from orbitmq.errors import BodyError

FIELD_END, RECORD_END = "\x01", "\x02"
NULL = "null"


class Outcome(IntEnum):
    """How a listener's call ended."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNED_NOTHING = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class Published:
    """A message was sent."""

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
    """A listener gets a message. `request_id` is shared with the end."""

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
    """A listener is done with a message."""

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
    """A producer has decided about a half message."""

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
_KINDS: Mapping[str, type[Record]] = {
    kind.name: kind for kind in (Published, ConsumeBegun, ConsumeEnded, TransactionEnded)
}


def encode_record(record: Record) -> str:
    """The text of one record."""
    values = (getattr(record, field.name) for field in fields(record))
    return FIELD_END.join([record.name, *map(_text, values)]) + RECORD_END


def _text(value: object) -> str:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value) if isinstance(value, int) else value)


def decode_trace(body: bytes) -> list[Record]:
    """The records of a message of a trace topic, those of other kinds left out. BodyError when one is malformed.

    Writers of other versions leave fields out at the end or add some: both are taken.
    """
    found: list[Record] = []
    for text in body.decode(errors="replace").split(RECORD_END):
        name, *values = text.split(FIELD_END)
        kind = _KINDS.get(name)
        if kind is not None:
            found.append(_record(kind, values))
    return found


def _record(kind: type[Record], values: Sequence[str]) -> Record:
    if kind is Published and len(values) == Published.fewest:  # an old writer has no offset id before the last field
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


def _optional(text: str) -> str | None:
    return None if text == NULL else text


def _truth(text: str) -> bool:
    return text == "true"


_PARSERS: Mapping[str, Callable[[str], object]] = {
    "int": int,
    "bool": _truth,
    "str": str,
    "str | None": _optional,
}
