"""Promises of what reads texts: Java's JSON, bodies, registrations, filter expressions."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from fuzz.promise import Target, is_refused, outcome, settles
from orbitmq.errors import BodyError, ExpressionIllegal, MessageIllegal
from orbitmq.filter.sql92 import LENGTH_MAX, compile_sql92
from orbitmq.filter.tags import tag_subscription, wants
from orbitmq.message import config
from orbitmq.message.config import DataVersion, TopicConfig
from orbitmq.message.javajson import REFERRED_MAX, REFERRED_TEXT, dumps, loads
from orbitmq.wire import bodies, bodies_access, bodies_transaction, mastership
from orbitmq.wire.bodies import BrokerRegistration, TopicTable
from orbitmq.wire.objects import _members, decode, encode
from orbitmq.wire.registration import decode_head, decode_registration, encode_registration

INT64 = range(-(1 << 63), 1 << 63)
WRITTEN_PER_BYTE = 512  # characters for one that was read: `{}` may be an object whose defaults are written out
WRITTEN_MORE = REFERRED_MAX * (REFERRED_TEXT + WRITTEN_PER_BYTE)  # for what references repeat

# ---------------------------------------------------------------------------------------------------------------- JSON


def check_json(data: bytes) -> None:
    value = outcome(BodyError, lambda: loads(data))
    if is_refused(value):
        return
    text = dumps(value)
    assert len(text) <= 6 * len(data) + WRITTEN_MORE
    assert settles(text, lambda once: dumps(loads(once)))


def _json_seeds() -> Iterator[bytes]:
    yield b'{"a":[1,-2.5e3,true,null,"\\u00e4\\n"],"b":{"c":{}}}'
    yield b"{0:'a',{\"queueId\":0}:10,name:[,1,,2],x:NaN,y:1L}"
    yield b'{"a":{"b":[{"c":"text"}]},"d":{"$ref":"$.a.b[0]"},"e":[{"$ref":"$.a"}]}'
    yield b'"\\ud83d\\ude00"'


# -------------------------------------------------------------------------------------------------------------- bodies

_MODULES = (bodies, bodies_access, bodies_transaction, mastership, config)
BODIES = sorted(
    {
        kind
        for module in _MODULES
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
        if not kind.__name__.endswith("Header")
    },
    key=lambda kind: (kind.__name__, kind.__module__),
)


def check_body(data: bytes) -> None:
    kind = BODIES[(data[0] if data else 0) % len(BODIES)]
    value = outcome(BodyError, lambda: decode(kind, data[1:]))
    if is_refused(value):
        return
    text = encode(value)
    assert len(text) <= WRITTEN_PER_BYTE * len(data) + WRITTEN_MORE
    assert settles(text, lambda once: encode(decode(kind, once)))


def _sample(kind: Any) -> Any:
    """A JSON value for an annotation, every member given."""
    if kind in _PLAIN_SAMPLES:
        return _PLAIN_SAMPLES[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind)).name
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _sample(arguments[0])
    if origin is dict:
        return {"1": _sample(arguments[1])} if arguments[0] in (int, str) else {}
    if origin is not None:
        return [_sample(arguments[0])]
    hints = get_type_hints(kind)
    return {member.name: _sample(hints[member.attribute]) for member in _members(kind)}


_PLAIN_SAMPLES = {int: 1, float: 1.5, bool: True, str: "a"}


def _body_seeds() -> Iterator[bytes]:
    for number, kind in enumerate(BODIES):
        yield bytes([number]) + dumps(_sample(kind)).encode()
        yield bytes([number]) + b"{}"


_BODY_WORDS = tuple(sorted({f'"{member.name}":'.encode() for kind in BODIES for member in _members(kind)}))

# ------------------------------------------------------------------------------------------------------- registrations

_PLAIN, _PACKED, _RAW = range(3)


def check_registration(data: bytes) -> None:
    form, body = (data[0] if data else 0) % 3, data[1:]
    if form == _PACKED:
        body = zlib.compress(body, 0)  # a stream that the engine changes is none any more, so it changes what is in it
    is_compressed = form != _PLAIN
    head = decode_head(body, compressed=is_compressed) if body else None
    whole = outcome(BodyError, lambda: decode_registration(body, compressed=is_compressed))
    if is_refused(whole):
        return
    table = whole.topic_table
    if head is not None:
        assert head.topic_table.data_version == table.data_version
        assert head.filter_servers == whole.filter_servers
    numbers = [table.data_version.counter, table.data_version.timestamp]
    for topic in table.topics.values():
        numbers += (topic.read_queues, topic.write_queues, topic.perm, topic.sys_flag)
    assert all(number in INT64 for number in numbers)
    assert decode_registration(encode_registration(whole)) == whole


def _registration_seeds() -> Iterator[bytes]:
    topics = {name: TopicConfig(name, 4, 4, 6, order=name == "b") for name in ("a", "b")}
    registration = BrokerRegistration(["filter"], TopicTable(DataVersion(3, 1_700_000_000_000), topics))
    packed = encode_registration(registration, compressed=True)
    yield bytes([_PLAIN]) + encode_registration(registration)
    yield bytes([_PACKED]) + zlib.decompress(packed)
    yield bytes([_RAW]) + packed


# --------------------------------------------------------------------------------------------------------- expressions

_MESSAGES: tuple[dict[str, str], ...] = (
    {},
    {"a": "1", "b": "text", "c": "-2.5e3", "TAGS": "t"},
    {"a": "9" * 5000, "b": "NaN", "c": "0x1p5", "TAGS": ""},
    {"a": "\uff11", "b": " 1 ", "c": "true", "TAGS": "a"},
)


def check_sql92(data: bytes) -> None:
    text = data.decode(errors="replace")
    expression = outcome(ExpressionIllegal, lambda: compile_sql92.__wrapped__(text))
    if not is_refused(expression):
        assert len(text) <= LENGTH_MAX
        assert all(expression.matches(message) in (True, False) for message in _MESSAGES)


def check_tags(data: bytes) -> None:
    text = data.decode(errors="replace")
    subscription = outcome(MessageIllegal, lambda: tag_subscription("T", text))
    if not is_refused(subscription):
        assert len(subscription.codes) <= len(subscription.tags) <= len(text)
        assert all(code in range(-(1 << 31), 1 << 31) for code in subscription.codes)
        assert all(wants(subscription, tag) for tag in subscription.tags)


def _sql92_seeds() -> Iterator[bytes]:
    yield b"a BETWEEN 1 AND 5 AND b IN ('x', 'it''s') OR NOT (c > 1.5 AND TAGS IS NOT NULL)"
    yield b"a = TRUE OR -a <= 3L -- note\n AND /* note */ b <> 'x' AND c NOT BETWEEN .5 AND 1e3"
    yield b"a NOT IN ('1') AND (b = 'x') IS NULL"


_SQL92_WORDS = (
    b" AND ", b" OR ", b"NOT ", b" BETWEEN ", b" IN ", b" IS ", b"NULL", b"TRUE", b"FALSE", b"a", b"TAGS", b"1",
    b"9223372036854775807", b"1.5", b"1e308", b"'x'", b"(", b")", b"=", b"<>", b"<", b"<=", b">", b">=", b"-",
    b"+", b",", b"--", b"/*", b"*/", b"''", b".",
)  # fmt: skip

_JSON_WORDS = (
    b'{"$ref":"$',
    b"null",
    b"NaN",
    b"1e5",
    b"-",
    b"\\u",
    b"\\x",
    b"\\ud83d",
    b"'",
    b"{",
    b"[",
    b"1L",
    b",",
    b":",
)

TARGETS = (
    Target("json", "a value or BodyError; what is written is bounded", check_json, _json_seeds, 20, _JSON_WORDS),
    Target(
        "body", "any declared body or BodyError; written again it reads the same", check_body, _body_seeds, 30,
        _JSON_WORDS + _BODY_WORDS,
    ),
    Target(
        "registration", "a registration or BodyError; its head says the same as the whole", check_registration,
        _registration_seeds, 8, (b'"topicConfigTable":', b'"dataVersion":', b'"filterServerList":', b" 4 4 6 "),
    ),
    Target(
        "sql92", "an expression that can be asked of any message, or ExpressionIllegal", check_sql92, _sql92_seeds, 2,
        _SQL92_WORDS,
    ),
    Target("tags", "a subscription or MessageIllegal", check_tags, lambda: [b"a || b", b"*", b"||"], 25, (b"||", b"*")),
)  # fmt: skip
