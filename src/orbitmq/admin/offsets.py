"""Moving the offsets of a consumer group: shown first queue by queue, made, read back, and undone from a file.

Members that are online are told through their brokers and commit themselves, later; for a group that is offline the
offsets are written. What is wanted and what it means is decided in `targets`.
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

from orbitmq.admin.clients import GroupMembership, membership, running
from orbitmq.admin.groups import UNDO, parts, plain_rules, with_rules
from orbitmq.admin.masters import each_master, lost
from orbitmq.admin.plans import Change, Plan, Step, Value, joined
from orbitmq.admin.progress import BROADCASTING, label
from orbitmq.admin.results import Found
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
"""A member of RocketMQ rests 10 s when it is told, and commits with one of its next rounds, every 5 s."""
LOOKED_AT_EVERY_SECONDS = 0.25
"""An offset that was moved back is seen before the group has come past it again."""
BY_QUEUE_SINCE = "V5"
ORBITMQS_OWN = "differingGroups"
"""A figure that only brokers of orbitmq tell."""
LISTENING = "CONSUME_PASSIVELY"
"""Members of this kind obey; those that poll or choose their queues do not."""


class StoredOffset(Struct, frozen=True, rename="camel"):
    """What a broker has stored for a group and a queue, whether or not the group still subscribes the topic."""

    topic: str
    broker_name: str
    queue_id: int
    consumer_offset: int
    """The next message the group takes."""
    min_offset: int | None
    """None when the topic, or the queue, is gone from the broker."""
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


async def show(session: Session, group: str, topic: str | None = None) -> Found[StoredOffset]:
    """Every offset brokers have stored for the group. NotFound when there is none."""
    nodes = await session.readable()
    came = await session.each_node(nodes, lambda node: _show_at(session, node, group, topic))
    found = Found([row for rows in came.answers.values() for row in rows], failures=came.failures)
    found.items.sort(key=lambda row: (row.topic, row.broker_name, row.queue_id))
    if not found.items and not found.failures:
        raise NotFound(f"no broker has an offset of the group {group}", "orbitmq group list")
    return found


async def _show_at(session: Session, node: Node, group: str, only: str | None) -> list[StoredOffset]:
    rows = []
    for topic, queues in (await _stored(session, node, group)).items():
        if only in (None, topic):
            ranges = await _ranges_if_there(session, node, topic)
            rows += [_shown(node, topic, queue_id, offset, ranges.get(queue_id)) for queue_id, offset in queues.items()]
    return rows


async def _ranges_if_there(session: Session, node: Node, topic: str) -> dict[int, QueueRange]:
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
    """One request for several steps: the first step sends it, and all share what came of it."""

    work: Callable[[], Awaitable[None]]
    task: asyncio.Future[None] | None = None

    async def __call__(self) -> None:
        if self.task is None:
            self.task = asyncio.ensure_future(self.work())
        await asyncio.shield(self.task)


@dataclass(slots=True)
class _Watch:
    """Looks at all moved queues of a group that is online until each has gone where it was told, or time is up.

    A member may have consumed what is replayed again before its offset is seen to be lower. Then its report tells that
    its listener has had messages of the queue since.
    """

    session: Session
    who: GroupMembership
    moved: dict[MessageQueue, tuple[Node, int | None, int]] = field(default_factory=dict)
    """Queue -> its broker, where it was and where it is to be."""
    seen: dict[MessageQueue, int | None] = field(default_factory=dict)
    obeyed: set[MessageQueue] = field(default_factory=set)
    worked: dict[MessageQueue, int] | None = None
    """When the listener last had messages of the queue, before anybody was told."""
    task: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        """To be called before members are told."""
        if self.worked is None:
            self.worked = await self._worked()
            self.task = asyncio.ensure_future(self._look())

    async def value(self, queue: MessageQueue) -> Value:
        """Where the queue was told to go, once that is seen; else where it is. AdminError where that proves nothing."""
        assert self.task is not None, "members were told"
        await asyncio.shield(self.task)
        _, before, after = self.moved[queue]
        now = self.seen.get(queue)
        if queue in self.obeyed:
            return after
        if self.who.kind == LISTENING and before is not None and now is not None and after < before <= now:
            raise AdminError(
                f"members were told to go back to {after} and {label(queue)} is at {now}: a filter that passes "
                "everything over leaves no other trace"
            )
        return now

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + APPLIED_WITHIN_SECONDS
        while len(self.obeyed) < len(self.moved) and loop.time() < until:
            left = {queue: label(queue) for queue in self.moved if queue not in self.obeyed}
            self.seen |= (await self.session.each(left, self._offset)).answers
            self.obeyed |= {queue for queue in left if applied(*self.moved[queue][1:], self.seen.get(queue))}
            if len(self.obeyed) < len(self.moved):
                await asyncio.sleep(LOOKED_AT_EVERY_SECONDS)
                worked, before = await self._worked(), self.worked or {}
                replaying = {queue for queue, (_, was, to) in self.moved.items() if was is not None and to < was}
                self.obeyed |= {queue for queue in replaying if worked.get(queue, 0) > before.get(queue, 0)}

    async def _worked(self) -> dict[MessageQueue, int]:
        reports = (await running(self.session, self.who)).answers.values()
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
    """Move the group in the topic, in all queues or in those named `broker/id`. A broker name without a master is a
    failure: what a slave is told is lost when its master returns.

    Without `force` it is only moved back. Conflict for a single queue, an offset or a shift while members are online at
    a broker of RocketMQ 4.9, which can move only whole topics, by time.
    """
    only = parsed_queues(queues)
    homes = [node for node in await session.homes(topic) if not only or node.name in {name for name, _ in only}]
    masters = [node for node in homes if node.is_master]
    who = await membership(session, group)
    came = await session.each_node(masters, lambda node: _queues(session, node, group, topic, target, force=force))
    came.failures += [lost(node.name) for node in homes if not node.is_master]
    plan = OffsetPlan(f"move {group} in {topic} to {target}", failures=list(came.failures))
    plan.failures += [one for one in who.failures if one.target not in {failure.target for failure in plan.failures}]
    absent = only - {(node.name, one.queue.queue_id) for node, found in came.answers.items() for one in found}
    if absent and not came.failures:
        name, number = min(absent)
        raise NotFound(f"{topic} has no queue {number} on {name}", f"orbitmq topic status {topic}")
    if who.model == BROADCASTING:
        plan.warnings.append(f"{group} broadcasts: its members keep their offsets themselves and are not moved by this")
    watch = _Watch(session, who)
    for node, found in came.answers.items():
        chosen = [one for one in found if not only or (node.name, one.queue.queue_id) in only]
        await _add(session, plan, watch, who, node, chosen, target, whole=not only, force=force)
    _finish(plan, group, [one for found in came.answers.values() for one in found])
    return plan


def _finish(plan: OffsetPlan, group: str, queues: Iterable[_Queue]) -> None:
    """Undo data, and the words that say what the plan does."""
    moved = {step.subject for step in plan.steps if step.changes}
    changed = [one for one in queues if label(one.queue) in moved]
    kept = [
        {"topic": at.topic, "brokerName": at.broker_name, "queueId": at.queue_id, "offset": one.before}
        for one in changed
        for at in [one.queue]
        if one.before is not None
    ]
    if fresh := len(changed) - len(kept):
        plan.warnings.append(f"{fresh} queues have no offset of {group} yet: nothing takes the new one away again")
    if kept:
        plan.undo = {"command": UNDO, "group": group, "rules": {}, "offsets": kept}
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
    online = any(told is not None for at, told in who.told.items() if at.name == node.name)
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
                f"{node} looks for the nearest message itself, as RocketMQ 4.9 does, and may skip some of several with "
                "one time: to be exact, stop the consumers first"
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
    told = await session.request(reset_offsets, node, group, topic, target.timestamp_ms, force=force)
    if told is None:  # its members have left since the plan was made
        for one in queues:
            await _written(session, node, group, one)()


def _exact(session: Session, node: Node, watch: _Watch, one: _Queue) -> Callable[[], Awaitable[None]]:
    group = watch.who.group

    async def make() -> None:
        await watch.begin()
        told = await session.request(
            reset_offsets, node, group, one.queue.topic, END_OF_QUEUE, queue_id=one.queue.queue_id, offset=one.after
        )
        if told is None:
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
        raise Conflict(f"the group {destination} is online", "stop its consumers first, or give --force")
    came = await each_master(session, lambda node: _both(session, node, source, destination))
    plan = OffsetPlan(f"give {destination} the offsets of {source}", failures=came.failures)
    moved: list[_Queue] = []
    for node, (theirs, ours) in came.answers.items():
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
        raise NotFound(f"the group {source} has no offsets{f' of {topic}' if topic else ''}", "orbitmq group list")
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
class _Kept:
    """What an undo file keeps of one group."""

    group: str
    offsets: list[dict[str, Any]]
    rules: dict[str, dict[str, Any]]

    @property
    def brokers(self) -> set[str]:
        return {*self.rules, *(row["brokerName"] for row in self.offsets)}


@dataclass(frozen=True, slots=True)
class _There:
    """What a broker has of all groups: asked once, however much is brought back."""

    rules: dict[str, SubscriptionGroup]
    offsets: dict[str, dict[int, int]]


async def _there(session: Session, node: Node) -> _There:
    rules, offsets = await asyncio.gather(
        session.request(all_groups, node), session.request(all_consumer_offsets, node)
    )
    return _There(rules.groups, offsets)


async def plan_undo(session: Session, undo: Mapping[str, Any]) -> Plan:
    """What an undo file of one or several groups keeps is there again: rules first, then offsets. What a broker had
    that does not answer stays away, and is a failure.

    Conflict while the group is online at a broker of RocketMQ 4.9. AdminError for a file of another form.
    """
    kept = _undo_parts(undo)
    names = set[str]().union(*(one.brokers for one in kept))
    masters = {node.name: node for node in await session.masters()}
    came = await session.each_node([masters[name] for name in sorted(names & masters.keys())], partial(_there, session))
    plans = [await _plan_again(session, one, came.answers) for one in kept]
    plan = joined(f"bring back what {len(plans)} groups had", plans) if len(plans) != 1 else plans[0]
    gone = [lost(name) for name in sorted(names - masters.keys())]
    plan.failures = list(dict.fromkeys([*gone, *came.failures, *plan.failures]))
    return plan


async def _plan_again(session: Session, kept: _Kept, there: Mapping[Node, _There]) -> Plan:
    plan = OffsetPlan(f"bring back what {kept.group} had")
    for node, has in there.items():
        if node.name in kept.rules:
            plan.changes.append(_rules_again(session, node, has.rules.get(kept.group), kept))
    if not kept.offsets:
        return plan
    who = await membership(session, kept.group)
    plan.failures += who.failures
    watch = _Watch(session, who)
    again = await _queues_again(session, plan, kept, there)
    for node, queues in again.items():
        await _add(session, plan, watch, who, node, queues, Target(Where.OFFSET), whole=False, force=True)
    _finish(plan, kept.group, [one for queues in again.values() for one in queues])
    return plan


async def _queues_again(
    session: Session, plan: Plan, kept: _Kept, there: Mapping[Node, _There]
) -> dict[Node, list[_Queue]]:
    """The queues of the file as they are now; one request for each topic at each broker."""
    rows: dict[tuple[Node, str], list[dict[str, Any]]] = defaultdict(list)
    nodes = {node.name: node for node in there}
    for row in kept.offsets:
        if row["brokerName"] in nodes:
            rows[nodes[row["brokerName"]], row["topic"]].append(row)
    came = await session.each({at: at[0] for at in rows}, lambda at: _ranges_if_there(session, *at))
    plan.failures += came.failures
    found: dict[Node, list[_Queue]] = defaultdict(list)
    for (node, topic), ranges in came.answers.items():
        before = there[node].offsets.get(f"{topic}@{kept.group}", {})
        for row in rows[node, topic]:
            queue = MessageQueue(topic, node.name, int(row["queueId"]))
            known = ranges.get(queue.queue_id)
            if known is None:
                plan.warnings.append(f"{label(queue)} is gone: its offset is not brought back")
            else:
                low, end = max(0, known.min_offset), known.max_offset
                found[node].append(_Queue(queue, low, end, before.get(queue.queue_id), row["offset"]))
    return found


def _undo_parts(undo: Mapping[str, Any]) -> list[_Kept]:
    try:
        return [_undo_part(one) for one in msgspec.convert(undo.get("parts", [undo]), list[dict[str, Any]])]
    except (KeyError, TypeError, ValueError) as error:
        raise BadArgument(f"this is no undo file of offsets: {error!r}") from error


def _undo_part(undo: Mapping[str, Any]) -> _Kept:
    group = msgspec.convert(undo["group"], str)
    offsets = msgspec.convert(undo.get("offsets", []), list[dict[str, Any]])
    rules = msgspec.convert(undo.get("rules", {}), dict[str, dict[str, Any]])
    for row in offsets:
        MessageQueue(str(row["topic"]), str(row["brokerName"]), int(row["queueId"]))
        row["offset"] = int(row["offset"])
    return _Kept(group, offsets, rules)


def _rules_again(session: Session, node: Node, present: SubscriptionGroup | None, kept: _Kept) -> Change:
    wanted_rules = with_rules(SubscriptionGroup(kept.group), kept.rules[node.name])

    async def read_back() -> Value:
        found = (await session.request(all_groups, node)).groups
        return plain_rules(found.get(kept.group))

    step = Step(str(node), "restore rules", kept.group, plain_rules(present), plain_rules(wanted_rules))
    return Change(step, lambda: session.request(create_group, node, wanted_rules), read_back)
