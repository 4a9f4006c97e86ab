"""The settings sent to a RocketMQ 5 client: its own, completed by those of its group and of this server. Pure.

The response replaces what the client began with, so zero or an absent value would replace a good one: every field that
clients read is filled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from orbitmq.errors import StatusError
from orbitmq.message.config import RetryPolicyType, SubscriptionGroup
from orbitmq.message.delay import DEFAULT_DELAY_LEVELS, parse_delay_levels
from orbitmq.wire.v2.enums import Code
from orbitmq.wire.v2.messages import Settings, set_time

_INT32_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waiting times that grow: the first, the longest, and the factor between two."""

    initial_ms: int
    max_ms: int
    multiplier: float = 2.0


DEFAULT_GROUP_BACKOFF: Final = Backoff(5_000, 7_200_000)  # of a group that says only that its times grow
DEFAULT_STEPS_MS: Final = parse_delay_levels(DEFAULT_DELAY_LEVELS)


@dataclass(frozen=True, slots=True)
class GroupRules:
    """What the configuration of a consumer group says: order, how often to redeliver, and after how long."""

    is_fifo: bool = False
    retry_max: int = 16
    backoff: Backoff | tuple[int, ...] = DEFAULT_STEPS_MS  # or milliseconds of each redelivery


def group_rules(group: SubscriptionGroup) -> GroupRules:
    """Those of a group's configuration."""
    policy = group.retry_policy
    backoff: Backoff | tuple[int, ...] = DEFAULT_STEPS_MS
    if policy.type is RetryPolicyType.EXPONENTIAL:
        found = policy.exponential
        backoff = DEFAULT_GROUP_BACKOFF if found is None else Backoff(found.initial, found.max, float(found.multiplier))
    elif policy.customized is not None and policy.customized.next:
        backoff = policy.customized.next
    return GroupRules(group.consume_orderly, group.retry_max, backoff)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What this server wants of every client."""

    attempts_max: int = 3
    producer_backoff: Backoff = field(default=Backoff(10, 1_000))
    body_size_max: int = 4 << 20
    validate_message_type: bool = True
    receive_batch_size: int = 32
    long_polling_ms: int = 20_000


def merged_settings(sent: Any, group: GroupRules | None, server: ServerSettings) -> Any:
    """The Settings to send to a client that has sent these. `group` is None if the group has no configuration.

    StatusError if they are neither those of a producer nor of a consumer.
    """
    merged = Settings()
    merged.CopyFrom(sent)
    role = merged.WhichOneof("pub_sub")
    if role == "publishing":
        _fill_producer(merged, server)
    elif role == "subscription":
        _fill_consumer(merged, group, server)
    else:
        raise StatusError(
            Code.BAD_REQUEST, "the settings contain neither publishing nor subscription: send what the client does"
        )
    merged.metric.Clear()
    merged.metric.on = False  # no collector takes the metrics of clients
    return merged


def _fill_producer(merged: Any, server: ServerSettings) -> None:
    merged.backoff_policy.max_attempts = server.attempts_max
    _set_backoff(merged.backoff_policy, server.producer_backoff)
    merged.publishing.max_body_size = server.body_size_max
    merged.publishing.validate_message_type = server.validate_message_type


def _fill_consumer(merged: Any, group: GroupRules | None, server: ServerSettings) -> None:
    """A group without configuration leaves to the client what it has set."""
    subscription, policy = merged.subscription, merged.backoff_policy
    rules = GroupRules() if group is None else group
    if group is not None or subscription.receive_batch_size <= 0:
        subscription.receive_batch_size = server.receive_batch_size
    if group is not None or not _is_some(subscription.long_polling_timeout):
        set_time(subscription.long_polling_timeout, server.long_polling_ms)
    if group is not None or not subscription.HasField("fifo"):
        subscription.fifo = rules.is_fifo
    if group is not None or policy.max_attempts <= 0:
        policy.max_attempts = min(max(rules.retry_max, 0) + 1, _INT32_MAX)
    if group is not None or policy.WhichOneof("strategy") is None:
        _set_backoff(policy, rules.backoff)


def _is_some(duration: Any) -> bool:
    return bool(duration.seconds > 0 or (duration.seconds == 0 and duration.nanos > 0))


def _set_backoff(policy: Any, backoff: Backoff | tuple[int, ...]) -> None:
    if isinstance(backoff, Backoff):
        policy.exponential_backoff.Clear()
        set_time(policy.exponential_backoff.initial, backoff.initial_ms)
        set_time(policy.exponential_backoff.max, backoff.max_ms)
        policy.exponential_backoff.multiplier = backoff.multiplier
    else:
        policy.customized_backoff.Clear()
        for step_ms in backoff:
            set_time(policy.customized_backoff.next.add(), step_ms)
