"""Declared classes <-> the objects of Java's JSON: one reader and one writer for every body and configuration file.

A class is a frozen msgspec struct or dataclass; its annotations declare the text. The writer produces Java's text:
members in alphabetical order, null members left out. The reader is as lenient as Java's: unknown members are ignored,
missing and null ones keep their default, numbers and booleans may be quoted, an enumeration may be a name or an ordinal
(an unknown name counts as missing), an object used as a key may be an escaped text. Must not know any particular body.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache, partial
from typing import Any, TypeVar

import msgspec

from orbitmq.errors import BodyError
from orbitmq.message.config import RetryPolicy, SubscriptionData, SubscriptionGroup, TopicConfig
from orbitmq.message.javajson import Allowance, ObjectKey, dumps, loads

T = TypeVar("T")
Reader = Callable[[Any], Any]

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

# Java's spelling of the nouns of the message room, if it is not the camel case of ours.
SPELLINGS: Mapping[type, Mapping[str, str]] = {
    TopicConfig: {
        "name": "topicName",
        "read_queues": "readQueueNums",
        "write_queues": "writeQueueNums",
        "filter_type": "topicFilterType",
        "sys_flag": "topicSysFlag",
    },
    SubscriptionGroup: {
        "name": "groupName",
        "consume_enabled": "consumeEnable",
        "consume_from_min_enabled": "consumeFromMinEnable",
        "consume_broadcast_enabled": "consumeBroadcastEnable",
        "retry_queues": "retryQueueNums",
        "retry_max": "retryMaxTimes",
        "broker_id_when_slow": "whichBrokerWhenConsumeSlowly",
        "notify_consumer_ids_changed": "notifyConsumerIdsChangedEnable",
        "consume_orderly": "consumeMessageOrderly",
        "retry_policy": "groupRetryPolicy",
        "sys_flag": "groupSysFlag",
        "consume_timeout_minutes": "consumeTimeoutMinute",
        "subscriptions": "subscriptionDataSet",
    },
    RetryPolicy: {"exponential": "exponentialRetryPolicy", "customized": "customizedRetryPolicy"},
    SubscriptionData: {"expression": "subString", "version": "subVersion", "tags": "tagsSet", "codes": "codeSet"},
}

# Members that RocketMQ 5 has added. They are left out while they have their default: the text is 4.9's then, byte for
# byte, and either version reads it like that.
ADDED: Mapping[type, frozenset[str]] = {
    TopicConfig: frozenset({"attributes"}),
    SubscriptionGroup: frozenset(
        {"consume_orderly", "retry_policy", "sys_flag", "consume_timeout_minutes", "subscriptions", "attributes"}
    ),
}


STRANGERS = Allowance()
"""What all requests of this process may cost together whose bodies are no standard JSON; servers refill it."""


@dataclasses.dataclass(frozen=True, slots=True)
class JavaField:
    """One attribute of a declared class: how Java spells it, how it is read, and the value that is not written."""

    attribute: str
    name: str
    read: Reader
    unwritten: Any = None


def encode(value: Any) -> bytes:
    """The body of a declared object (or a map or list of them) as Java's remoting writes it."""
    return dumps(plain(value)).encode()


def encode_standard(value: Any) -> bytes:
    """The same as standard JSON: keys quoted and sorted, everything beyond ASCII escaped."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":")).encode()


def decode(kind: type[T], body: bytes | memoryview | str | None) -> T:
    """Read a body as `kind`; BodyError when it is empty, no JSON, or not of that form."""
    if not body:
        raise BodyError(f"{kind.__name__}: the body is empty")
    return from_plain(kind, loads(body))


def decode_request(kind: type[T], body: bytes | None) -> T:
    """The same for texts of untrusted peers: a long one that is no standard JSON is a BodyError as well."""
    if not body:
        raise BodyError(f"{kind.__name__}: the body is empty")
    return from_plain(kind, loads(body, STRANGERS))


def from_plain(kind: type[T], value: Any) -> T:
    """The object of class `kind` in a parsed JSON value."""
    declared: Any = kind
    result: T = _reader(declared)(value)
    return result


def plain(value: Any) -> Any:
    """The dictionaries and lists of an object, members in Java's order, ready for a JSON writer."""
    kind: Any = type(value)
    if kind in _SCALARS:
        return value
    if isinstance(value, Enum):
        return value.name
    if _is_declared(kind):
        members = ((member, getattr(value, member.attribute)) for member in _members(kind))
        return {
            member.name: plain(content)
            for member, content in members
            if content is not None and (member.unwritten is None or content != member.unwritten)
        }
    if isinstance(value, Mapping):
        return {_plain_key(key): plain(content) for key, content in value.items()}
    if isinstance(value, (set, frozenset)):
        return [plain(item) for item in sorted(value)]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def _plain_key(key: Any) -> Any:
    kind: Any = type(key)
    return ObjectKey(plain(key)) if _is_declared(kind) else key


