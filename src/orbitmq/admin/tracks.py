"""What became of a message in each group: consumed, filtered, not yet. Decided without I/O from what brokers know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from orbitmq.admin.results import Gathered, Result
from orbitmq.admin.session import Node, Session, present
from orbitmq.errors import BrokerError, ExpressionIllegal
from orbitmq.filter.sql92 import compile_sql92
from orbitmq.filter.tags import wants
from orbitmq.message.config import SQL92, SubscriptionData
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.topics import TOOLS_CONSUMER_GROUP, is_system_group
from orbitmq.operations.groups import consumer_connections
from orbitmq.operations.offsets import query_consumer_offset
from orbitmq.operations.pops import in_flight
from orbitmq.operations.topics import groups_of_topic
from orbitmq.wire.bodies import ConsumerConnection, ConsumeType, MessageModel
from orbitmq.wire.codes import ResponseCode

GROUPS_MAX = 200
"""Limit of groups for one message: each costs a request to every broker of the topic."""

IN_FLIGHT_LIMIT = 1000
"""Checkpoints that are looked at, the most that a broker lists. Of a group with more some are not found."""


class TrackKind(StrEnum):
    """RocketMQ's names for what became of a message in a group."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    """The group has passed it, and its subscription leaves it out."""
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    IN_FLIGHT = "IN_FLIGHT"
    """It was delivered and is not acknowledged; of POP consumption, not one of RocketMQ's names."""
    PULL = "PULL"
    """Its members pull by themselves: an offset beyond the message may have been set, and proves nothing."""
    NOT_ONLINE = "NOT_ONLINE"
    UNKNOWN = "UNKNOWN"


class Track(Struct, frozen=True, rename="camel", kw_only=True):
    """What became of a message in one group."""

    group: str
    track: TrackKind
    passed: bool | None
    """Whether the group's offset is behind the message; None when the offset is not known."""
    consumer_offset: int | None
    """The next offset of the message's queue that the group consumes."""
    lag_messages: int | None
    """How many messages of the queue come before this one; 0 when it is the next, or passed."""
    clients: int
    """Members that are online, over all brokers."""
    expression: str | None
    """The group's subscription of the topic; None if no member is online."""
    filtered: bool | None
    """Whether the subscription leaves the message out."""
    redelivered_at_ms: int | None = None
    """When a message in flight is redelivered."""
    note: str | None = None
    """Why it is unknown, or what is unusual."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What brokers say about one group. `connections` are those of brokers where it is online, best first."""

    group: str
    connections: Sequence[ConsumerConnection] = ()
    offset: int | None = None
    problem: str | None = None
    redelivered_ms: int | None = None


class Redelivery(NamedTuple):
    """Whether a message is in flight."""

    due_ms: int | None = None
    """When it is redelivered; None if it is not in flight."""
    problem: str | None = None
    """Why that is not known."""


def track_of(evidence: Evidence, message: MessageExt) -> Track:
    """The decision for one group."""
    subscription = _subscription(evidence.connections, message.topic)
    passed = None if evidence.offset is None else evidence.offset > message.queue_offset
    filtered = None if subscription is None else not _wants(subscription, message)
    kind, note = _kind(evidence, subscription, passed=passed, filtered=filtered)
    return Track(
        group=evidence.group,
        track=kind,
        passed=passed,
        consumer_offset=evidence.offset,
        lag_messages=None if evidence.offset is None else max(0, message.queue_offset - evidence.offset),
        clients=len({one.client_id for found in evidence.connections for one in found.connection_set}),
        expression=None if subscription is None else subscription.expression or "*",
        filtered=filtered,
        redelivered_at_ms=evidence.redelivered_ms,
        note=note,
    )


def _kind(
    evidence: Evidence, subscription: SubscriptionData | None, *, passed: bool | None, filtered: bool | None
) -> tuple[TrackKind, str | None]:
    if evidence.problem is not None:
        return TrackKind.UNKNOWN, evidence.problem
    if evidence.redelivered_ms is not None:
        return TrackKind.IN_FLIGHT, None
    if not evidence.connections:
        return TrackKind.NOT_ONLINE, None
    first = evidence.connections[0]
    if first.message_model is MessageModel.BROADCASTING:
        return TrackKind.UNKNOWN, "broadcasting: each member keeps its own offsets"
    if first.consume_type is ConsumeType.CONSUME_ACTIVELY:
        return TrackKind.PULL, None
    if subscription is None:
        return TrackKind.NOT_CONSUME_YET, "its members that are online do not subscribe the topic"
    if not passed:
        return TrackKind.NOT_CONSUME_YET, None
    return (TrackKind.CONSUMED_BUT_FILTERED if filtered else TrackKind.CONSUMED), None


