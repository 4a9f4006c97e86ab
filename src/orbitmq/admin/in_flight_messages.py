"""Messages that were delivered to a group by POP consumption, and are not acknowledged."""

from __future__ import annotations

from msgspec import Struct

from orbitmq.admin.masters import each_master
from orbitmq.admin.results import Result
from orbitmq.admin.session import Node, Session
from orbitmq.errors import AdminError, BrokerError
from orbitmq.operations.pops import in_flight
from orbitmq.wire.bodies_pop import InFlightList
from orbitmq.wire.codes import ResponseCode


class InFlightMessage(Struct, frozen=True, rename="camel", kw_only=True):
    """A message in flight."""

    broker_name: str
    topic: str
    """The retry topic of one that was redelivered before."""
    queue_id: int
    queue_offset: int
    delivered_at_ms: int
    redelivered_at_ms: int
    """Unless it is acknowledged before."""


async def in_flight_messages(session: Session, group: str, topic: str | None, limit: int) -> Result[InFlightMessage]:
    """What a group has in flight, of one topic or all, the next to be redelivered first. Only brokers of orbitmq list
    it; others are named.
    """
    gathered = await each_master(session, lambda node: _at(session, node, group, topic, limit))
    items = [one for node, found in gathered.responses.items() for one in _messages(node, found)]
    result = Result(sorted(items, key=lambda one: one.redelivered_at_ms)[:limit], failures=gathered.failures)
    messages = sum(found.messages for found in gathered.responses.values())
    if messages > len(result.items):
        result.warnings.append(f"{messages} messages are in flight; {len(result.items)} of them are shown")
    result.warnings += [
        f"{node.name} has just started and does not know yet all that is in flight"
        for node, found in gathered.responses.items()
        if not found.is_complete
    ]
    return result


async def _at(session: Session, node: Node, group: str, topic: str | None, limit: int) -> InFlightList:
    try:
        return await session.request(in_flight, node, group, topic, limit=limit)
    except BrokerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        raise AdminError("brokers of RocketMQ do not list what is in flight", "") from error


def _messages(node: Node, found: InFlightList) -> list[InFlightMessage]:
    return [
        InFlightMessage(
            broker_name=node.name, topic=one.topic, queue_id=one.queue_id, queue_offset=offset,
            delivered_at_ms=one.delivered_ms, redelivered_at_ms=one.due_ms,
        )
        for one in found.checkpoints
        for offset in one.offsets
    ]  # fmt: skip