@cache
def _is_declared(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct)


@cache
def _members(kind: Any) -> tuple[JavaField, ...]:
    """The members of a declared class in alphabetical order of Java's names."""
    hints = typing.get_type_hints(kind)
    if issubclass(kind, msgspec.Struct):
        names = {field.name: _camel(field.encode_name) for field in msgspec.structs.fields(kind)}
    else:
        names = {field.name: _camel(field.name) for field in dataclasses.fields(kind)}
    names.update(SPELLINGS.get(kind, {}))
    unwritten = {name: _default(kind, name) for name in ADDED.get(kind, ())}
    members = [
        JavaField(attribute, name, _reader(hints[attribute]), unwritten.get(attribute))
        for attribute, name in names.items()
    ]
    return tuple(sorted(members, key=lambda member: member.name))


def _default(kind: Any, attribute: str) -> Any:
    (field,) = (field for field in msgspec.structs.fields(kind) if field.name == attribute)
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


@cache
def _reader(kind: Any) -> Reader:
    """The reader of one annotation."""
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        return _reader(inner)
    if origin is dict:
        return partial(_read_map, _reader(arguments[0]), _reader(arguments[1]))
    if origin in (list, tuple, frozenset):
        return partial(_read_items, origin, _reader(arguments[0]))
    if kind in _SCALARS:
        return _SCALARS[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return partial(_read_constant, tuple(kind), kind.__members__)
    return partial(_read_object, kind)


def _read_object(kind: Any, value: Any) -> Any:
    if isinstance(value, str) and value.startswith("{"):
        value = loads(value)
    if not isinstance(value, Mapping):
        raise BodyError(f"{kind.__name__}: an object expected, found {type(value).__name__}")
    present = ((member, value.get(member.name)) for member in _members(kind))
    contents = {member.attribute: member.read(content) for member, content in present if content is not None}
    try:
        return kind(**{attribute: content for attribute, content in contents.items() if content is not None})
    except TypeError:
        raise BodyError(f"{kind.__name__}: a member that is needed is missing") from None


def _read_map(read_key: Reader, read: Reader, value: Any) -> dict[Any, Any]:
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        pairs: Iterable[tuple[Any, Any]] = value  # how other libraries of JSON write a map whose keys are objects
    elif isinstance(value, Mapping):
        pairs = value.items()
    else:
        raise BodyError(f"a map expected, found {type(value).__name__}")
    return {read_key(key): read(content) for key, content in pairs if content is not None}


def _read_items(collection: Callable[[list[Any]], Any], read: Reader, value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        raise BodyError(f"an array expected, found {type(value).__name__}")
    return collection([read(item) for item in value if item is not None])


def _read_constant(ordered: tuple[Enum, ...], names: Mapping[str, Enum], value: Any) -> Enum | None:
    if isinstance(value, int) and 0 <= value < len(ordered):
        return ordered[value]
    return names.get(str(value))


def _read_int(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise BodyError(f"a whole number expected, found {value!r:.80}") from None
    if not INT64_MIN <= number <= INT64_MAX:
        raise BodyError(f"{number} does not fit into 64 bits")
    return number


def _read_float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise BodyError(f"a number expected, found {value!r:.80}") from None


def _read_bool(value: Any) -> bool:
    if isinstance(value, (bool, int)):
        return bool(value)
    if isinstance(value, str):
        return value.lower() in ("true", "1")
    raise BodyError(f"true or false expected, found {value!r:.80}")


def _read_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    return dumps(value)  # Java puts the text of a number, or even of an object, into a String member


_SCALARS: dict[Any, Reader] = {int: _read_int, float: _read_float, bool: _read_bool, str: _read_str, Any: lambda v: v}
