"""Light queues: topics and groups whose names begin with %LMQ% exist without being configured. Pure.

A message enters them by multi-dispatch, one for each device or user, so there may be as many as messages. A light topic
has one queue; a light group has one offset in it. Neither is stored in a table, registered with a name server, or
listed by tools; metrics are aggregated under the prefix. These are RocketMQ's rules, with its option enableLmq.
"""

from __future__ import annotations

from orbitmq.message.config import SubscriptionGroup, TopicConfig
from orbitmq.message.topics import LMQ_PREFIX, is_lmq

QUEUES = 1


def light_topic(name: str) -> TopicConfig | None:
    """The configuration of a light topic; None for other names."""
    return TopicConfig(name, QUEUES, QUEUES) if is_lmq(name) else None


def light_group(name: str) -> SubscriptionGroup | None:
    """The rules of a light group; None for other names."""
    return SubscriptionGroup(name) if is_lmq(name) else None


def folded(name: str) -> str:
    """The name under which metrics are aggregated."""
    return LMQ_PREFIX if is_lmq(name) else name
