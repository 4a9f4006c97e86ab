"""Reset the offsets of a consumer group: plan per queue, apply, verify, and undo from a file.

Members that are online get the request through their brokers and commit later; for a group that is offline the offsets
are written. `targets` resolves the wanted offsets.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from orbitmq.admin.clients import GroupMembership, membership, running, unknown_group
from orbitmq.admin.groups import UNDO, parts, plain_rules, with_rules
from orbitmq.admin.masters import each_master, lost
from orbitmq.admin.plans import Change, Plan, Step, Value, joined
from orbitmq.admin.progress import BROADCASTING, label
from orbitmq.admin.results import Result
from orbitmq.admin.session import Node, Session
from orbitmq.admin.targets import Target, Where, applied, counted, described, parsed_queues, wanted
from orbitmq.errors import AdminError, BadArgument, BrokerError, Conflict, NotFound
from orbitmq.message.config import SubscriptionGroup
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import RETRY_PREFIX
from orbitmq.operations.groups import END_OF_QUEUE, create_group, reset_offsets
from orbitmq.operations.offsets import (
    query_consumer_offset,
    search_offset,
    update_consumer_offset,
)
from orbitmq.operations.statistics import runtime_info
from orbitmq.operations.tables import all_consumer_offsets, all_groups
from orbitmq.operations.topics import topic_stats
from orbitmq.wire.bodies import QueueRange
from orbitmq.wire.codes import ResponseCode

APPLIED_WITHIN_SECONDS = 25.0
"""A RocketMQ member pauses 10 s after a reset and commits with one of its next rounds, every 5 s."""
LOOKED_AT_EVERY_SECONDS = 0.25
"""An offset that was reset backwards is read before the group has progressed beyond it again."""
BY_QUEUE_SINCE = "V5"
ORBITMQS_OWN = "differingGroups"
"""Only orbitmq brokers report it."""
LISTENING = "CONSUME_PASSIVELY"
"""Members of this kind follow a reset; those that poll or assign their queues do not."""


class StoredOffset(Struct, frozen=True, rename="camel"):
    """The offset that a broker has stored for a group and a queue, even of a topic it no longer subscribes to."""

    topic: str
    broker_name: str
    queue_id: int
    consumer_offset: int
    """The next message the group takes."""
    min_offset: int | None
    """None when the topic or the queue no longer exists on the broker."""
    max_offset: int | None
    lag_messages: int | None
    """Messages between, as far as they still exist."""


@dataclass(slots=True)
class OffsetPlan(Plan):
    """A plan that moves offsets, and what that means for messages."""

    replayed_messages: int = 0
    """They are consumed again, as far as they still exist."""
    skipped_messages: int = 0
    """They are never consumed."""


# ------------------------------------------------------------------------------------------------------------ reading


async def _stored(session: Session, node: Node, group: str) -> dict[str, dict[int, int]]:
    table = await session.request(all_consumer_offsets, node)
    return {parts(key)[0]: dict(queues) for key, queues in table.items() if parts(key)[1] == group}


async def _ranges(session: Session, node: Node, topic: str) -> dict[int, QueueRange]:
    stats = await session.request(topic_stats, node, topic)
    return {queue.queue_id: one for queue, one in stats.offset_table.items()}


async def show(session: Session, group: str, topic: str | None = None) -> Result[StoredOffset]:
    """Every offset that brokers have stored for the group. NotFound without any."""
    nodes = await session.readable()
    gathered = await session.each_node(nodes, lambda node: _show_at(session, node, group, topic))
    found = Result([row for rows in gathered.responses.values() for row in rows], failures=gathered.failures)
    found.items.sort(key=lambda row: (row.topic, row.broker_name, row.queue_id))
    if not found.items and not found.failures:
        raise await unknown_group(session, group, f"no broker has an offset of the group {group}")
    return found


async def _show_at(session: Session, node: Node, group: str, only: str | None) -> list[StoredOffset]:
    rows = []
    for topic, queues in (await _stored(session, node, group)).items():
        if only in (None, topic):
            ranges = await _ranges_if_exist(session, node, topic)
            rows += [_shown(node, topic, queue_id, offset, ranges.get(queue_id)) for queue_id, offset in queues.items()]
    return rows


async def _ranges_if_exist(session: Session, node: Node, topic: str) -> dict[int, QueueRange]:
    try:
        return await _ranges(session, node, topic)
    except BrokerError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        raise


def _shown(node: Node, topic: str, queue_id: int, offset: int, known: QueueRange | None) -> StoredOffset:
    if known is None:
        return StoredOffset(topic, node.name, queue_id, offset, None, None, None)
    low, end = max(0, known.min_offset), known.max_offset
    return StoredOffset(topic, node.name, queue_id, offset, low, end, max(0, end - max(low, offset)))


# ------------------------------------------------------------------------------------------------------------ moving


@dataclass(slots=True)
class _Once:
    """One request shared by several steps: the first step sends it, and all use its result."""

    work: Callable[[], Awaitable[None]]
    task: asyncio.Future[None] | None = None

    async def __call__(self) -> None:
        if self.task is None:
            self.task = asyncio.ensure_future(self.work())
        await asyncio.shield(self.task)


@dataclass(slots=True)
class _Watch:
    """Observes all moved queues of an online group until each has reached its target, or the time is up.

    A member may consume replayed messages again before its lower offset is observed. Then its report shows that its
    listener has had messages of the queue since.
    """

    session: Session
    who: GroupMembership
    moved: dict[MessageQueue, tuple[Node, int | None, int]] = field(default_factory=dict)
    """Queue -> its broker, old and new offset."""
    seen: dict[MessageQueue, int | None] = field(default_factory=dict)
    obeyed: set[MessageQueue] = field(default_factory=set)
    worked: dict[MessageQueue, int] | None = None
    """When the listener last had messages of the queue, before the members got the request."""
    task: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        """Call this before the members get the request."""
        if self.worked is None:
            self.worked = await self._worked()
            self.task = asyncio.ensure_future(self._look())

    async def value(self, queue: MessageQueue) -> Value:
        """The target of the queue once it has been reached; else its current offset. AdminError if that proves
        nothing.
        """
        assert self.task is not None, "members got the request"
        await asyncio.shield(self.task)
        _, before, after = self.moved[queue]
        now = self.seen.get(queue)
        if queue in self.obeyed:
            return after
        if self.who.kind == LISTENING and before is not None and now is not None and after < before <= now:
            raise AdminError(
                f"members were reset to {after} and {label(queue)} is at {now}: a filter that passes "
                "everything over leaves no other trace"
            )
        return now

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + APPLIED_WITHIN_SECONDS
        while len(self.obeyed) < len(self.moved) and loop.time() < until:
            left = {queue: label(queue) for queue in self.moved if queue not in self.obeyed}
            self.seen |= (await self.session.each(left, self._offset)).responses
            self.obeyed |= {queue for queue in left if applied(*self.moved[queue][1:], self.seen.get(queue))}
            if len(self.obeyed) < len(self.moved):
                await asyncio.sleep(LOOKED_AT_EVERY_SECONDS)
                worked, before = await self._worked(), self.worked or {}
                replaying = {queue for queue, (_, was, to) in self.moved.items() if was is not None and to < was}
                self.obeyed |= {queue for queue in replaying if worked.get(queue, 0) > before.get(queue, 0)}

    async def _worked(self) -> dict[MessageQueue, int]:
        reports = (await running(self.session, self.who)).responses.values()
        return {queue: state.last_consume_timestamp for info in reports for queue, state in info.mq_table.items()}

    async def _offset(self, queue: MessageQueue) -> int | None:
        node = self.moved[queue][0]
        return await self.session.request(query_consumer_offset, node, self.who.group, queue)


@dataclass(slots=True)
class _Queue:
    """One queue before it is moved."""

    queue: MessageQueue
    low: int
    end: int
    before: int | None
    after: int | None


async def plan_reset(
    session: Session,
    group: str,
    topic: str,
    target: Target,
    *,
    queues: Collection[str] = (),
    force: bool = True,
) -> OffsetPlan:
    """Reset the group in the topic, in all queues or in those named `broker/id`. A broker name without a master is a
    failure: a reset at a slave is lost when its master returns.

    Without `force` offsets only move back. Conflict for a single queue, an offset or a shift while members are online
    at a broker of RocketMQ 4.9, which can reset only whole topics, by time.
    """
    only = parsed_queues(queues)
    homes = [node for node in await session.homes(topic) if not only or node.name in {name for name, _ in only}]
    masters = [node for node in homes if node.is_master]
    who = await membership(session, group)
    gathered = await session.each_node(masters, lambda node: _queues(session, node, group, topic, target, force=force))
    gathered.failures += [lost(node.name) for node in homes if not node.is_master]
    plan = OffsetPlan(f"move {group} in {topic} to {target}", failures=list(gathered.failures))
    plan.failures += [one for one in who.failures if one.target not in {failure.target for failure in plan.failures}]
    absent = only - {(node.name, one.queue.queue_id) for node, found in gathered.responses.items() for one in found}
    if absent and not gathered.failures:
        name, number = min(absent)
        raise NotFound(f"{topic} has no queue {number} on {name}", f"orbitmq topic status {topic}")
    if who.model == BROADCASTING:
        plan.warnings.append(f"{group} broadcasts: its members keep their offsets themselves and are not moved by this")
    watch = _Watch(session, who)
    for node, found in gathered.responses.items():
        chosen = [one for one in found if not only or (node.name, one.queue.queue_id) in only]
        await _add(session, plan, watch, who, node, chosen, target, whole=not only, force=force)
    _finish(plan, group, [one for found in gathered.responses.values() for one in found])
    return plan


def _finish(plan: OffsetPlan, group: str, queues: Iterable[_Queue]) -> None:
    """Undo data, and the description of the plan."""
    moved = {step.subject for step in plan.steps if step.changes}
    changed = [one for one in queues if label(one.queue) in moved]
    changed_back = [
        {"topic": at.topic, "brokerName": at.broker_name, "queueId": at.queue_id, "offset": one.before}
        for one in changed
        for at in [one.queue]
        if one.before is not None
    ]
    if fresh := len(changed) - len(changed_back):
        plan.warnings.append(f"{fresh} queues have no offset of {group} yet: undo cannot remove the new ones")
    if changed_back:
        plan.undo = {"command": UNDO, "group": group, "rules": {}, "offsets": changed_back}
    replays, skips = plan.replayed_messages, plan.skipped_messages
    plan.title += f": {replays} messages replayed, {skips} skipped"


async def _queues(session: Session, node: Node, group: str, topic: str, target: Target, *, force: bool) -> list[_Queue]:
    ranges, stored = await asyncio.gather(_ranges(session, node, topic), _stored(session, node, group))
    offsets = stored.get(topic, {})
    rows = []
    for queue_id, known in sorted(ranges.items()):
        queue, before = MessageQueue(topic, node.name, queue_id), offsets.get(queue_id)
        low, found = max(0, known.min_offset), None
        if target.where is Where.TIME:
            found = await session.request(search_offset, node, queue, target.value)
        after = wanted(target, low, known.max_offset, before, found, force=force)
        rows.append(_Queue(queue, low, known.max_offset, before, after))
    return rows


async def _add(
    session: Session,
    plan: OffsetPlan,
    watch: _Watch,
    who: GroupMembership,
    node: Node,
    queues: list[_Queue],
    target: Target,
    *,
    whole: bool,
    force: bool,
) -> None:
    """The steps of one broker, by the way it can be moved."""
    online = any(connection is not None for at, connection in who.responses.items() if at.name == node.name)
    moving = [one for one in queues if one.after is not None]
    for one in queues:
        if one.after is None:
            plan.warnings.append(f"{label(one.queue)} has no stored offset to shift")
    if not online:
        for one in moving:
            _append(plan, node, one, _written(session, node, who.group, one), _reader(session, node, who.group, one))
        return
    watch.moved |= {one.queue: (node, one.before, one.after or 0) for one in moving}
    if whole and target.by_time:
        if target.where is Where.TIME and not await _knows_queues(session, node):
            plan.warnings.append(
                f"{node} searches for the nearest message itself, as RocketMQ 4.9 does, and may skip some with "
                "equal times: to be exact, stop the consumers first"
            )
        request = _Once(lambda: _by_time(session, node, watch, queues, target, force=force))
        for one in moving:
            _append(plan, node, one, request, _watched(watch, one))
        return
    if not await _knows_queues(session, node):
        raise Conflict(
            f"{who.group} is online, and {node} can only move a whole topic to a time",
            "stop the consumers, or reset all queues to a time",
        )
    for one in moving:
        _append(plan, node, one, _exact(session, node, watch, one), _watched(watch, one))


def _append(
    plan: OffsetPlan,
    node: Node,
    one: _Queue,
    make: Callable[[], Awaitable[None]],
    read_back: Callable[[], Awaitable[Value]],
) -> None:
    assert one.after is not None, "queues that stay are left out"
    replayed, skipped = counted(one.low, one.end, one.before, one.after)
    plan.replayed_messages += replayed
    plan.skipped_messages += skipped
    step = Step(str(node), described(replayed, skipped), label(one.queue), one.before, one.after)
    plan.changes.append(Change(step, make, read_back))


def _watched(watch: _Watch, one: _Queue) -> Callable[[], Awaitable[Value]]:
    return lambda: watch.value(one.queue)


def _written(session: Session, node: Node, group: str, one: _Queue) -> Callable[[], Awaitable[None]]:
    return lambda: session.request(update_consumer_offset, node, group, one.queue, one.after or 0)


def _reader(session: Session, node: Node, group: str, one: _Queue) -> Callable[[], Awaitable[Value]]:
    return lambda: session.request(query_consumer_offset, node, group, one.queue)


async def _by_time(
    session: Session, node: Node, watch: _Watch, queues: list[_Queue], target: Target, *, force: bool
) -> None:
    """A broker refuses the whole topic while a queue has no stored offset: those get theirs first."""
    await watch.begin()
    group = watch.who.group
    for one in queues:
        if one.before is None:
            await _written(session, node, group, one)()
    topic = queues[0].queue.topic
    moved = await session.request(reset_offsets, node, group, topic, target.timestamp_ms, force=force)
    if moved is None:  # its members have left since the plan was made
        for one in queues:
            await _written(session, node, group, one)()


def _exact(session: Session, node: Node, watch: _Watch, one: _Queue) -> Callable[[], Awaitable[None]]:
    group = watch.who.group

    async def make() -> None:
        await watch.begin()
        moved = await session.request(
            reset_offsets, node, group, one.queue.topic, END_OF_QUEUE, queue_id=one.queue.queue_id, offset=one.after
        )
        if moved is None:
            await _written(session, node, group, one)()

    return make


async def _knows_queues(session: Session, node: Node) -> bool:
    """Whether the broker can move one queue of a group that is online."""
    table = await session.request(runtime_info, node)
    return ORBITMQS_OWN in table or table.get("brokerVersionDesc", "").startswith(BY_QUEUE_SINCE)


async def plan_skip(session: Session, group: str, topic: str, *, queues: Collection[str] = ()) -> OffsetPlan:
    """Leave everything that waits behind: move the group to the end."""
    return await plan_reset(session, group, topic, Target(Where.END), queues=queues)


async def plan_clone(
    session: Session, source: str, destination: str, topic: str | None = None, *, force: bool = False
) -> OffsetPlan:
    """Give one group the stored offsets of another, of one topic or of all; retry topics are the group's own and stay.

    Conflict while the destination is online, unless `force`: its members would commit over it. NotFound when the source
    has none.
    """
    who = await membership(session, destination)
    if who.online and not force:
        raise Conflict(f"the group {destination} is online", "stop its consumers first, or use --force")
    gathered = await each_master(session, lambda node: _both(session, node, source, destination))
    plan = OffsetPlan(f"copy the offsets of {source} to {destination}", failures=gathered.failures)
    moved: list[_Queue] = []
    for node, (theirs, ours) in gathered.responses.items():
        for name, queues in sorted(theirs.items()):
            if name.startswith(RETRY_PREFIX) or topic not in (None, name):
                continue
            for queue_id, offset in sorted(queues.items()):
                if offset >= 0:
                    before = ours.get(name, {}).get(queue_id)
                    one = _Queue(MessageQueue(name, node.name, queue_id), 0, max(offset, before or 0), before, offset)
                    moved.append(one)
                    made, read = _written(session, node, destination, one), _reader(session, node, destination, one)
                    _append(plan, node, one, made, read)
    if not moved and not plan.failures:
        raise await unknown_group(
            session, source, f"the group {source} has no offsets{f' of {topic}' if topic else ''}"
        )
    _finish(plan, destination, moved)
    return plan


async def _both(session: Session, node: Node, source: str, destination: str) -> tuple[dict[str, dict[int, int]], ...]:
    table = await session.request(all_consumer_offsets, node)
    found: dict[str, dict[str, dict[int, int]]] = defaultdict(dict)
    for key, queues in table.items():
        topic, group = parts(key)
        found[group][topic] = dict(queues)
    return found[source], found[destination]


# ------------------------------------------------------------------------------------------------------------ undoing


@dataclass(frozen=True, slots=True)
class _UndoPart:
    """What an undo file keeps of one group."""

    group: str
    offsets: list[dict[str, Any]]
    rules: dict[str, dict[str, Any]]

    @property
    def brokers(self) -> set[str]:
        return {*self.rules, *(row["brokerName"] for row in self.offsets)}


@dataclass(frozen=True, slots=True)
class _AtBroker:
    """A broker's offsets of all groups: requested once, however much is restored."""

    rules: dict[str, SubscriptionGroup]
    offsets: dict[str, dict[int, int]]


