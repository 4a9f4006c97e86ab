"""Delayed messages: how many wait at each level or for a time of their own, and which comes next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from orbitmq.admin.bodies import real_topic
from orbitmq.admin.masters import each_master
from orbitmq.admin.plans import Change, Plan, Step
from orbitmq.admin.results import Result
from orbitmq.admin.session import Node, Session
from orbitmq.errors import AdminError, BrokerError, Conflict, UnitError
from orbitmq.message.model import MessageExt
from orbitmq.message.timers import RecallHandle
from orbitmq.message.topics import RETRY_PREFIX, SCHEDULE_TOPIC
from orbitmq.message.unit import decode_unit, message_of
from orbitmq.operations.pulls import view_message
from orbitmq.operations.queries import queue_entries
from orbitmq.operations.sends import recall
from orbitmq.operations.tables import all_delay_offsets
from orbitmq.operations.timers import pending_timers
from orbitmq.operations.topics import topic_stats
from orbitmq.wire.bodies import PendingTimer, PendingTimers
from orbitmq.wire.codes import ResponseCode

PAGE: Final = 200  # timer messages asked for at once
PAGE_MAX: Final = 1000  # the most that a broker lists at once


class DelayQueue(Struct, frozen=True, rename="camel", kw_only=True):
    """One delay level of one broker that has messages waiting, retries among them; or its timer messages."""

    broker_name: str
    level: int | None
    """None: messages with a time of their own."""
    waiting_messages: int
    delivered_offset: int | None
    """Of the level's queue: the next to be delivered."""
    end_offset: int | None
    next_due_at_ms: int | None
    """When the first that waits is due; None when it cannot be read."""
    late_ms: int | None
    """By how much it is overdue; 0 when it is not."""
    next_topic: str | None
    """The topic to which the application sent it."""
    next_msg_id: str | None


class Timer(Struct, frozen=True, rename="camel", kw_only=True):
    """A message that waits for a time of its own."""

    broker_name: str
    due_at_ms: int
    topic: str | None
    """None, like what follows, when the message was delivered while we looked."""
    msg_id: str | None
    keys: list[str]
    sent_at_ms: int | None
    recall_handle: str | None


async def delayed(session: Session, now_ms: int) -> Result[DelayQueue]:
    """The levels at which messages wait, of every master, and how many messages wait for times of their own."""
    gathered = await each_master(session, lambda node: _waiting(session, node, now_ms))
    items = [one for levels in gathered.responses.values() for one in levels]
    return Result(sorted(items, key=lambda one: (one.broker_name, one.level or 0)), failures=gathered.failures)


async def timers(session: Session, limit: int, topic: str | None = None) -> Result[Timer]:
    """The messages that wait for times of their own, the next ones of all masters first. Only orbitmq brokers list
    them; others are named.
    """
    gathered = await each_master(session, lambda node: _timers(session, node, limit, topic))
    items = [one for found in gathered.responses.values() for one in found.items]
    warnings = [one for found in gathered.responses.values() for one in found.warnings]
    return Result(sorted(items, key=lambda one: one.due_at_ms)[:limit], warnings, gathered.failures)


async def _timers(session: Session, node: Node, limit: int, topic: str | None) -> Result[Timer]:
    found: dict[int, Timer] = {}  # by place: pages overlap in the messages of one time
    warnings: list[str] = []
    begin, size = 0, PAGE
    while len(found) < limit:
        page = await _page(session, node, begin, size)
        if page is None:
            raise AdminError("brokers of RocketMQ do not list timer messages", "orbitmq msg find ID")
        fresh = [one for one in page.timers if one.physical_offset not in found]
        for one, timer in zip(fresh, await _read(session, node, fresh), strict=True):
            if topic in (None, timer.topic):
                found[one.physical_offset] = timer
        if len(page.timers) < size:
            break
        last = page.timers[-1].due_ms
        if page.timers[0].due_ms < last:
            begin, size = last, PAGE
        elif size < PAGE_MAX:
            size = PAGE_MAX
        else:  # a page begins at a time, so what else is due then cannot be listed
            begin, size = last + 1, PAGE
            if len(found) < limit:
                warnings = [f"{node.name} lists {PAGE_MAX} messages of one time at most; {page.waiting} wait there"]
    return Result(list(found.values())[:limit], warnings)


