"""Messages of RocketMQ as messages of FastStream, and back. Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from faststream.message import AckStatus, StreamMessage, decode_message

from orbitmq.client import Message, MessageExt, create_reply_message, reply_to_client
from orbitmq.integrations.faststream.options import SendOptions
from orbitmq.message.properties import MSG_TYPE, REPLY, RESERVED

CONTENT_TYPE: Final = "content-type"
CORRELATION_ID: Final = "correlation_id"
REPLY_TO: Final = "reply_to"
EMPTY_BODY: Final = "empty-body"
"""Marks a message whose body stands for an empty one, which brokers refuse."""

Raw: TypeAlias = MessageExt | tuple[MessageExt, ...]
"""A message, or those of a batch."""


@dataclass
class Settlement:
    """What becomes of a message or batch that a subscriber handles."""

    raw: Raw
    status: AckStatus | None = None
    """None until it is settled."""
    delay_level: int = 0
    """When it is to be delivered again: 0 lets the broker choose."""


handled: ContextVar[Settlement | None] = ContextVar("handled", default=None)
"""What the current task handles."""


class RocketMQMessage(StreamMessage[Raw]):
    """A message, or a batch whose `body` is a list and whose first message has the headers."""

    raw_message: Raw

    @property
    def topic(self) -> str:
        """The topic it was sent to."""
        return first_of(self.raw_message).topic

    @property
    def tags(self) -> str | None:
        """Its tag, None without one."""
        return first_of(self.raw_message).tags

    @property
    def keys(self) -> list[str]:
        """The keys by which it is found."""
        return first_of(self.raw_message).keys.split()

    @property
    def reconsume_times(self) -> int:
        """How often its group has failed to consume it."""
        return first_of(self.raw_message).reconsume_times

    async def ack(self) -> None:
        """It is consumed."""
        self._settle(AckStatus.ACKED)
        await super().ack()

    async def nack(self, *, delay_level: int = 0) -> None:
        """Deliver it again: after the delay of `delay_level` (1 to 18), at level 0 after one that grows with its
        failures (10 s at first), and in an ordered subscriber after a second. A message that fails too often, by
        default 17 times, is a dead letter.
        """
        self._settle(AckStatus.NACKED, delay_level)
        await super().nack()

    async def reject(self) -> None:
        """Make it a dead letter of the group."""
        self._settle(AckStatus.REJECTED)
        await super().reject()

    def _settle(self, status: AckStatus, delay_level: int = 0) -> None:
        settlement = handled.get()
        if settlement is not None and settlement.raw is self.raw_message and settlement.status is None:
            settlement.status, settlement.delay_level = status, delay_level


async def parse_message(raw: MessageExt) -> RocketMQMessage:
    """The message for FastStream."""
    headers = _headers(raw)
    return RocketMQMessage(
        raw,
        _body(raw),
        headers=headers,
        reply_to="" if raw.properties.get(MSG_TYPE) == REPLY else reply_to_client(raw) or headers.get(REPLY_TO, ""),
        content_type=headers.get(CONTENT_TYPE),
        correlation_id=headers.get(CORRELATION_ID),
        message_id=raw.msg_id,
    )


async def parse_batch(raw: tuple[MessageExt, ...]) -> RocketMQMessage:
    """The messages of a batch as one for FastStream. It is no request: a batch has no single reply."""
    batch_headers = [_headers(one) for one in raw]
    first = batch_headers[0]
    return RocketMQMessage(
        raw,
        [_body(one) for one in raw],
        headers=first,
        batch_headers=batch_headers,
        reply_to=first.get(REPLY_TO, ""),
        content_type=first.get(CONTENT_TYPE),
        correlation_id=first.get(CORRELATION_ID),
        message_id=raw[0].msg_id,
    )


async def decode_one(message: StreamMessage[Any]) -> Any:
    """The content of a message, by its content type."""
    return decode_message(message)


async def decode_batch(message: StreamMessage[Any]) -> list[Any]:
    """The contents of a batch. FastStream recognises it by its name."""
    return [decode_message(await parse_message(one)) for one in message.raw_message]


def encoded(
    topic: str,
    body: bytes,
    headers: Mapping[str, Any],
    options: SendOptions,
    *,
    request: MessageExt | None = None,
) -> Message:
    """The message to send; the reply to `request` if that is given. Headers without a value are left out.

    MessageIllegal for a header that cannot travel as a property.
    """
    others: dict[str, Any] = {name: value for name, value in options.items() if name != "sharding_key"}
    message = Message(topic, body or b"\0", **others)
    for name, value in headers.items():
        if value is not None and value != "":
            message.set_property(name, value if isinstance(value, str) else str(value))
    if not body:
        message.set_property(EMPTY_BODY, "true")
    if request is None:
        return message
    reply = create_reply_message(request, message.body)
    reply.properties = {**message.properties, **reply.properties}
    return reply


def _headers(raw: MessageExt) -> dict[str, str]:
    hidden = RESERVED | {EMPTY_BODY}
    return {name: value for name, value in raw.properties.items() if name not in hidden}


def _body(raw: MessageExt) -> bytes:
    return b"" if EMPTY_BODY in raw.properties else raw.body


def first_of(raw: Raw) -> MessageExt:
    """The message, or the first one of a batch."""
    return raw[0] if isinstance(raw, tuple) else raw