async def _at_broker(session: Session, node: Node) -> _AtBroker:
    rules, offsets = await asyncio.gather(
        session.request(all_groups, node), session.request(all_consumer_offsets, node)
    )
    return _AtBroker(rules.groups, offsets)


async def plan_undo(session: Session, undo: Mapping[str, Any]) -> Plan:
    """Restore an undo file of one or several groups: settings first, then offsets. What belongs to a broker that does
    not respond is not restored and counts as a failure.

    Conflict while the group is online at a broker of RocketMQ 4.9. AdminError for a file of another form.
    """
    parts = _undo_parts(undo)
    names = set[str]().union(*(one.brokers for one in parts))
    masters = {node.name: node for node in await session.masters()}
    gathered = await session.each_node(
        [masters[name] for name in sorted(names & masters.keys())], partial(_at_broker, session)
    )
    plans = [await _plan_again(session, one, gathered.responses) for one in parts]
    plan = joined(f"restore {len(plans)} groups", plans) if len(plans) != 1 else plans[0]
    without_master = [lost(name) for name in sorted(names - masters.keys())]
    plan.failures = list(dict.fromkeys([*without_master, *gathered.failures, *plan.failures]))
    return plan


async def _plan_again(session: Session, part: _UndoPart, stored: Mapping[Node, _AtBroker]) -> Plan:
    plan = OffsetPlan(f"restore {part.group}")
    for node, has in stored.items():
        if node.name in part.rules:
            plan.changes.append(_rules_again(session, node, has.rules.get(part.group), part))
    if not part.offsets:
        return plan
    who = await membership(session, part.group)
    plan.failures += who.failures
    watch = _Watch(session, who)
    again = await _queues_again(session, plan, part, stored)
    for node, queues in again.items():
        await _add(session, plan, watch, who, node, queues, Target(Where.OFFSET), whole=False, force=True)
    _finish(plan, part.group, [one for queues in again.values() for one in queues])
    return plan


