"""Attributes of topics, as RocketMQ 5 has them: above all which type of messages a topic takes.

A topic's attributes are pairs of texts. A request names changes of them: `+message.type=FIFO,-reserve.time`. Brokers
keep the attributes and check no message by them; the front for 5.x clients and these clients themselves do. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from orbitmq.errors import ConfigurationError
from orbitmq.message.properties import (
    DELAY,
    SHARDING_KEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRAN_MSG,
)

MESSAGE_TYPE: Final = "message.type"
_ADD, _REMOVE = "+", "-"
_INT64_MAX: Final = (1 << 63) - 1


class MessageType(StrEnum):
    """Which messages a topic takes, and what a message is. Names are RocketMQ's."""

    UNSPECIFIED = "UNSPECIFIED"
    """Not known: of no message, and of a topic that does not exist."""
    NORMAL = "NORMAL"
    FIFO = "FIFO"
    """Messages of one group are consumed in order."""
    DELAY = "DELAY"
    """Delivered at a later time."""
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"
    """A topic that takes all of them; never a message."""


def type_of(attributes: Mapping[str, str] | None) -> MessageType:
    """The type of a topic: NORMAL without the attribute, UNSPECIFIED of no topic (None) or if the type is unknown."""
    if attributes is None:
        return MessageType.UNSPECIFIED
    try:
        return MessageType(attributes.get(MESSAGE_TYPE, MessageType.NORMAL))
    except ValueError:  # a later version's, in a store or at a peer
        return MessageType.UNSPECIFIED


def message_type(properties: Mapping[str, str]) -> MessageType:
    """The type of a message, by its properties."""
    if properties.get(TRAN_MSG, "").lower() == "true":
        return MessageType.TRANSACTION
    if any(name in properties for name in (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)):
        return MessageType.DELAY
    return MessageType.FIFO if SHARDING_KEY in properties else MessageType.NORMAL


def takes(topic: MessageType, message: MessageType) -> bool:
    """Whether a topic of this type takes such a message."""
    return topic is message or topic is MessageType.MIXED


class _Attribute(NamedTuple):
    changeable: bool
    """Otherwise it is decided when the topic is created."""
    check: Callable[[str], str | None]
    """What is wrong with a value."""


def _one_of(*values: str, unserved: str | None = None) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        if value == unserved:
            return f"{value} is not served: use {values[0]}"
        return None if value in values else f"{value!r:.100} is not one of {', '.join(values)}"

    return check


def _reserve_time(value: str) -> str | None:
    """Signs and leading zeros are kept as RocketMQ keeps them."""
    if re.fullmatch(r"[+-]?[0-9]{1,40}", value) and -1 <= int(value) <= _INT64_MAX:
        return None
    return f"{value!r:.100} is not a number of milliseconds from -1 to {_INT64_MAX}"


_ATTRIBUTES: Final[Mapping[str, _Attribute]] = {
    MESSAGE_TYPE: _Attribute(True, _one_of(*MessageType)),
    "queue.type": _Attribute(False, _one_of("SimpleCQ", unserved="BatchCQ")),
    "cleanup.policy": _Attribute(False, _one_of("DELETE", unserved="COMPACTION")),
    "reserve.time": _Attribute(True, _reserve_time),
}

Changes = Mapping[str, str | None]
"""Attribute -> new value, None for one that is removed."""


def parse_changes(text: str) -> Changes:
    """The changes of a request. ConfigurationError for another form."""
    parts = [part.partition("=") for part in text.rstrip(",").split(",")] if text.strip(",") else []
    for key, equals, value in parts:
        if equals and not value:
            raise ConfigurationError(f"attribute {key!r:.100} has no value: remove it with -name")
        if bool(equals) != key.startswith(_ADD):
            raise ConfigurationError(f"{key!r:.100} is neither +name=value nor -name, as a change of an attribute is")
    return signed_changes((key, value) for key, _, value in parts)


def signed_changes(pairs: Iterable[tuple[str, str]]) -> Changes:
    """The same of pairs whose first part is `+name` or `-name`, as bodies have them. ConfigurationError."""
    changes: dict[str, str | None] = {}
    for key, value in pairs:
        sign, name = key[:1], key[1:]
        if sign not in (_ADD, _REMOVE) or not name or _ADD in name or _REMOVE in name:
            raise ConfigurationError(f"{key!r:.100} does not name an attribute as +name or -name")
        if name in changes:
            raise ConfigurationError(f"attribute {name:.100} is changed twice")
        changes[name] = value if sign == _ADD else None
    return changes


def format_changes(changes: Changes) -> str:
    """The text of a request."""
    return ",".join(f"{_REMOVE}{name}" if value is None else f"{_ADD}{name}={value}" for name, value in changes.items())


def changes_between(before: Mapping[str, str], after: Mapping[str, str]) -> Changes:
    """What makes the second out of the first."""
    changed: dict[str, str | None] = {name: value for name, value in after.items() if before.get(name) != value}
    return changed | {name: None for name in before if name not in after}


def altered(known: Mapping[str, str] | None, changes: Changes) -> dict[str, str]:
    """The attributes of a topic after changes; `known` is None for one that is being created. ConfigurationError for
    an unknown attribute, a wrong value, and one that is not there or may not be changed any more.
    """
    result = dict(known or {})
    for name, value in changes.items():
        if value is not None:
            _check(name, value, is_new=known is None)
            result[name] = value
        elif name not in result:
            raise ConfigurationError(f"attribute {name:.100} cannot be removed: the topic does not have it")
        else:
            _refuse_fixed(name)
            del result[name]
    return dict(sorted(result.items()))


def _check(name: str, value: str, *, is_new: bool) -> None:
    if name not in _ATTRIBUTES:
        raise ConfigurationError(f"attribute {name:.100} is unknown: topics have {', '.join(_ATTRIBUTES)}")
    if not is_new:
        _refuse_fixed(name)
    if wrong := _ATTRIBUTES[name].check(value):
        raise ConfigurationError(f"attribute {name}: {wrong}")


def _refuse_fixed(name: str) -> None:
    """One that a later version has written is removed as well."""
    if name in _ATTRIBUTES and not _ATTRIBUTES[name].changeable:
        raise ConfigurationError(f"attribute {name} is fixed once the topic exists: delete and create the topic")
