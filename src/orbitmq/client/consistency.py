"""Whether the members of a group have the same subscriptions. Brokers keep one subscription per group, so where members
differ some of them lose messages. Read-only.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orbitmq.client.instance import Instance
from orbitmq.errors import BrokerError, OrbitMQError
from orbitmq.message.config import TAG, SubscriptionData
from orbitmq.message.topics import retry_topic
from orbitmq.operations import membership
from orbitmq.wire.codes import ResponseCode

ASKED_AT_ONCE = 8  # members queried at a time: checking a large group must not put load on the broker

Subscribed = Mapping[str, tuple[str, str]]
"""Topic -> expression and its type."""


@dataclass(frozen=True, slots=True)
class SubscriptionDifference:
    """A topic for which the members of a group have different subscriptions."""

    topic: str
    members: Mapping[str, list[str]]
    """The subscription, `(nothing)` for none -> sorted client ids."""


@dataclass(frozen=True, slots=True)
class SubscriptionCheck:
    """The result of comparing the subscriptions of a group's members."""

    members: list[str]
    """Sorted client ids of the members that responded."""
    silent: Mapping[str, str]
    """Client id -> why the subscriptions of this member are unknown."""
    differences: list[SubscriptionDifference]
    """The topics in which the members differ."""

    @property
    def is_consistent(self) -> bool:
        """Whether all members that responded have the same subscriptions."""
        return not self.differences


def subscribed(subscriptions: Iterable[SubscriptionData], group: str) -> Subscribed:
    """The part of subscriptions that is compared: neither their versions, which differ between members that agree, nor
    the retry topic of the group.
    """
    own = retry_topic(group)
    return {one.topic: (one.expression, one.expression_type) for one in subscriptions if one.topic != own}


def differences(members: Mapping[str, Subscribed]) -> list[SubscriptionDifference]:
    """The topics with differing subscriptions. `a || b` and `b||a` are the same."""
    found = []
    for topic in sorted({topic for subscriptions in members.values() for topic in subscriptions}):
        by_meaning: defaultdict[object, list[str]] = defaultdict(list)
        for client_id in sorted(members):
            by_meaning[_meaning(members[client_id].get(topic))].append(client_id)
        if len(by_meaning) > 1:
            texts = {_text(members[ids[0]].get(topic)): ids for ids in by_meaning.values()}
            found.append(SubscriptionDifference(topic, texts))
    return found


def _meaning(subscription: tuple[str, str] | None) -> object:
    if subscription is None or subscription[1] != TAG:
        return subscription
    return frozenset(tag.strip() for tag in subscription[0].split("||"))


def _text(subscription: tuple[str, str] | None) -> str:
    if subscription is None:
        return "(nothing)"
    expression, kind = subscription
    return expression if kind == TAG else f"{kind}: {expression}"


async def check(instance: Instance, group: str) -> SubscriptionCheck:
    """Query every member of `group` through a broker. BrokerError, ClientError, RemotingError when no broker can list
    the members; a group without members is consistent.
    """
    broker = await instance.any_broker(retry_topic(group))
    timeout_ms = instance.settings["api_timeout_ms"]
    try:
        ids = await membership.consumer_ids(instance.remoting, broker, group, timeout_ms=timeout_ms)
    except BrokerError as error:
        if error.code != ResponseCode.SYSTEM_ERROR:  # the response for a group without members
            raise
        ids = []
    said = await subscriptions_of(instance, broker, group, ids)
    return SubscriptionCheck(sorted(said.subscribed), said.silent, differences(said.subscribed))


@dataclass(frozen=True, slots=True)
class SubscriptionResponses:
    """The responses of members, by client id."""

    subscribed: dict[str, Subscribed] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)


async def subscriptions_of(
    instance: Instance, broker: str, group: str, client_ids: Iterable[str]
) -> SubscriptionResponses:
    """The subscriptions of these members, or why they are unknown."""
    gate = asyncio.Semaphore(ASKED_AT_ONCE)
    said = SubscriptionResponses()

    async def one(client_id: str) -> None:
        async with gate:
            try:
                info = await membership.running_info(instance.remoting, broker, group, client_id)
                said.subscribed[client_id] = subscribed(info.subscription_set, group)
            except OrbitMQError as error:
                said.silent[client_id] = str(error)

    await asyncio.gather(*map(one, client_ids))
    return said
