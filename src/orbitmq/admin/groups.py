"""Consumer groups of a cluster: list, settings per broker, create, change and delete.

A broker knows a group by its settings or by its offsets. Both are requested from all brokers: a group that only polls
has no retry topic, and a group whose settings were deleted may have left offsets. Lag is the sum that brokers report;
`progress` computes the exact one.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from types import MappingProxyType

import msgspec
from msgspec import Struct

from orbitmq.admin.clients import GroupMembership, membership, unknown_group
from orbitmq.admin.masters import only_masters, untouched
from orbitmq.admin.plans import Change, Plan, Step, Value
from orbitmq.admin.results import Gathered, Result
from orbitmq.admin.session import Node, Session, nearest
from orbitmq.admin.topic_changes import deletion, forgetting
from orbitmq.admin.topics import table_of
from orbitmq.errors import BadArgument, BrokerError, Conflict, NotFound
from orbitmq.message.config import SubscriptionGroup
from orbitmq.message.topics import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUPS,
    check_consumer_group,
    dlq_topic,
    is_system_group,
    retry_topic,
)
from orbitmq.operations.groups import consume_stats, create_group, delete_group
from orbitmq.operations.routes import route
from orbitmq.operations.statistics import broker_consume_stats
from orbitmq.operations.tables import all_consumer_offsets, all_groups
from orbitmq.operations.topics import topic_stats
from orbitmq.wire.bodies import ConsumeStats, ConsumeStatsList
from orbitmq.wire.codes import ResponseCode

UNDO = "offset undo"
"""The command that takes the undo files of groups, and of their offsets."""
SUMS_TIMEOUT_MS = 50_000.0
"""A broker with thousands of groups takes its time to sum up the lag of all; the stock tool's limit."""
PAIRS_MAX = 500
"""Limit of single requests to one broker for a list of groups and topics: a second or two of its time. Few are needed,
as only topics with different numbers of read and write queues need them.
"""
NOT_FOUND = {ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.QUERY_NOT_FOUND}
"""Topics deleted since the broker's summary have no lag."""


class GroupSummary(Struct, frozen=True, rename="camel"):
    """One row of the list of groups."""

    name: str
    brokers: list[str]
    """Names of brokers that have rules for it; none for a group that has left nothing but offsets."""
    topics: list[str]
    """What it has offsets of, the retry topic left out."""
    system: bool
    members: int | None = None
    """Online clients; None if not requested, or if a broker did not respond."""
    version: str | None = None
    """The oldest library among the members: `V4_9_7`."""
    model: str | None = None
    """`CLUSTERING`, `BROADCASTING`, or None if none is online."""
    kind: str | None = None
    """`CONSUME_PASSIVELY` (push), `CONSUME_ACTIVELY` (poll), or None."""
    lag_messages: int | None = None
    """As summed by the brokers, expired messages included; None if unknown or not requested."""
    known_lag_messages: int | None = None
    """The part of the brokers that responded: a lower bound."""
    retry_lag_messages: int | None = None
    """Messages that wait for a retry."""
    handed_out_tps: float | None = None
    """Messages per second that brokers delivered to its members over the last minute, acknowledged or not; only brokers
    that responded.
    """


class GroupRules(Struct, frozen=True, rename="camel"):
    """The rules of a group on one broker, under the names they have on the wire."""

    group_name: str
    broker_name: str
    consume_enable: bool
    """Whether members get messages at all."""
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    retry_queue_nums: int
    retry_max_times: int
    """Failed deliveries after which a message becomes a dead letter."""
    broker_id: int
    """0: read from the master."""
    which_broker_when_consume_slowly: int
    """The slave that serves groups with a long lag."""
    notify_consumer_ids_changed_enable: bool
    consume_message_orderly: bool = False
    """Whether 5.x clients consume in order; other clients decide themselves."""


# The rules that can be given: the name on the wire -> the attribute of the noun.
RULES: Mapping[str, str] = {
    "consume_enable": "consume_enabled",
    "consume_from_min_enable": "consume_from_min_enabled",
    "consume_broadcast_enable": "consume_broadcast_enabled",
    "retry_queue_nums": "retry_queues",
    "retry_max_times": "retry_max",
    "broker_id": "broker_id",
    "which_broker_when_consume_slowly": "broker_id_when_slow",
    "notify_consumer_ids_changed_enable": "notify_consumer_ids_changed",
    "consume_message_orderly": "consume_orderly",
}


# ---------------------------------------------------------------------------------------------------------- pure parts


def is_system(name: str) -> bool:
    """Groups of brokers and tools; lists leave them out by default."""
    return name in SYSTEM_GROUPS or is_system_group(name)


