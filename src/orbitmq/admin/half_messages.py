"""Half messages: their decision, the pending ones, and how to restart their checks.

An orbitmq broker reports the state. For RocketMQ it follows from the progress of its own group, or from the op
messages. Clients may not pull those, so they are read through the entries of their queue.
"""

from __future__ import annotations

from msgspec import Struct

from orbitmq.admin.masters import each_master
from orbitmq.admin.message_history import HalfRecord, HalfState
from orbitmq.admin.messages import by_offset_id
from orbitmq.admin.plans import Change, Plan, Step
from orbitmq.admin.results import Result
from orbitmq.admin.session import Node, Session
from orbitmq.errors import AdminError, BrokerError, Conflict, NotFound, UnitError
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.properties import TRANSACTION_CHECK_TIMES
from orbitmq.message.topics import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC, TRANSACTION_GROUP
from orbitmq.message.unit import decode_unit
from orbitmq.operations import offsets, transactions
from orbitmq.operations.pulls import view_message
from orbitmq.operations.queries import queue_entries
from orbitmq.wire.codes import ResponseCode

OPS_MAX = 5_000
"""Op messages read for one half message: each is a question. Later ones leave it unknown."""
OPS_STEP = 32
PAGE = 200
PENDING_MAX = 10_000
"""Limit of listed transactions; beyond it only their number is of use."""


class PendingHalf(Struct, frozen=True, rename="camel", kw_only=True):
    """A message that waits for its producer's decision."""

    topic: str
    msg_id: str
    offset_msg_id: str
    keys: list[str]
    producer_group: str
    broker_name: str
    half_offset: int
    """Of the half queue."""
    born_at_ms: int
    age_ms: int
    checks: int
    """How often its producer was checked."""
    next_check_at_ms: int


async def pending(session: Session, topic: str | None = None, group: str | None = None) -> Result[PendingHalf]:
    """Pending transactions of every master, oldest first. Only orbitmq brokers report them; others are named."""
    gathered = await each_master(session, lambda node: _pending(session, node, topic, group))
    items = [one for found in gathered.responses.values() for one in found]
    warnings = [f"only the first {PENDING_MAX} of a broker are listed"] if len(items) >= PENDING_MAX else []
    return Result(sorted(items, key=lambda one: one.born_at_ms), warnings, gathered.failures)


async def _pending(session: Session, node: Node, topic: str | None, group: str | None) -> list[PendingHalf]:
    found: list[PendingHalf] = []
    offset = 0
    while offset >= 0 and len(found) < PENDING_MAX:
        try:
            page = await session.request(
                transactions.pending_transactions, node, offset=offset, limit=PAGE, topic=topic, producer_group=group
            )
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            raise AdminError("brokers of RocketMQ do not list pending transactions", "orbitmq msg find ID") from error
        found += [
            PendingHalf(
                topic=one.topic, msg_id=one.unique_id, offset_msg_id=one.offset_message_id,
                keys=(one.keys or "").split(), producer_group=one.producer_group, broker_name=node.name,
                half_offset=one.queue_offset, born_at_ms=one.born_timestamp, age_ms=one.age_ms, checks=one.checks,
                next_check_at_ms=one.next_check,
            )
            for one in page.transactions
        ]  # fmt: skip
        offset = page.next_offset
    return found


async def half_of(session: Session, message: MessageExt) -> HalfRecord:
    """What is known about the decision of a message of the half topic, which must be the newest of its copies."""
    node = await session.node(message.broker_name)
    checks = int(message.properties.get(TRANSACTION_CHECK_TIMES, "0"))
    try:
        page = await session.request(transactions.pending_transactions, node, offset=message.queue_offset, limit=1)
    except BrokerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        return HalfRecord(message, await _looked_up(session, node, message), checks)
    for one in page.transactions:
        if one.queue_offset == message.queue_offset:
            return HalfRecord(message, HalfState.PENDING, one.checks, one.next_check)
    return HalfRecord(message, HalfState.DECIDED, checks)


async def _looked_up(session: Session, node: Node, message: MessageExt) -> HalfState:
    half_queue = MessageQueue(HALF_TOPIC, node.name, message.queue_id)
    passed = await session.request(offsets.query_consumer_offset, node, TRANSACTION_GROUP, half_queue)
    if passed is not None and message.queue_offset < passed:
        return HalfState.DECIDED
    ops = MessageQueue(OP_HALF_TOPIC, node.name, message.queue_id)
    begin = await session.request(offsets.search_offset, node, ops, message.store_timestamp)
    end = await session.request(offsets.max_offset, node, ops)
    at = begin
    while at < end:
        if at - begin >= OPS_MAX:
            return HalfState.UNKNOWN
        places = await _places(session, node, ops, at)
        if not places:
            return HalfState.UNKNOWN
        names = {place: f"{node}: op message at {place}" for place in places}
        read = await session.each(names, lambda place: _op_body(session, node, place))
        if any(_decides(body, message.queue_offset) for body in read.responses.values()):
            return HalfState.DECIDED
        if read.failures:
            return HalfState.UNKNOWN
        at += len(places)
    return HalfState.PENDING


async def _places(session: Session, node: Node, queue: MessageQueue, at: int) -> list[int]:
    found = await session.request(queue_entries, node, queue.topic, queue.queue_id, at, OPS_STEP)
    return [one.physical_offset for one in found.queue_data]


async def _op_body(session: Session, node: Node, place: int) -> bytes:
    try:
        return decode_unit(await session.request(view_message, node, place)).body
    except UnitError:
        return b""


def _decides(body: bytes, half_offset: int) -> bool:
    """An op message names the offset of its half message; one of RocketMQ 5 those of several."""
    return str(half_offset).encode() in body.split(b",")


async def plan_resume(session: Session, offset_id: str) -> Plan:
    """Restart the transaction checks of a half message that was given up, or, on orbitmq brokers, of a pending one.
    NotFound if it does not exist, AdminError if no node can say so, Conflict if the message is no half message."""
    found = await by_offset_id(session, offset_id)
    if found.failures:
        silent = ", ".join(failure.target for failure in found.failures)
        raise AdminError(f"{offset_id} is not found, and some nodes do not respond: {silent}", found.failures[0].hint)
    if not found.items:
        raise NotFound(f"there is no message {offset_id}", "use its offset id: orbitmq msg find shows it")
    (message,) = found.items
    if message.topic not in (TRANSACTION_CHECK_MAX_TOPIC, HALF_TOPIC):
        raise Conflict(f"{offset_id} is a message of {message.topic}, and no half message")
    node = await session.node(message.broker_name)

    async def make() -> None:
        await session.request(transactions.resume_check, node, message.offset_msg_id)

    topic = message.properties.get("REAL_TOPIC", "unknown topic")
    before, warnings = await _standing(session, message)
    step = Step(str(node), "resume check", f"{message.msg_id} of {topic}", before, "checked again")
    return Plan(f"restart the checks of {message.msg_id} at its producer", [Change(step, make)], warnings)


async def _standing(session: Session, message: MessageExt) -> tuple[str, list[str]]:
    """The state of a half message in a word, and doubts about checking its producer again."""
    if message.topic == TRANSACTION_CHECK_MAX_TOPIC:
        return "given up", []
    state = (await half_of(session, message)).state
    if state is HalfState.DECIDED:
        return "not pending", ["it is decided, or was checked since and has a newer record: orbitmq msg find shows it"]
    return state.value, []
