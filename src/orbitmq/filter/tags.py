"""Tag expressions: `TagA || TagB`, `*` for everything. Pure; it must not know where messages or subscriptions are kept.

A broker compares hashes of tags, which lets a few strangers through; a consumer compares the tags themselves.
"""

from __future__ import annotations

from orbitmq.errors import MessageIllegal
from orbitmq.message.config import SUBSCRIBE_ALL, SubscriptionData
from orbitmq.message.java_hash import string_hash

SEPARATOR = "||"


def tag_subscription(topic: str, expression: str | None, version: int = 0) -> SubscriptionData:
    """The subscription of a tag expression; MessageIllegal for one that holds separators only.

    None, an empty text and `*` mean every message. `a | b` is one tag: only a double bar separates.
    """
    if not expression or expression == SUBSCRIBE_ALL:
        return SubscriptionData(topic, version=version)
    parts = expression.split(SEPARATOR)
    if not any(parts):
        raise MessageIllegal(f"subscription {expression!r} of topic {topic} names no tag")
    tags = frozenset(part.strip() for part in parts) - {""}
    return SubscriptionData(topic, expression, tags, frozenset(map(string_hash, tags)), version)


def wants(subscription: SubscriptionData, tags: str | None) -> bool:
    """Whether a message with `tags` is subscribed; SQL expressions were evaluated by the broker."""
    return not subscription.tags or tags in subscription.tags