def _subscription(connections: Sequence[ConsumerConnection], topic: str) -> SubscriptionData | None:
    return next((one.subscription_table[topic] for one in connections if topic in one.subscription_table), None)


def _wants(subscription: SubscriptionData, message: MessageExt) -> bool:
    if subscription.expression_type != SQL92:
        return wants(subscription, message.tags)
    try:
        return compile_sql92(subscription.expression).matches(message.properties)
    except ExpressionIllegal:  # of a version that knows more than this one
        return True


async def tracks(session: Session, message: MessageExt) -> Result[Track]:
    """What became of the message in every group that subscribes its topic or has offsets of it."""
    homes = sorted(await session.homes(message.topic), key=lambda node: node.name != message.broker_name)
    found = await groups_of(session, message.topic, homes)
    groups = found.items[:GROUPS_MAX]
    if len(groups) < len(found.items):
        found.warnings.append(f"{len(found.items)} groups consume {message.topic}; {GROUPS_MAX} of them are checked")
    online = await session.each(
        {(group, node): f"{node}: members of {group}" for group in groups for node in homes},
        lambda key: session.request(consumer_connections, present(key[1]), key[0]),
    )
    queue, queue_offset = MessageQueue(message.topic, message.broker_name, message.queue_id), message.queue_offset
    offsets = await consumer_offsets(session, queue, groups)
    passed = [group for group, offset in offsets.responses.items() if offset is not None and offset > queue_offset]
    again = await in_flight_until(session, queue, queue_offset, passed)

    def evidence(group: str) -> Evidence:
        known = [online.responses.get((group, node)) for node in homes]
        silent = [str(node) for node in homes if (group, node) not in online.responses]
        problem = f"not reported by {', '.join(silent)}" if silent else None
        if group not in offsets.responses:
            problem = f"the offset is not reported by {queue.broker_name}"
        redelivery = again.responses.get(group, Redelivery())
        if group in passed and group not in again.responses:
            problem = f"what is in flight is not reported by {queue.broker_name}"
        return Evidence(
            group, [one for one in known if one is not None], offsets.responses.get(group),
            problem or redelivery.problem, redelivery.due_ms,
        )  # fmt: skip

    items = [track_of(known, message) for known in map(evidence, groups) if not _is_no_group(known, message.topic)]
    return Result(items, found.warnings, [*found.failures, *online.failures, *offsets.failures, *again.failures])


def _is_no_group(evidence: Evidence, topic: str) -> bool:
    """RocketMQ 5.3 names the topic itself among its groups."""
    return evidence.group == topic and not evidence.connections and not evidence.offset


async def groups_of(session: Session, topic: str, homes: Sequence[Node]) -> Result[str]:
    """Groups that consume the topic according to each of its brokers, without system groups."""
    gathered = await session.each_node(homes, lambda node: session.request(groups_of_topic, node, topic))
    names = {name for groups in gathered.responses.values() for name in groups}
    return Result(
        sorted(n for n in names if not is_system_group(n) and n != TOOLS_CONSUMER_GROUP), [], gathered.failures
    )


async def consumer_offsets(session: Session, queue: MessageQueue, groups: Sequence[str]) -> Gathered[str, int | None]:
    """The offset of each group in one queue, None without one."""
    node = await session.node(queue.broker_name)
    return await session.each(
        {group: f"{node}: offset of {group}" for group in groups},
        lambda group: session.request(query_consumer_offset, node, group, queue),
    )


async def in_flight_until(
    session: Session, queue: MessageQueue, queue_offset: int, groups: Sequence[str]
) -> Gathered[str, Redelivery]:
    """When a message is redelivered to each group that has it in flight. Brokers of RocketMQ do not report it, nor does
    a slave that stands in for its master: not in flight.
    """
    node = await session.node(queue.broker_name)

    async def ask(group: str) -> Redelivery:
        try:
            found = await session.request(in_flight, node, group, queue.topic, limit=IN_FLIGHT_LIMIT)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return Redelivery()
            raise
        ours = [one for one in found.checkpoints if (one.topic, one.queue_id) == (queue.topic, queue.queue_id)]
        due_ms = next((one.due_ms for one in ours if queue_offset in one.offsets), None)
        if due_ms is None and node.is_master and not found.lists_all(IN_FLIGHT_LIMIT):
            return Redelivery(problem=f"{queue.broker_name} lists only a part of what is in flight")
        return Redelivery(due_ms)

    return await session.each({group: f"{node}: what {group} has in flight" for group in groups}, ask)