async def _page(session: Session, node: Node, begin_ms: int, limit: int) -> PendingTimers | None:
    """None from a broker of RocketMQ."""
    try:
        return await session.request(pending_timers, node, due_ms=begin_ms, limit=limit)
    except BrokerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        return None


async def _read(session: Session, node: Node, pending: Sequence[PendingTimer]) -> list[Timer]:
    names = {one.physical_offset: f"{node}: message at {one.physical_offset}" for one in pending}
    read = await session.each(names, lambda place: _message(session, node, place))
    return [_timer(node, one, read.responses.get(one.physical_offset)) for one in pending]


def _timer(node: Node, one: PendingTimer, message: MessageExt | None) -> Timer:
    topic = None if message is None else real_topic(message)
    unique_id = None if message is None else message.msg_id
    handle = None
    if topic is not None and unique_id is not None and not topic.startswith(RETRY_PREFIX):
        handle = RecallHandle(topic, node.name, one.due_ms, unique_id).encode()
    return Timer(
        broker_name=node.name, due_at_ms=one.due_ms, topic=topic, msg_id=unique_id,
        keys=[] if message is None else message.keys.split(),
        sent_at_ms=None if message is None else message.born_timestamp, recall_handle=handle,
    )  # fmt: skip


async def _message(session: Session, node: Node, place: int) -> MessageExt | None:
    try:
        stored = await session.request(view_message, node, place)
        return message_of(decode_unit(stored, with_body=False), node.name, decompress=False)
    except (BrokerError, UnitError):  # it has expired, or was moved
        return None


async def _waiting(session: Session, node: Node, now_ms: int) -> list[DelayQueue]:
    levels = await _levels(session, node, now_ms)
    page = await _page(session, node, 0, 1)
    if page is not None and page.waiting:
        first = (await _read(session, node, page.timers))[0] if page.timers else None
        levels.append(
            DelayQueue(
                broker_name=node.name, level=None, waiting_messages=page.waiting, delivered_offset=None,
                end_offset=None, next_due_at_ms=None if first is None else first.due_at_ms,
                late_ms=None if first is None else max(0, now_ms - first.due_at_ms),
                next_topic=None if first is None else first.topic, next_msg_id=None if first is None else first.msg_id,
            )
        )  # fmt: skip
    return levels


async def plan_recall(session: Session, handle_text: str, now_ms: int) -> Plan:
    """Have a timer message not be delivered. MessageIllegal for what is no handle, Conflict if it is too late."""
    handle = RecallHandle.decode(handle_text)
    if handle.due_ms <= now_ms:
        raise Conflict(f"{handle.unique_id} was due {now_ms - handle.due_ms} ms ago, and is delivered", "")
    node = await session.node(handle.broker_name)

    async def make() -> None:
        await session.request(recall, node, handle.topic, handle_text)

    step = Step(str(node), "recall", f"{handle.unique_id} of {handle.topic}", "waiting", "not delivered")
    return Plan(f"recall {handle.unique_id}", [Change(step, make)], [])


async def _levels(session: Session, node: Node, now_ms: int) -> list[DelayQueue]:
    remoting, timeout_ms = session.remoting, session.timeout_ms
    try:
        stats = await topic_stats(remoting, node.address, SCHEDULE_TOPIC, timeout_ms=timeout_ms)
    except BrokerError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:  # no message was ever delayed here
            return []
        raise
    progress = (await all_delay_offsets(remoting, node.address, timeout_ms=timeout_ms)).offset_table
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
        message = await _message(session, node, first.physical_offset)
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
