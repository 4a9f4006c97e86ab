"""Until when a message is worth consuming. Properties of orbitmq's clients; brokers, and RocketMQ's clients, ignore
them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from orbitmq.message.model import Message
from orbitmq.message.properties import EXPIRES_AFTER_MS, EXPIRES_AT_MS
from orbitmq.message.timers import requested_ms

DIGITS_MAX: Final = 18  # of a time; what is longer is no time

M = TypeVar("M", bound=Message)


def with_expiry(properties: Mapping[str, str], now_ms: int) -> dict[str, str]:
    """The properties with the time at which the message expires, for those with a span, which counts from delivery."""
    kept = dict(properties)
    begins_ms = max(now_ms, requested_ms(properties, now_ms) or 0)
    kept[EXPIRES_AT_MS] = str(begins_ms + int(kept.pop(EXPIRES_AFTER_MS)))
    return kept


def expires_at_ms(properties: Mapping[str, str]) -> int | None:
    """When the message expires, in milliseconds since the epoch; None if it does not, or for what is no time."""
    text = properties.get(EXPIRES_AT_MS)
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > DIGITS_MAX:
        return None
    return int(text)


def is_expired(message: Message, now_ms: int) -> bool:
    """Whether the message should not be consumed any more."""
    at_ms = expires_at_ms(message.properties)
    return at_ms is not None and at_ms <= now_ms


def split_expired(messages: Sequence[M], now_ms: int) -> tuple[Sequence[M], Sequence[M]]:
    """The messages to consume, which is the same object if that is all of them, and those that have expired."""
    expired = [one for one in messages if EXPIRES_AT_MS in one.properties and is_expired(one, now_ms)]
    if not expired:  # almost always: messages without the property cost no call
        return messages, expired
    return [one for one in messages if not is_expired(one, now_ms)], expired
