"""Delayed messages: how many wait at each level, and which comes next."""

from __future__ import annotations

from msgspec import Struct

from orbitmq.admin.bodies import real_topic
from orbitmq.admin.masters import each_master
from orbitmq.admin.results import Result
from orbitmq.admin.session import Node, Session
from orbitmq.errors import BrokerError, UnitError
from orbitmq.message.topics import SCHEDULE_TOPIC
from orbitmq.message.unit import decode_unit, message_of
from orbitmq.operations.pulls import view_message
from orbitmq.operations.queries import queue_entries
from orbitmq.operations.tables import all_delay_offsets
from orbitmq.operations.topics import topic_stats
from orbitmq.wire.codes import ResponseCode


class DelayQueue(Struct, frozen=True, rename="camel", kw_only=True):
    """One delay level of one broker that has messages waiting; retries wait here as well."""

    broker_name: str
    level: int
    waiting_messages: int
    delivered_offset: int
    """Of the level's queue: the next to be delivered."""
    end_offset: int
    next_due_at_ms: int | None
    """When the first that waits is due; None when it cannot be read."""
    late_ms: int | None
    """By how much it is overdue; 0 when it is not."""
    next_topic: str | None
    """The topic to which the application sent it."""
    next_msg_id: str | None


async def delayed(session: Session, now_ms: int) -> Result[DelayQueue]:
    """The levels at which messages wait, of every master."""
    gathered = await each_master(session, lambda node: _levels(session, node, now_ms))
    items = [one for levels in gathered.responses.values() for one in levels]
    return Result(sorted(items, key=lambda one: (one.broker_name, one.level)), failures=gathered.failures)


async def _levels(session: Session, node: Node, now_ms: int) -> list[DelayQueue]:
    remoting, timeout_ms = session.remoting, session.timeout_ms
    try:
        stats = await topic_stats(remoting, node.address, SCHEDULE_TOPIC, timeout_ms=timeout_ms)
    except BrokerError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:  # no message was ever delayed here
            return []
        raise
    progress = await all_delay_offsets(remoting, node.address, timeout_ms=timeout_ms)
    found = []
    for queue, holds in sorted(stats.offset_table.items()):
        level = queue.queue_id + 1
        begin = max(progress.get(level, 0), holds.min_offset)
        if begin < holds.max_offset:
            found.append(await _level(session, node, level, begin, holds.max_offset, now_ms))
    return found


async def _level(session: Session, node: Node, level: int, begin: int, end: int, now_ms: int) -> DelayQueue:
    remoting, timeout_ms = session.remoting, session.timeout_ms
    entries = await queue_entries(
        remoting, node.address, SCHEDULE_TOPIC, level - 1, begin, 1, timeout_ms=timeout_ms
    )  # fmt: skip
    first, due_ms, message = next(iter(entries.queue_data), None), None, None
    if first is not None:
        due_ms = first.tags_code
        try:
            stored = await view_message(remoting, node.address, first.physical_offset, timeout_ms=timeout_ms)
            message = message_of(decode_unit(stored, with_body=False), node.name, decompress=False)
        except (BrokerError, UnitError):  # it has expired before it was delivered
            message = None
    return DelayQueue(
        broker_name=node.name,
        level=level,
        waiting_messages=end - begin,
        delivered_offset=begin,
        end_offset=end,
        next_due_at_ms=due_ms,
        late_ms=None if due_ms is None else max(0, now_ms - due_ms),
        next_topic=None if message is None else real_topic(message),
        next_msg_id=None if message is None else message.msg_id,
    )
