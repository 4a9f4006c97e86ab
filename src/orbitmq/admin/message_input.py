"""Messages from arguments or lines of text. Lines are parsed without I/O; `message_send` sends in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

import orjson

from orbitmq.admin.message_send import Outlet, Sent, message_of_json
from orbitmq.admin.session import Session
from orbitmq.errors import ConfigurationError, MessageIllegal
from orbitmq.message.model import Message
from orbitmq.runtime.clock import Clock

LINE_MAX = 16 << 20
"""Characters of a line: a body of 4 MiB as hexadecimal text, and its properties."""
NO_TEXT = "surrogateescape"
"""How bytes that are no text are kept in a text: arguments are read so, standard input should be."""


@dataclass(frozen=True, slots=True)
class MessageDefaults:
    """Defaults for every message, overridden by its JSON line."""

    topic: str | None = None
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_level: int = 0
    deliver_after_s: float | None = None
    expires_after_s: float | None = None
    ordering_key: str | None = None
    queue: tuple[str, int] | None = None


def queue_of(broker: str | None, queue: int | None) -> tuple[str, int] | None:
    """Both or none. ConfigurationError for one of them."""
    if (broker is None) != (queue is None):
        raise ConfigurationError("--broker and --queue name a queue together")
    return None if broker is None or queue is None else (broker, queue)


def draft(common: MessageDefaults, body: str) -> tuple[Message, str | None]:
    """A message with this text; bytes that were no text when it was read are sent as they were. ConfigurationError
    without a topic, MessageIllegal for an illegal property.
    """
    if common.topic is None:
        raise ConfigurationError("give the topic")
    made = Message(
        common.topic, body.encode(errors=NO_TEXT), tags=common.tags, keys=common.keys, delay_level=common.delay_level,
        deliver_after=common.deliver_after_s, expires_after=common.expires_after_s, properties=common.properties,
    )  # fmt: skip
    return _checked(made, common.ordering_key)


def _checked(message: Message, ordering_key: str | None) -> tuple[Message, str | None]:
    """Both, checked. MessageIllegal for text that UTF-8 cannot encode: a lone surrogate."""
    try:
        for text in (*message.properties, *message.properties.values(), ordering_key or ""):
            text.encode()
    except UnicodeEncodeError as error:
        raise MessageIllegal(f"tags, keys and properties must be UTF-8: {error.reason}") from error
    return message, ordering_key


def draft_of_json(common: MessageDefaults, line: str) -> tuple[Message, str | None]:
    """The message of a JSON line; `common` supplies what the line leaves out. MessageIllegal for an invalid line."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise MessageIllegal(f"no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise MessageIllegal("a JSON object is needed")
    ours = {
        "tags": common.tags,
        "keys": list(common.keys) or None,
        "delayLevel": common.delay_level or None,
        "deliverAfterSeconds": common.deliver_after_s,
        "expiresAfterSeconds": common.expires_after_s,
        "orderingKey": common.ordering_key,
    }
    said = {name: value for name, value in fields.items() if value not in (None, [])}
    own = said.get("properties", {})
    if not isinstance(own, dict):
        raise MessageIllegal("properties must be an object")
    return _checked(*message_of_json({**ours, **said, "properties": {**common.properties, **own}}, common.topic))


async def feed(
    session: Session,
    common: MessageDefaults,
    bodies: Sequence[str],
    lines: TextIO,
    clock: Clock,
    *,
    jsonl: bool = False,
) -> AsyncIterator[Sent]:
    """Send `bodies`, or without any each line of `lines` that is not empty; the receipt of each. The first that cannot
    be sent ends it: MessageIllegal names the line.
    """
    outlet = Outlet(session, clock)
    if bodies:
        for body in bodies:
            message, key = draft_of_json(common, body) if jsonl else draft(common, body)
            yield await outlet.send(message, ordering_key=key, queue=common.queue)
        return
    number = 0
    while line := await asyncio.to_thread(lines.readline, LINE_MAX):
        number += 1
        text = line.rstrip("\r\n")
        if not text:
            continue
        if len(line) >= LINE_MAX:
            raise MessageIllegal(f"line {number} is longer than {LINE_MAX} characters")
        try:
            message, key = draft_of_json(common, text) if jsonl else draft(common, text)
        except MessageIllegal as error:
            raise MessageIllegal(f"line {number}: {error}") from error
        yield await outlet.send(message, ordering_key=key, queue=common.queue)
