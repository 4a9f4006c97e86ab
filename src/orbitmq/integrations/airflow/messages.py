"""Values of tasks as messages, and messages as values that Airflow can keep. Pure; knows nothing of Airflow."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from orbitmq.client.core.selectors import MessageSelector
from orbitmq.errors import ConfigurationError, MessageIllegal
from orbitmq.message.config import SQL92, TAG
from orbitmq.message.model import Message, MessageExt
from orbitmq.message.pop import FIRST_POP_TIME, POP_CK
from orbitmq.message.properties import RESERVED

BODY_MAX: Final = 64 << 10  # in an event, which Airflow's database keeps several times


def messages_of(
    topic: str,
    given: object,
    *,
    keys: str | Iterable[str] | None = None,
    tags: str | None = None,
    properties: Mapping[str, str] | None = None,
    delay: timedelta | datetime | float | str | None = None,
) -> Iterator[Message]:
    """The messages for a value, or for each value of a list, tuple or iterator. Bytes and text are a body as they are,
    a Message stays as it is, anything else is JSON. MessageIllegal for what cannot be sent.
    """
    when = _when(delay)
    for value in given if isinstance(given, list | tuple | Iterator) else [given]:
        if isinstance(value, Message):
            yield value
        else:
            yield Message(topic, _body(value), keys=keys, tags=tags, properties=properties, **when)


def _body(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise MessageIllegal(f"a {type(value).__name__} is no body: {error}; give bytes, text or a Message") from error


def _when(delay: timedelta | datetime | float | str | None) -> dict[str, Any]:
    if delay is None or delay == "":
        return {}
    if isinstance(delay, str):  # a template
        try:
            return {"deliver_after": float(delay)}
        except ValueError:
            raise MessageIllegal(f"delay {delay!r} is no number of seconds") from None
    return {"deliver_at": delay} if isinstance(delay, datetime) else {"deliver_after": delay}


def selector_of(expression: str, expression_type: str) -> MessageSelector:
    """The filter of a subscription. ConfigurationError for a type that there is not."""
    if expression_type not in (TAG, SQL92):
        raise ConfigurationError(f"expression_type {expression_type!r} is not known; use {TAG} or {SQL92}")
    return MessageSelector(expression, expression_type)


def payload_of(message: MessageExt) -> dict[str, Any]:
    """A message as JSON. `body` is text, by `encoding` `utf-8` or `base64`; both are None for one of more than 64 KiB.
    `properties` are the application's own, times are milliseconds since the epoch.
    """
    body, encoding = _text(message.body)
    return {
        "topic": message.topic,
        "message_id": message.msg_id,
        "body": body,
        "encoding": encoding,
        "tags": message.tags,
        "keys": message.keys.split(),
        "properties": {name: value for name, value in message.properties.items() if name not in _SYSTEM},
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "reconsume_times": message.reconsume_times,
    }


_SYSTEM: Final = RESERVED | {POP_CK, FIRST_POP_TIME}


def _text(body: bytes) -> tuple[str, str] | tuple[None, None]:
    if len(body) > BODY_MAX:
        return None, None
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return b64encode(body).decode(), "base64"


def receipt_of(message: MessageExt) -> dict[str, str]:
    """What another process needs to acknowledge a message that a SimpleConsumer has received: no secret."""
    return {"topic": message.topic, "message_id": message.msg_id, "receipt": message.properties[POP_CK]}


def received(receipt: Mapping[str, str]) -> MessageExt:
    """The message of a receipt, without body, as `SimpleConsumer.ack` takes it."""
    given = {POP_CK: receipt["receipt"]}
    return MessageExt(receipt["topic"], b"", msg_id=receipt["message_id"], properties=given)
