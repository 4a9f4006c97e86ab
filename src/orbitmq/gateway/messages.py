"""Messages in both forms: JSON of the gateway, and those of the client. Pure."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import UNSET

from orbitmq.client.core.model import SendResult
from orbitmq.errors import StatusError
from orbitmq.gateway import bodies
from orbitmq.gateway.problems import Refused
from orbitmq.message.model import Message, MessageExt
from orbitmq.message.pop import FIRST_POP_TIME, POP_CK, Receipt
from orbitmq.message.properties import RESERVED
from orbitmq.proxy.handles import Handle, parse_handle

_YEAR_10000_MS: Final = 253_402_300_800_000
_SYSTEM: Final = RESERVED | {POP_CK, FIRST_POP_TIME}
_TIMER: Final = "TIMER_"  # how the names of a timer message's properties begin


def new_message(topic: str, given: bodies.PlainMessage) -> Message:
    """The message to send. Refused unless it has exactly one body, MessageIllegal for a wrong property or delay."""
    delays: dict[str, Any] = {}
    if isinstance(given, bodies.NewMessage):
        delays = {
            "delay_level": given.delay_level or 0,
            "deliver_at": given.deliver_at or None,
            "deliver_after": None if given.delay_seconds is UNSET else given.delay_seconds,
        }
    body, tag = _body_of(given), given.tag or None
    return Message(topic, body, tags=tag, keys=given.keys, properties=given.properties, **delays)


def _body_of(given: bodies.PlainMessage) -> bytes:
    if (given.body is UNSET) == (given.body_base64 is UNSET):
        raise Refused(400, "a message has either body or bodyBase64, and not both")
    if isinstance(given.body, str):
        return given.body.encode()
    text = given.body_base64
    assert isinstance(text, str)
    if len(text) % 4 or text.endswith("==="):  # `b64decode` lets more padding pass than there is to be
        raise Refused(400, "bodyBase64 is not base64: its padding is wrong")
    try:
        return b64decode(text, validate=True)
    except binascii.Error as error:
        raise Refused(400, f"bodyBase64 is not base64: {error}") from error


def sent_messages(result: SendResult) -> list[bodies.SentMessage]:
    """The messages of a send, which are in one queue one after another."""
    offset_ids = result.offset_msg_id.split(",")
    return [
        bodies.SentMessage(
            message_id=message_id,
            offset_message_id=offset_ids[number] if number < len(offset_ids) else "",
            status=result.status.name,  # type: ignore[arg-type]  # the gateway has no outbox
            place=bodies.Place(
                broker_name=result.queue.broker_name,
                queue_id=result.queue.queue_id,
                queue_offset=result.queue_offset + number,
            ),
            recall_handle=result.recall_handle,
        )
        for number, message_id in enumerate(result.msg_id.split(","))
    ]


def message_fields(message: MessageExt) -> dict[str, Any]:
    """The fields of a message that was read."""
    text, encoded = _text_of(message.body)
    return {
        "message_id": message.msg_id,
        "topic": message.topic,
        "place": bodies.Place(
            broker_name=message.broker_name, queue_id=message.queue_id, queue_offset=message.queue_offset
        ),
        "body": text,
        "body_base64": encoded,
        "tag": message.tags,
        "keys": message.keys.split(),
        "properties": {
            name: value
            for name, value in message.properties.items()
            if name not in _SYSTEM and not name.startswith(_TIMER)
        },
        "born_at": _time(message.born_timestamp),
        "stored_at": _time(message.store_timestamp),
    }


def delivery(message: MessageExt) -> bodies.Delivery:
    """A message that was delivered to a group."""
    return bodies.Delivery(**message_fields(message), handle=handle_of(message), attempt=message.reconsume_times + 1)


def deliveries(messages: Sequence[MessageExt]) -> list[bodies.Delivery]:
    return list(map(delivery, messages))


def _text_of(body: bytes) -> tuple[str | None, str | None]:
    try:
        return body.decode(), None
    except UnicodeDecodeError:
        return None, b64encode(body).decode()


def _time(at_ms: int) -> str | None:
    if not 0 <= at_ms < _YEAR_10000_MS:  # a sender's clock may say anything
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def handle_of(message: MessageExt) -> str:
    """The handle of a delivery."""
    receipt = Receipt.decode(message.properties[POP_CK])
    return urlsafe_b64encode(Handle(receipt, message.commit_log_offset).encode().encode()).decode().rstrip("=")


def delivered(topic: str, handle: str) -> MessageExt:
    """As much of a message as its handle says, which settles its delivery. Refused for what is no handle."""
    try:
        found = parse_handle(urlsafe_b64decode(handle + "=" * (-len(handle) % 4)).decode())
    except (ValueError, StatusError) as error:
        raise Refused(404, f"no delivery has the handle {handle[:100]!r}", "return it as it was received") from error
    message = MessageExt(topic, b"", broker_name=found.receipt.broker_name, commit_log_offset=found.log_offset)
    message.properties[POP_CK] = found.receipt.encode()
    return message
