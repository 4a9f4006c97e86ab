"""Apply a document with topics, groups and accounts to a cluster, and export a cluster as such a document.

What the document does not name is left alone unless you prune. System topics and groups are never part of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from msgspec import Struct

from orbitmq.admin import acl, groups, topic_changes, topics
from orbitmq.admin.declared import AccountEntry, Document, GroupEntry, SecretReference, TopicEntry
from orbitmq.admin.masters import each_master
from orbitmq.admin.plans import Change, Plan, Step, Value, joined
from orbitmq.admin.results import Gathered, Result
from orbitmq.admin.session import Node, Session, nearest
from orbitmq.admin.topics import TopicType
from orbitmq.errors import Conflict, NotFound, OrbitMQError
from orbitmq.message.config import SubscriptionGroup, TopicConfig
from orbitmq.message.flags import perm_text
from orbitmq.message.topic_types import MESSAGE_TYPE
from orbitmq.message.topics import ORDER_NAMESPACE, check_consumer_group, check_topic
from orbitmq.operations.groups import create_group
from orbitmq.operations.kv import kv_table
from orbitmq.operations.tables import all_groups
from orbitmq.operations.topics import create_topic

C = TypeVar("C")
SECTIONS = ("topics", "groups", "accounts")
Tables = Mapping[Node, Mapping[str, C]]
"""What each broker has, by name."""


class Divergence(Struct, frozen=True, rename="camel"):
    """A topic or a group the masters do not agree about."""

    kind: str
    """`topic` or `group`."""
    name: str
    values: dict[str, dict[str, str | int | bool] | None]
    """By broker name; None where a broker does not have it."""


class CurrentSettings:
    """A table that is read once for all comparisons: a broker does not get 5,000 requests for 5,000 topics, nor is a
    silent one waited for that often.
    """

    def __init__(self, read: Callable[[Node], Awaitable[Mapping[str, C]]]) -> None:
        self._read = read
        self._known: dict[Node, Mapping[str, object] | OrbitMQError] = {}

    async def of(self, node: Node, name: str) -> object:
        if node not in self._known:
            try:
                self._known[node] = await self._read(node)
            except OrbitMQError as error:
                self._known[node] = error
        known = self._known[node]
        if isinstance(known, OrbitMQError):
            raise known
        return known.get(name)


# ------------------------------------------------------------------------------------------------------------- apply


async def plan_apply(
    session: Session, document: Document, secret_of: Callable[[SecretReference], str | None], *, prune: bool = False
) -> Plan:
    """All differences from the document, in the order of its sections and of names. With `prune` entries that a section
    does not name are deleted: accounts with their secrets, topics with their messages.

    `secret_of` fetches a secret. NotFound for a broker that does not exist; MessageIllegal for an illegal name.
    """
    plans = []
    if document.topics is not None:
        plans.append(await _plan_topics(session, document.topics, prune=prune))
    if document.groups is not None:
        plans.append(await _plan_groups(session, document.groups, prune=prune))
    if document.accounts is not None:
        plans.append(await _plan_accounts(session, document.accounts, secret_of, prune=prune))
    plan = joined("apply the document to the cluster", plans)
    deleted = sorted({change.step.subject for change in plan.changes if change.step.action.startswith("delete")})
    if deleted:
        plan.destroys = f"delete {len(deleted)}"
        plan.warnings.append(f"with all they hold are deleted: {', '.join(deleted)}")
    if plan.undo is not None and deleted:
        plan.warnings.append("the undo file keeps no messages, no dead letters and no secrets")
    return plan


async def _plan_topics(session: Session, entries: Iterable[TopicEntry], *, prune: bool) -> Plan:
    tables = await _topic_tables(session)
    system = await topics.system_names(session)
    plan = Plan("topics", failures=list(tables.failures))
    plans = [plan]
    current = CurrentSettings(partial(_topics_of, session))
    for entry in sorted(entries, key=lambda one: (one.name, one.brokers)):
        check_topic(entry.name)
        if topics.type_of(entry.name, system) is TopicType.SYSTEM:
            raise Conflict(f"{entry.name} is a topic of the system", "remove it from the document")
        wanted = topic_changes.wanted_of(
            None,
            entry.read_queues,
            entry.write_queues,
            entry.perm,
            entry.unit,
            entry.unit_subscribed,
            entry.message_type,
        )
        one = Plan("topic")
        lost: dict[Node, TopicConfig] = {}
        plans.append(one)
        for node in _meant(tables.responses, entry.brokers):
            before = tables.responses[node].get(entry.name)
            new = TopicConfig(entry.name, topic_changes.NEW.read_queues, topic_changes.NEW.write_queues)
            after = wanted.over(before or new)
            if after != before:
                one.warnings += topic_changes.doubts(entry.name, before, after)
                lost |= {} if before is None else {node: before}
            one.changes.append(_topic(session, current, node, before, after))
        if lost:
            one.undo = topic_changes.undo_of(entry.name, lost)
        if entry.order is not None:
            plans.append(await topic_changes.plan_order(session, entry.name, entry.order))
    if prune:
        surplus = _surplus_topics(tables.responses, {entry.name for entry in entries}, system)
        plans += [await topic_changes.plan_delete(session, name) for name in surplus]
    return joined("topics", plans)


def _surplus_topics(tables: Tables[TopicConfig], named: set[str], system: frozenset[str]) -> list[str]:
    """The entries to prune: never system topics, nor those of a group."""
    present = set[str]().union(*tables.values())
    return sorted(
        name for name in present - named if topics.type_of(name, system) in (TopicType.UNSPECIFIED, TopicType.FIFO)
    )


def _topic(
    session: Session, current: CurrentSettings, node: Node, before: TopicConfig | None, after: TopicConfig
) -> Change:
    async def read_back() -> Value:
        return topic_changes.plain_config(await current.of(node, after.name))  # type: ignore[arg-type]

    known = {} if before is None else before.attributes
    make = partial(session.request, create_topic, node, after, known=known)
    action = "create topic" if before is None else "alter topic"
    step = Step(str(node), action, after.name, topic_changes.plain_config(before), topic_changes.plain_config(after))
    return Change(step, make, read_back)


async def _plan_groups(session: Session, entries: Iterable[GroupEntry], *, prune: bool) -> Plan:
    tables = await _group_tables(session)
    plans = [Plan("groups", failures=list(tables.failures))]
    current = CurrentSettings(partial(_groups_of, session))
    for entry in sorted(entries, key=lambda one: (one.name, one.brokers)):
        check_consumer_group(entry.name)
        plan, lost = Plan("group"), {}
        for node in _meant(tables.responses, entry.brokers):
            before = tables.responses[node].get(entry.name)
            after = groups.with_rules(before or SubscriptionGroup(entry.name), entry.rules())
            plan.changes.append(_group(session, current, node, before, after))
            if before is not None and before != after:
                lost[node.name] = groups.plain_rules(before)
        if lost:
            plan.undo = {"command": groups.UNDO, "group": entry.name, "rules": lost, "offsets": []}
        plans.append(plan)
    if prune:
        present = set[str]().union(*tables.responses.values())
        surplus = sorted(present - {entry.name for entry in entries})
        plans += [await groups.plan_delete(session, name) for name in surplus if not groups.is_system(name)]
    return joined("groups", plans)


def _group(
    session: Session, current: CurrentSettings, node: Node, before: SubscriptionGroup | None, after: SubscriptionGroup
) -> Change:
    async def read_back() -> Value:
        return groups.plain_rules(await current.of(node, after.name))  # type: ignore[arg-type]

    make = partial(session.request, create_group, node, after)
    action = "create group" if before is None else "alter group"
    step = Step(str(node), action, after.name, groups.plain_rules(before), groups.plain_rules(after))
    return Change(step, make, read_back)


async def _plan_accounts(
    session: Session,
    entries: Iterable[AccountEntry],
    secret_of: Callable[[SecretReference], str | None],
    *,
    prune: bool,
) -> Plan:
    plans = [
        await acl.plan_account(session, entry.access_key, _declared_account(entry, secret_of))
        for entry in sorted(entries, key=lambda one: one.access_key)
    ]
    if prune:
        known = await acl.listed(session)
        plans.append(Plan("accounts", failures=known.failures))
        surplus = sorted({row.access_key for row in known.items} - {entry.access_key for entry in entries})
        plans += [await acl.plan_delete(session, name) for name in surplus]
    return joined("accounts", plans)


def _declared_account(entry: AccountEntry, secret_of: Callable[[SecretReference], str | None]) -> acl.AccountChanges:
    secret = None if entry.secret is None else secret_of(entry.secret)
    return acl.AccountChanges(
        secret,
        entry.admin,
        entry.white_remote_address,
        entry.default_topic_perm,
        entry.default_group_perm,
        entry.topic_perms,
        entry.group_perms,
    )


def _meant(tables: Tables[C], brokers: list[str]) -> list[Node]:
    """The masters that responded, or those named. NotFound for an unknown name."""
    names = {node.name for node in tables}
    for name in brokers:
        if name not in names:
            raise NotFound(f"there is no master {name}, or it does not respond", nearest(name, names))
    return [node for node in tables if not brokers or node.name in brokers]


# ----------------------------------------------------------------------------------------------- export and compare


async def export(session: Session, sections: Iterable[str] = ("topics", "groups")) -> Result[Document]:
    """One document of what the masters have. With a failure it is incomplete, and must not be applied with `prune`."""
    wanted = set(sections)
    failures = []
    topic_entries: list[TopicEntry] | None = None
    group_entries: list[GroupEntry] | None = None
    account_entries: list[AccountEntry] | None = None
    if "topics" in wanted:
        tables = await _topic_tables(session)
        failures += tables.failures
        topic_entries = await _topic_entries(session, tables.responses)
    if "groups" in wanted:
        known = await _group_tables(session)
        failures += [failure for failure in known.failures if failure not in failures]
        group_entries = _group_entries(known.responses)
    if "accounts" in wanted:
        found = await acl.listed(session)
        failures += [failure for failure in found.failures if failure not in failures]
        account_entries = list({row.access_key: _account_entry(row) for row in found.items}.values())
    return Result([Document(topic_entries, group_entries, account_entries)], failures=failures)


async def _topic_entries(session: Session, tables: Tables[TopicConfig]) -> list[TopicEntry]:
    system = await topics.system_names(session)
    orders = await session.any_name_server(lambda server: session.request(kv_table, server, ORDER_NAMESPACE))
    entries = []
    for name in sorted(_surplus_topics(tables, set(), system)):
        for config, brokers in _versions(tables, name):
            entries.append(
                TopicEntry(
                    name,
                    config.read_queues,
                    config.write_queues,
                    perm_text(config.perm).replace("-", "") or "0",
                    bool(config.sys_flag & 1) or None,
                    bool(config.sys_flag & 2) or None,
                    orders.get(name),
                    config.attributes.get(MESSAGE_TYPE),
                    brokers,
                )
            )
    return entries


def _group_entries(tables: Tables[SubscriptionGroup]) -> list[GroupEntry]:
    names = sorted(name for name in set[str]().union(*tables.values()) if not groups.is_system(name))
    return [
        GroupEntry(name, **(groups.plain_rules(config) or {}), brokers=brokers)  # type: ignore[arg-type]
        for name in names
        for config, brokers in _versions(tables, name)
    ]


def _versions(tables: Tables[C], name: str) -> list[tuple[C, list[str]]]:
    """The different settings that brokers have and which brokers have them; no names when all brokers agree."""
    by_broker = {node.name: table[name] for node, table in tables.items() if name in table}
    ways: list[tuple[C, list[str]]] = []
    for broker, config in sorted(by_broker.items()):
        known = next((brokers for other, brokers in ways if other == config), None)
        if known is None:
            ways.append((config, [broker]))
        else:
            known.append(broker)
    alike = len(ways) == 1 and len(by_broker) == len(tables)
    return [(config, [] if alike else brokers) for config, brokers in ways]


def _account_entry(row: acl.AclAccount) -> AccountEntry:
    return AccountEntry(
        row.access_key,
        None,
        row.admin,
        row.white_remote_address,
        row.default_topic_perm,
        row.default_group_perm,
        row.topic_perms or None,
        row.group_perms or None,
    )


async def compare(session: Session) -> Result[Divergence]:
    """Topics and groups that some masters have otherwise, or not at all."""
    tables, known = await _topic_tables(session), await _group_tables(session)
    system = await topics.system_names(session)
    failures = [*tables.failures, *(failure for failure in known.failures if failure not in tables.failures)]
    rows = _divergent(
        "topic", tables.responses, _surplus_topics(tables.responses, set(), system), topic_changes.plain_config
    )
    names = sorted(name for name in set[str]().union(*known.responses.values()) if not groups.is_system(name))
    rows += _divergent("group", known.responses, names, groups.plain_rules)
    return Result(rows, failures=failures)


def _divergent(
    kind: str, tables: Tables[C], names: Iterable[str], shown: Callable[[C | None], object]
) -> list[Divergence]:
    rows = []
    for name in names:
        values = {node.name: shown(table.get(name)) for node, table in tables.items()}
        if any(value != next(iter(values.values())) for value in values.values()):
            rows.append(Divergence(kind, name, values))  # type: ignore[arg-type]
    return rows


async def _topic_tables(session: Session) -> Gathered[Node, Mapping[str, TopicConfig]]:
    return await each_master(session, partial(_topics_of, session))


async def _topics_of(session: Session, node: Node) -> Mapping[str, TopicConfig]:
    return (await topics.table_of(session, node)).topics


async def _group_tables(session: Session) -> Gathered[Node, Mapping[str, SubscriptionGroup]]:
    return await each_master(session, partial(_groups_of, session))


async def _groups_of(session: Session, node: Node) -> Mapping[str, SubscriptionGroup]:
    return (await session.request(all_groups, node)).groups
