"""Messages as a consumer receives them, made without a broker."""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.message.hosts import encode_host
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import encode_properties
from orbitmq.message.unit import Unit, body_crc, message_of

HOST = encode_host("127.0.0.1", 10911)


def received(topic: str, body: bytes, properties: Mapping[str, str], queue_offset: int = 0) -> MessageExt:
    """One message of queue 0."""
    place = queue_offset * 1000
    unit = Unit(
        0, body_crc(body), 0, 0, queue_offset, place, 0, 1, HOST, 2, HOST, 0, 0, body, topic,
        encode_properties(properties),
    )  # fmt: skip
    return message_of(unit, "broker-a")