def rules_of(broker_name: str, group: SubscriptionGroup) -> GroupRules:
    return GroupRules(group.name, broker_name, **{name: getattr(group, of) for name, of in RULES.items()})


def with_rules(group: SubscriptionGroup, rules: Mapping[str, object]) -> SubscriptionGroup:
    """The group with these rules changed and the others as they are. AdminError for a name that is no rule."""
    unknown = sorted(set(rules) - set(RULES))
    if unknown:
        raise BadArgument(f"{unknown[0]} is no rule of a group", nearest(unknown[0], RULES))
    for name, value in rules.items():
        if isinstance(value, int) and not isinstance(value, bool) and value < (-1 if name == "retry_max_times" else 0):
            raise BadArgument(f"{name} cannot be {value}")
    return msgspec.structs.replace(group, **{RULES[name]: value for name, value in rules.items()})


@dataclass(slots=True)
class Sums:
    """What the brokers sum up for one group."""

    lag: int = 0
    retry: int = 0
    tps: float = 0.0
    topics: dict[str, TopicSums] = field(default_factory=dict)
    """Of each topic that is no retry topic."""

    def add(self, more: Sums) -> None:
        """Add those of another broker."""
        self.lag, self.retry, self.tps = self.lag + more.lag, self.retry + more.retry, self.tps + more.tps
        for topic, one in more.topics.items():
            mine = self.topics.setdefault(topic, TopicSums())
            mine.lag, mine.end, mine.tps = mine.lag + one.lag, mine.end + one.end, mine.tps + one.tps


@dataclass(slots=True)
class TopicSums:
    """The part of one topic."""

    lag: int = 0
    end: int = 0
    """The next offsets of its queues, which grow with every message that is stored."""
    tps: float = 0.0


def summed(
    responses: Iterable[ConsumeStatsList], better: Mapping[tuple[str, str], ConsumeStats] = MappingProxyType({})
) -> dict[str, Sums]:
    """Lag and rate of each group over all brokers; offsets ahead of the end count 0. `better` has exact values by group
    and topic where the sum of a broker covers other queues than the group reads.
    """
    found: dict[str, Sums] = defaultdict(Sums)
    for group, stats in (pair for one in responses for row in one.consume_stats_list for pair in row.items()):
        _ = found[group]  # it is known even when it has consumed nothing
        for topic in stats:
            name = next((queue.topic for queue in topic.offset_table), "")
            found[group].add(_sums_of(name, better.get((group, name), topic), topic.consume_tps))
    return found


def _sums_of(topic: str, stats: ConsumeStats, tps: float) -> Sums:
    ranges = stats.offset_table.values()
    behind = sum(max(0, at.broker_offset - at.consumer_offset) for at in ranges)
    if topic.startswith(RETRY_PREFIX):
        return Sums(retry=behind, tps=tps)
    return Sums(behind, 0, tps, {topic: TopicSums(behind, sum(at.broker_offset for at in ranges), tps)})


def parts(key: str) -> tuple[str, str]:
    """Topic and group of a key of the offset table; a retry topic holds no `@`, a group's name none either."""
    topic, _, group = key.rpartition("@")
    return topic, group


def plain_rules(group: SubscriptionGroup | None) -> dict[str, object] | None:
    """What a step shows of rules."""
    return None if group is None else {name: getattr(group, of) for name, of in RULES.items()}


# ------------------------------------------------------------------------------------------------------------ reading


@dataclass(slots=True)
class _Known:
    brokers: list[str] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    has_offsets: bool = False
    unsummed: bool = False
    """A broker has offsets of it and no rules; it leaves such groups out of its sums."""


async def _tables(session: Session, node: Node) -> tuple[dict[str, SubscriptionGroup], dict[str, dict[int, int]]]:
    rules, offsets = await asyncio.gather(
        session.request(all_groups, node), session.request(all_consumer_offsets, node)
    )
    return rules.groups, offsets


async def groups(
    session: Session, *, pattern: str = "*", system: bool = False, lag: bool = False, members: bool = False
) -> Result[GroupSummary]:
    """Every group that has a configuration or offsets on some broker, by name. `pattern` has `*` and `?`. `lag` takes
    one request per broker, `members` one per broker and group.
    """
    found, _ = await groups_and_sums(session, pattern=pattern, system=system, lag=lag, members=members)
    return found


