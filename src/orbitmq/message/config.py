"""What brokers and clients agree about topics, groups and subscriptions. Frozen nouns; JSON is written elsewhere."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from orbitmq.message.flags import PERM_READ, PERM_WRITE

SINGLE_TAG: Final = "SINGLE_TAG"
MULTI_TAG: Final = "MULTI_TAG"
TAG: Final = "TAG"
SQL92: Final = "SQL92"
SUBSCRIBE_ALL: Final = "*"


class DataVersion(msgspec.Struct, frozen=True):
    """Counts the changes of a table; equal versions mean equal tables."""

    counter: int = 0
    timestamp: int = 0

    def next(self, now_ms: int) -> DataVersion:
        """The version after one more change."""
        return DataVersion(self.counter + 1, now_ms)


class TopicConfig(msgspec.Struct, frozen=True):
    """One topic on one broker. `sys_flag` bits: `flags.TOPIC_UNIT`, `flags.TOPIC_UNIT_SUBSCRIPTION`; `attributes` are
    described by `topic_types`.
    """

    name: str
    read_queues: int = 16
    write_queues: int = 16
    perm: int = PERM_READ | PERM_WRITE
    filter_type: str = SINGLE_TAG
    sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}


class RetryPolicyType(Enum):
    """How the delays before redeliveries of a message are specified."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetries(msgspec.Struct, frozen=True):
    """Each wait is a multiple of the one before it, in ms."""

    initial: int = 5000
    max: int = 7_200_000
    multiplier: int = 2


class CustomizedRetries(msgspec.Struct, frozen=True):
    """The waits one after another, in ms; the last one for all further deliveries."""

    next: tuple[int, ...] = ()


class RetryPolicy(msgspec.Struct, frozen=True):
    """How long a message waits before it is delivered again; without parameters of its type RocketMQ's. Clients of 5.x
    act on it. Brokers keep it, their own retries wait by delay levels.
    """

    type: RetryPolicyType = RetryPolicyType.CUSTOMIZED
    exponential: ExponentialRetries | None = None
    customized: CustomizedRetries | None = None


class FixedSubscription(msgspec.Struct, frozen=True):
    """What a group may subscribe of a topic."""

    topic: str = ""
    expression_type: str = TAG
    expression: str = ""
    version: int = 0


class SubscriptionGroup(msgspec.Struct, frozen=True):
    """One consumer group on one broker."""

    name: str
    consume_enabled: bool = True
    consume_from_min_enabled: bool = True
    consume_broadcast_enabled: bool = True
    retry_queues: int = 1
    retry_max: int = 16
    broker_id: int = 0
    broker_id_when_slow: int = 1
    notify_consumer_ids_changed: bool = True
    # Of RocketMQ 5; a broker keeps them for 5.x clients and tools.
    consume_orderly: bool = False
    retry_policy: RetryPolicy = RetryPolicy()
    sys_flag: int = 0
    consume_timeout_minutes: int = 15
    subscriptions: tuple[FixedSubscription, ...] | None = None
    attributes: dict[str, str] = {}


class SubscriptionData(msgspec.Struct, frozen=True):
    """A consumer's subscription to a topic. `tags` and `codes` are empty for `*` and for SQL92."""

    topic: str
    expression: str = SUBSCRIBE_ALL
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    version: int = 0
    expression_type: str = TAG
    class_filter_mode: bool = False
