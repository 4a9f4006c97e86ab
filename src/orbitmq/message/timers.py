"""Timer messages: delivered at a time that the sender names. Properties, and the handle that recalls one. Pure."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from orbitmq.errors import MessageIllegal
from orbitmq.message.properties import (
    DELAY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMES,
)

TIMER_PAIR: Final = b"TIMER_D"  # every property that makes a timer message begins like this
RECALL_TAG: Final = "_RECALL_TAG_"
HANDLE_VERSION: Final = "v1"
INT64_DIGITS: Final = 19
INT64_MAX: Final = (1 << 63) - 1


def requested_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """When to deliver the message, in milliseconds since the epoch; None if its sender names no time, or it waited
    already. MessageIllegal for what is no number.
    """
    if TIMER_OUT_MS in properties:
        return None
    for name, unit_ms, base_ms in (
        (TIMER_DELAY_SEC, 1000, now_ms), (TIMER_DELAY_MS, 1, now_ms), (TIMER_DELIVER_MS, 1, 0),
    ):  # fmt: skip
        if (text := properties.get(name)) is not None:
            return base_ms + _number(f"the property {name} of a timer message", text) * unit_ms
    return None


def is_delayed_by_level(properties: Mapping[str, str]) -> bool:
    """Whether the message waits as long as a delay level says; it wins over a time."""
    level = properties.get(DELAY, "")
    return level.isdecimal() and int(level) > 0


def _number(what: str, text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= INT64_DIGITS and int(digits) <= INT64_MAX):
        raise MessageIllegal(f"{what} must be a whole number, it is {text[:40]!r}")
    return int(text)


def without_request(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties without a time to deliver."""
    return {name: value for name, value in properties.items() if name not in TIMES}


def due_ms(get: Callable[[str], str | None]) -> int | None:
    """When a message that waits in the timer topic is due, by its properties; None if they do not say so.

    TIMER_OUT_MS is the last millisecond at which it is not due. RocketMQ rounds it down to seconds and waits for one
    more; the requested time is exact.
    """
    out, exact = get(TIMER_OUT_MS) or "", get(TIMER_DELIVER_MS) or ""
    if not _is_time(out):
        return None
    return max(int(out) + 1, int(exact) if _is_time(exact) else 0)


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < INT64_DIGITS


class RecallHandle(NamedTuple):
    """Names a timer message. `due_ms` is when it is delivered."""

    topic: str
    broker_name: str
    due_ms: int
    unique_id: str

    def encode(self) -> str:
        text = f"{HANDLE_VERSION} {self.topic} {self.broker_name} {self.due_ms} {self.unique_id}"
        return urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> RecallHandle:
        """MessageIllegal for anything else than an encoded handle."""
        try:
            version, topic, broker_name, due_ms, unique_id = urlsafe_b64decode(text.encode()).decode().split(" ")
        except (binascii.Error, ValueError) as error:
            raise MessageIllegal(f"this is no recall handle: {text[:100]!r}") from error
        if version != HANDLE_VERSION:
            raise MessageIllegal(f"the recall handle has version {version[:20]!r}, not {HANDLE_VERSION}")
        return cls(topic, broker_name, _number("the time in the recall handle", due_ms), unique_id)


def recall_key(topic: str, unique_id: str) -> str:
    """How 5.3 names the message to recall."""
    return f"{topic}+{unique_id}"