async def groups_and_sums(
    session: Session, *, pattern: str = "*", system: bool = False, lag: bool = True, members: bool = False
) -> tuple[Result[GroupSummary], Mapping[str, Sums]]:
    """The same, and with `lag` what the brokers that responded sum up, by group, system groups included."""
    nodes = await session.readable()
    gathered = await session.each_node(nodes, lambda node: _tables(session, node))
    known: dict[str, _Known] = defaultdict(_Known)
    for node, (rules, offsets) in gathered.responses.items():
        for name in rules:
            known[name].brokers.append(node.name)
        for key in offsets:
            topic, name = parts(key)
            known[name].has_offsets = True
            known[name].unsummed |= name not in rules
            if not topic.startswith(RETRY_PREFIX):
                known[name].topics.add(topic)
    names = [name for name in sorted(known) if fnmatchcase(name, pattern) and (system or not is_system(name))]
    rows = [GroupSummary(name, known[name].brokers, sorted(known[name].topics), is_system(name)) for name in names]
    found = Result(rows, failures=gathered.failures)
    sums = await _add_sums(session, list(gathered.responses), found, known) if lag else {}
    if members:
        await _add_members(session, found)
    return found, sums


@dataclass(slots=True)
class _Summed:
    """What one broker sums up."""

    sums: dict[str, Sums]
    unknown: set[str]
    """Groups of which that is not all."""
    warning: str | None = None


async def _add_sums(
    session: Session, nodes: list[Node], found: Result[GroupSummary], known: Mapping[str, _Known]
) -> Mapping[str, Sums]:
    gathered = await session.each_node(nodes, partial(_sums, session))
    found.failures += [failure for failure in gathered.failures if failure not in found.failures]
    found.warnings += [part.warning for part in gathered.responses.values() if part.warning]
    unknown = set[str]().union(*(part.unknown for part in gathered.responses.values()))
    sums: dict[str, Sums] = defaultdict(Sums)
    for part in gathered.responses.values():
        for name, more in part.sums.items():
            sums[name].add(more)
    for index, row in enumerate(found.items):
        one = sums.get(row.name)
        if one is not None and known[row.name].has_offsets:
            whole = not found.failures and not known[row.name].unsummed and row.name not in unknown
            found.items[index] = msgspec.structs.replace(
                row,
                lag_messages=one.lag if whole else None,
                known_lag_messages=one.lag,
                retry_lag_messages=one.retry if whole else None,
                handed_out_tps=round(one.tps, 3),
            )
    return sums


async def _sums(session: Session, node: Node) -> _Summed:
    """The sums of one broker. It sums over write queues only, so topics whose number of read queues differs need a
    request for each group: at most `PAIRS_MAX`, the lag of further groups stays unknown.
    """
    timeout_ms = max(session.timeout_ms, SUMS_TIMEOUT_MS)
    stats, table = await asyncio.gather(
        session.request(broker_consume_stats, node, timeout_ms=timeout_ms), table_of(session, node)
    )
    uneven = {name for name, config in table.topics.items() if config.read_queues != config.write_queues}
    pairs = sorted(
        {
            (group, queue.topic)
            for row in stats.consume_stats_list
            for group, stats in row.items()
            for one in stats
            for queue in one.offset_table
            if queue.topic in uneven
        }
    )

    async def exact(pair: tuple[str, str]) -> ConsumeStats:
        try:
            return await session.request(consume_stats, node, *pair)
        except BrokerError as error:
            if error.code in NOT_FOUND:
                return ConsumeStats()
            raise

    better = await session.each({pair: " in ".join(pair) for pair in pairs[:PAIRS_MAX]}, exact)
    unknown = {group for group, topic in pairs if (group, topic) not in better.responses}
    warning = None
    if better.failures:
        first = better.failures[0]
        warning = f"{node} does not report the lag of {len(better.failures)} groups: {first.target}: {first.message}"
    elif unknown:
        warning = f"the lag of {len(unknown)} groups is not known: it would take {len(pairs)} requests to {node}"
    return _Summed(summed([stats], better.responses), unknown, warning)


async def _add_members(session: Session, found: Result[GroupSummary]) -> None:
    whos = await asyncio.gather(*(membership(session, row.name) for row in found.items))
    reported = {failure.target for failure in found.failures}
    for index, (row, who) in enumerate(zip(found.items, whos, strict=True)):
        found.items[index] = with_members(row, who)
        fresh = [failure for failure in who.failures if failure.target not in reported]
        reported |= {failure.target for failure in fresh}
        found.failures += fresh


def with_members(row: GroupSummary, who: GroupMembership) -> GroupSummary:
    """The row with what is known of its members; brokers report no lag of a broadcasting group."""
    oldest = min((one.version for one in who.members if one.version), default=None)
    no_lag = {"lag_messages": None, "known_lag_messages": None} if who.model == "BROADCASTING" else {}
    return msgspec.structs.replace(
        row,
        members=len(who.members) if not who.failures else None,
        version=oldest,
        model=who.model,
        kind=who.kind,
        **no_lag,
    )


