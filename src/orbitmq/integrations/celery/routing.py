"""Queues and exchanges of kombu as topics and groups, messages of kombu as message bodies. Pure.

A queue that stays is a topic and a consumer group of the same name. Publishers put a message into the topics of the
queues that they have declared and bound, as with kombu's other virtual transports. An exchange has a topic of its own,
for the queues that go with their consumer (exclusive, or deleted automatically): it takes what is published to a fanout
exchange, or to one without another queue for the message. Such queues have no group; they follow the topics of their
exchanges from the time of their declaration on, so replies, events and remote control leave nothing behind.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from orbitmq.message.model import Message

NAME_MAX: Final = 48  # characters; the name of a retry topic has it twice, each with its namespace, and 127 at most
EXCHANGE: Final = "exchange-"
DIRECT: Final = "kombu-direct"
"""The topic of the default exchange: for queues that have none, such as those of replies."""

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_TAG: Final = re.compile(r"[\w.@:/-]{1,100}")

Payload = dict[str, Any]


def name_of(queue: str) -> str:
    """The topic and the group of a queue. Characters that names may not have are replaced, and a hash is added."""
    cleaned = _ILLEGAL.sub("-", queue)
    if cleaned == queue and len(queue) <= NAME_MAX:
        return queue
    return f"{cleaned[: NAME_MAX - 9]}-{hashlib.sha256(queue.encode()).hexdigest()[:8]}"


def topic_of_exchange(exchange: str) -> str:
    """The topic of an exchange that has a name."""
    return name_of(EXCHANGE + exchange)


def topic_of(queue: str, level: int) -> str:
    """The topic of a queue for the messages of a priority level; of the lowest one, 0, it has the queue's name."""
    return name_of(f"{queue}-priority-{level}" if level else queue)


def level_of(payload: Payload, levels: Sequence[int]) -> int:
    """The highest level that the priority of a message reaches; 9 is the highest priority, as in RabbitMQ."""
    priority = payload["properties"].get("priority")
    return max((level for level in levels if isinstance(priority, int) and level <= priority), default=0)


def encoded(topic: str, payload: Payload, *, delay_max_s: float, now: datetime) -> Message:
    """The message for a payload. The key is the task's id, the tag its name. With an ETA it is delivered then, but
    `delay_max_s` ahead at most; after its expiration, milliseconds as text, not at all.
    """
    headers = payload.get("headers") or {}
    tag, key = headers.get("task"), headers.get("id")
    eta = eta_of(payload)
    ahead_s = (eta - now).total_seconds() if eta is not None else 0.0
    lives_ms = payload["properties"].get("expiration")
    return Message(
        topic,
        json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass"),
        tags=tag if isinstance(tag, str) and _TAG.fullmatch(tag) else None,
        keys=key if isinstance(key, str) and _TAG.fullmatch(key) else None,
        deliver_after=min(ahead_s, delay_max_s) if ahead_s > 0 else None,
        expires_after=int(lives_ms) / 1000 if isinstance(lives_ms, str) and lives_ms.isdecimal() else None,
    )


def decoded(body: bytes) -> Payload:
    """The payload of a message. ValueError if kombu has not made it."""
    try:
        payload = json.loads(body.decode("utf-8", "surrogatepass"))
    except RecursionError as error:
        raise ValueError("no message of kombu: its JSON is nested too deeply") from error
    if not isinstance(payload, dict) or not isinstance(payload.get("properties"), dict) or "body" not in payload:
        raise ValueError("no message of kombu: its body needs `body` and `properties`")
    info = payload["properties"].setdefault("delivery_info", {})
    if not isinstance(info, dict) or not isinstance(payload.setdefault("headers", {}), dict | None):
        raise ValueError("no message of kombu: `headers` and `delivery_info` are objects")  # noqa: TRY004 - of any kind
    if not all(isinstance(info.get(name) or "", str) for name in ("exchange", "routing_key")):
        raise ValueError("no message of kombu: `exchange` and `routing_key` are text")
    _check_body(payload["body"], payload["properties"].get("body_encoding"))
    return payload


def _check_body(body: object, encoding: object) -> None:
    """ValueError if a worker could not decode a body: it would end, as would each one after it."""
    if encoding == "base64" and isinstance(body, str):
        base64.b64decode(body.encode())
    elif encoding not in (None, "", "utf-8"):
        raise ValueError(f"no message of kombu: `body_encoding` is {encoding!r}")


def eta_of(payload: Payload) -> datetime | None:
    """When a task is to run. None for at once, and for a time without a zone, which only the worker understands."""
    text = (payload.get("headers") or {}).get("eta")
    if not isinstance(text, str):
        return None
    try:
        eta = datetime.fromisoformat(text)
        return eta.astimezone(UTC) if eta.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