async def _queues_again(
    session: Session, plan: Plan, part: _UndoPart, stored: Mapping[Node, _AtBroker]
) -> dict[Node, list[_Queue]]:
    """The queues of the file as they are now; one request for each topic at each broker."""
    rows: dict[tuple[Node, str], list[dict[str, Any]]] = defaultdict(list)
    nodes = {node.name: node for node in stored}
    for row in part.offsets:
        if row["brokerName"] in nodes:
            rows[nodes[row["brokerName"]], row["topic"]].append(row)
    gathered = await session.each({at: at[0] for at in rows}, lambda at: _ranges_if_exist(session, *at))
    plan.failures += gathered.failures
    found: dict[Node, list[_Queue]] = defaultdict(list)
    for (node, topic), ranges in gathered.responses.items():
        before = stored[node].offsets.get(f"{topic}@{part.group}", {})
        for row in rows[node, topic]:
            queue = MessageQueue(topic, node.name, int(row["queueId"]))
            known = ranges.get(queue.queue_id)
            if known is None:
                plan.warnings.append(f"{label(queue)} no longer exists: its offset is not restored")
            else:
                low, end = max(0, known.min_offset), known.max_offset
                found[node].append(_Queue(queue, low, end, before.get(queue.queue_id), row["offset"]))
    return found