async def rules(session: Session, name: str) -> Result[GroupRules]:
    """The rules of a group on each broker that has some. NotFound with the nearest names when none has."""
    return rules_in(await every_rules(session), name)


async def every_rules(session: Session) -> Gathered[Node, dict[str, SubscriptionGroup]]:
    """The rules of all groups, as each broker has them."""
    return await session.each_node(await session.readable(), lambda node: _rules_at(session, node))


def rules_in(gathered: Gathered[Node, dict[str, SubscriptionGroup]], name: str) -> Result[GroupRules]:
    """What `rules` says, out of the rules of all groups."""
    found = Result([rules_of(node.name, table[name]) for node, table in gathered.responses.items() if name in table])
    found.failures = gathered.failures
    if not found.items and not gathered.failures:
        known = {one for table in gathered.responses.values() for one in table}
        raise NotFound(f"no broker has rules for the group {name}", nearest(name, known) or "orbitmq group list")
    without = sorted(node.name for node, table in gathered.responses.items() if name not in table)
    if found.items and without:
        found.warnings.append(f"{', '.join(without)} does not know {name}: orbitmq group create {name}")
    if len({msgspec.structs.replace(one, broker_name="") for one in found.items}) > 1:
        found.warnings.append(f"the rules of {name} differ between brokers: orbitmq group alter {name}")
    return found


async def _rules_at(session: Session, node: Node) -> dict[str, SubscriptionGroup]:
    return (await session.request(all_groups, node)).groups


# ----------------------------------------------------------------------------------------------------------- changing


async def _targets(session: Session, brokers: Collection[str]) -> list[Node]:
    """The masters, or those named. Conflict for a slave: rules are kept by masters, and slaves copy them."""
    named = [await session.node(name) for name in sorted(brokers)]
    only_masters(named, "groups")
    return named or await session.masters()


def _put(session: Session, node: Node, before: SubscriptionGroup | None, after: SubscriptionGroup) -> Change:
    async def make() -> None:
        await session.request(create_group, node, after)

    async def read_back() -> Value:
        return plain_rules((await _rules_at(session, node)).get(after.name))

    action = "create group" if before is None else "change group"
    step = Step(str(node), action, after.name, plain_rules(before), plain_rules(after))
    return Change(step, make, read_back)


async def plan_create(
    session: Session, name: str, rules: Mapping[str, object] | None = None, *, brokers: Collection[str] = ()
) -> Plan:
    """The group with these rules, the others as brokers have them by default, on every master or on those named.

    Conflict where it exists with other rules.
    """
    check_consumer_group(name)
    gathered = await session.each_node(await _targets(session, brokers), lambda node: _rules_at(session, node))
    wanted = with_rules(SubscriptionGroup(name), rules or {})
    plan = Plan(
        f"create group {name}", failures=gathered.failures, warnings=await untouched(session, brokers), only_adds=True
    )
    for node, table in gathered.responses.items():
        before = table.get(name)
        if before is not None and before != wanted:
            raise Conflict(f"the group {name} exists on {node.name} with other rules", f"orbitmq group alter {name}")
        plan.changes.append(_put(session, node, before, wanted))
    return plan


async def plan_alter(
    session: Session, name: str, rules: Mapping[str, object], *, brokers: Collection[str] = ()
) -> Plan:
    """Change the given rules on every broker that has the group; other rules stay unchanged on each broker."""
    gathered = await session.each_node(await _targets(session, brokers), lambda node: _rules_at(session, node))
    plan = Plan(f"change group {name}", failures=gathered.failures, warnings=await untouched(session, brokers))
    plan.undo = {"command": UNDO, "group": name, "rules": {}, "offsets": []}
    before = {node: table[name] for node, table in gathered.responses.items() if name in table}
    if not before and not gathered.failures:
        raise await unknown_group(session, name)
    for node, group in before.items():
        plan.changes.append(_put(session, node, group, with_rules(group, rules)))
    plan.undo["rules"] = {node.name: plain_rules(group) for node, group in before.items()}
    without = [node.name for node in gathered.responses if node not in before]
    if without:
        plan.warnings.append(f"{', '.join(without)} does not know {name}: orbitmq group create {name}")
    return plan


async def plan_delete(
    session: Session,
    name: str,
    *,
    offsets: bool = False,
    topics: bool = False,
    force: bool = False,
    brokers: Collection[str] = (),
) -> Plan:
    """Delete the group's settings; with `offsets` its progress, with `topics` its retry and dead-letter topics too.

    Conflict while a member is online, unless `force`: its next heartbeat would create the group again.
    """
    if is_system(name):
        raise Conflict(f"{name} belongs to the system")
    who = await membership(session, name)
    if who.online and not force:
        members = ", ".join(one.client_id for one in who.members)
        raise Conflict(f"the group {name} is online: {members}", "stop its consumers first, or use --force")
    targets = await _targets(session, brokers)
    gathered = await session.each_node(targets, lambda node: _tables(session, node))
    plan = Plan(f"delete group {name}", failures=list(gathered.failures), destroys=name)
    plan.warnings = await untouched(session, brokers)
    plan.undo = {"command": UNDO, "group": name, "rules": {}, "offsets": []}
    for node, (table, progress) in gathered.responses.items():
        _add_deletion(session, plan, node, name, table.get(name), _progress_of(progress, name), offsets=offsets)
    if topics:
        for topic in (retry_topic(name), dlq_topic(name)):
            await _add_topic(session, plan, topic, targets)
    if not plan.changes and not plan.failures:
        raise await unknown_group(session, name)
    if not offsets and any(_progress_of(progress, name) for _, progress in gathered.responses.values()):
        plan.warnings.append(
            "its offsets stay, and it stays listed as a consumer of its topics: --offsets removes them"
        )
    return plan


def _progress_of(table: Mapping[str, Mapping[int, int]], name: str) -> dict[str, dict[int, int]]:
    return {parts(key)[0]: dict(queues) for key, queues in table.items() if parts(key)[1] == name}


def _add_deletion(
    session: Session,
    plan: Plan,
    node: Node,
    name: str,
    group: SubscriptionGroup | None,
    progress: Mapping[str, Mapping[int, int]],
    *,
    offsets: bool,
) -> None:
    if group is None and not (offsets and progress):
        return
    progress_lost = (
        {"offsets": {topic: len(queues) for topic, queues in progress.items()}} if offsets and progress else {}
    )
    before: dict[str, object] = {**(plain_rules(group) or {}), **progress_lost}

    async def make() -> None:
        await session.request(delete_group, node, name, with_offsets=offsets)

    async def read_back() -> Value:
        table, left = await _tables(session, node)
        found = _progress_of(left, name) if offsets else {}
        return None if name not in table and not found else "still there"

    action = "delete group and its offsets" if offsets else "delete group"
    plan.changes.append(Change(Step(str(node), action, name, before, None), make, read_back))
    assert plan.undo is not None, "set by who plans"
    rules, stored = plan.undo["rules"], plan.undo["offsets"]
    if isinstance(rules, dict) and group is not None:
        rules[node.name] = plain_rules(group)
        if with_rules(SubscriptionGroup(name), rules[node.name]) != group:
            plan.warnings.append(f"{node.name} has settings of 5.x clients for it that the undo file does not keep")
    if isinstance(stored, list) and offsets:
        stored += [
            {"topic": topic, "brokerName": node.name, "queueId": queue_id, "offset": offset}
            for topic, queues in progress.items()
            for queue_id, offset in queues.items()
        ]


async def _add_topic(session: Session, plan: Plan, topic: str, targets: Collection[Node]) -> None:
    """Delete a derived topic from these brokers first and from the name servers last, because a broker would register a
    route again that is deleted too early. While a broker keeps the topic, or does not respond, no route is deleted.
    """
    tables = await session.each_node(await session.masters(), partial(table_of, session))
    homes = {node: table.topics[topic] for node, table in tables.responses.items() if topic in table.topics}
    chosen = [node for node in homes if node in targets]
    stats = await session.each_node(chosen, lambda node: session.request(topic_stats, node, topic))
    routes = await session.every_name_server(lambda server: session.request(route, server, topic))
    failures = [*plan.failures, *tables.failures, *stats.failures, *routes.failures]
    plan.failures = list(dict.fromkeys(failures))
    left = sum(
        one.max_offset - one.min_offset for node in stats.responses.values() for one in node.offset_table.values()
    )
    if left and topic.startswith(DLQ_PREFIX):
        plan.warnings.append(f"{topic} holds {left} messages that are lost with it")
    changes = [deletion(session, node, topic, homes[node]) for node in stats.responses]
    if not tables.failures and stats.responses.keys() == homes.keys():
        changes += [forgetting(session, server, topic, True) for server, found in routes.responses.items() if found]
    plan.changes += [dataclasses.replace(change, chain=f"delete topic {topic}") for change in changes]