def _undo_parts(undo: Mapping[str, Any]) -> list[_UndoPart]:
    try:
        return [_undo_part(one) for one in msgspec.convert(undo.get("parts", [undo]), list[dict[str, Any]])]
    except (KeyError, TypeError, ValueError) as error:
        raise BadArgument(f"this is no undo file of offsets: {error!r}") from error


def _undo_part(undo: Mapping[str, Any]) -> _UndoPart:
    group = msgspec.convert(undo["group"], str)
    offsets = msgspec.convert(undo.get("offsets", []), list[dict[str, Any]])
    rules = msgspec.convert(undo.get("rules", {}), dict[str, dict[str, Any]])
    for row in offsets:
        MessageQueue(str(row["topic"]), str(row["brokerName"]), int(row["queueId"]))
        row["offset"] = int(row["offset"])
    return _UndoPart(group, offsets, rules)


def _rules_again(session: Session, node: Node, present: SubscriptionGroup | None, part: _UndoPart) -> Change:
    wanted_rules = with_rules(SubscriptionGroup(part.group), part.rules[node.name])

    async def read_back() -> Value:
        found = (await session.request(all_groups, node)).groups
        return plain_rules(found.get(part.group))

    step = Step(str(node), "restore rules", part.group, plain_rules(present), plain_rules(wanted_rules))
    return Change(step, lambda: session.request(create_group, node, wanted_rules), read_back)
