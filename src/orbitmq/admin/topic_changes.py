"""Topics are made, altered and deleted: what is there is read first, and what is not spoken of stays as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from orbitmq.admin import topics
from orbitmq.admin.masters import lost, only_masters, untouched
from orbitmq.admin.namesrv import plan_pair
from orbitmq.admin.plans import Change, Plan, Step, Value, joined
from orbitmq.admin.results import Failure
from orbitmq.admin.session import Node, Session
from orbitmq.errors import BadArgument, Conflict, NotFound
from orbitmq.message.config import TopicConfig
from orbitmq.message.flags import PERM_INHERIT, PERM_READ, PERM_WRITE, TOPIC_UNIT, TOPIC_UNIT_SUBSCRIPTION, perm_text
from orbitmq.message.topic_types import MESSAGE_TYPE, MessageType, type_of
from orbitmq.message.topics import AUTO_CREATE_TOPIC, ORDER_NAMESPACE, check_topic
from orbitmq.operations.kv import kv_value
from orbitmq.operations.routes import delete_topic_route, route
from orbitmq.operations.topics import create_topic, delete_topic

UNDO = "topic undo"
"""The command that takes the undo files of topics."""
NEW = TopicConfig(AUTO_CREATE_TOPIC, read_queues=8, write_queues=8)
"""What is not said of a new topic is like this: the stock tool's defaults."""
_RIGHTS = {"R": PERM_READ, "W": PERM_WRITE, "X": PERM_INHERIT}
MESSAGE_TYPES = tuple(one for one in MessageType if one is not MessageType.UNSPECIFIED)
"""What a topic can be made for."""
QUEUES_MAX = 65_536
"""Of one topic on one broker; a queue costs memory and a directory."""


class TopicChanges(Struct, frozen=True):
    """A change of a topic; None leaves a setting as it is."""

    read_queues: int | None = None
    write_queues: int | None = None
    perm: int | None = None
    unit: bool | None = None
    unit_subscribed: bool | None = None
    message_type: MessageType | None = None

    def over(self, config: TopicConfig) -> TopicConfig:
        """The configuration that this makes of another."""
        flag = _with_bit(config.sys_flag, TOPIC_UNIT, self.unit)
        return replace(
            config,
            read_queues=config.read_queues if self.read_queues is None else self.read_queues,
            write_queues=config.write_queues if self.write_queues is None else self.write_queues,
            perm=config.perm if self.perm is None else self.perm,
            sys_flag=_with_bit(flag, TOPIC_UNIT_SUBSCRIPTION, self.unit_subscribed),
            attributes=self._attributes_over(config.attributes),
        )

    def _attributes_over(self, known: dict[str, str]) -> dict[str, str]:
        """A topic that counts as normal does not have to say so: brokers of RocketMQ 4.9 could not keep it."""
        if self.message_type in (None, type_of(known)):
            return known
        return {**known, MESSAGE_TYPE: str(self.message_type)}


def wanted_of(
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    perm: str | None,
    unit: bool | None,
    unit_subscribed: bool | None,
    message_type: str | None = None,
) -> TopicChanges:
    """What flags say; `queues` stands for both numbers where they are not given."""
    return TopicChanges(
        queues if read_queues is None else read_queues,
        queues if write_queues is None else write_queues,
        None if perm is None else perm_of(perm),
        unit,
        unit_subscribed,
        None if message_type is None else message_type_of(message_type),
    )


def message_type_of(text: str) -> MessageType:
    """The type of messages that a topic is to take, in upper or lower case. AdminError for anything else."""
    if text.upper() in MESSAGE_TYPES:
        return MessageType(text.upper())
    raise BadArgument(f"{text!r:.100} is no type of messages", ", ".join(MESSAGE_TYPES).lower())


def perm_of(text: str) -> int:
    """The number of `RW`, `r-`, `6`. AdminError for anything else."""
    if text.strip() in "01234567" and len(text.strip()) == 1:
        return int(text)
    letters = text.strip().upper().replace("-", "")
    if letters and set(letters) <= _RIGHTS.keys():
        return sum(_RIGHTS[letter] for letter in set(letters))
    raise BadArgument(f"{text!r} is no permission", "R, W, RW, or 4, 2, 6 as the stock tool writes it")


def plain_config(config: TopicConfig | None) -> Value:
    """A configuration as a step shows it."""
    if config is None:
        return None
    shown: dict[str, object] = {
        "readQueues": config.read_queues,
        "writeQueues": config.write_queues,
        "perm": perm_text(config.perm),
    }
    if config.sys_flag:
        shown["unit"] = bool(config.sys_flag & TOPIC_UNIT)
        shown["unitSubscribed"] = bool(config.sys_flag & TOPIC_UNIT_SUBSCRIPTION)
    if MESSAGE_TYPE in config.attributes:
        shown["messageType"] = config.attributes[MESSAGE_TYPE]
    return shown | {name: value for name, value in config.attributes.items() if name != MESSAGE_TYPE}


async def plan_create(
    session: Session, topic: str, wanted: TopicChanges, *, brokers: Collection[str] = (), ordered: bool = False
) -> Plan:
    """Make the topic at these brokers, or at every master; `ordered` also enters what they have of it into the order
    settings, where other brokers stay as they are.

    One that is already as wanted is left; Conflict where it exists and is not. MessageIllegal for an illegal name.
    """
    check_topic(topic)
    await _refuse_system(session, topic)
    nodes, present, failures = await _present(session, topic, brokers)
    config = wanted.over(replace(NEW, name=topic))
    plan = Plan(f"create topic {topic}", failures=failures, warnings=await untouched(session, brokers), only_adds=True)
    queues: dict[str, int] = {}
    for node in (node for node in nodes if node in present):
        before = present[node]
        after = config if before is None else wanted.over(before)
        if before is not None and after != before:
            raise Conflict(f"topic {topic} exists at {node} and is different", f"orbitmq topic alter {topic} ...")
        plan.changes.append(_put(session, node, before, after, "create topic"))
        queues[node.name] = after.write_queues
    plan.warnings += doubts(topic, None, config)
    if ordered and queues:
        known = await order_setting(session, topic)
        setting = _order_text(_order_of(known) | queues if known else queues)
        plan = joined(plan.title, [plan, await plan_order(session, topic, setting)])
        plan.undo = None  # the opposite is to delete it
    return plan


async def plan_alter(session: Session, topic: str, wanted: TopicChanges, *, brokers: Collection[str] = ()) -> Plan:
    """Change the topic at every broker that has it, or at these. NotFound where none has it."""
    await _refuse_system(session, topic)
    _, present, failures = await _present(session, topic, brokers)
    plan = Plan(f"alter topic {topic}", failures=failures, warnings=await untouched(session, brokers))
    plan.undo = undo_of(topic, {node: before for node, before in present.items() if before is not None})
    for node, before in present.items():
        if before is not None:
            after = wanted.over(before)
            plan.changes.append(_put(session, node, before, after, "alter topic"))
            plan.warnings += [doubt for doubt in doubts(topic, before, after) if doubt not in plan.warnings]
    if not plan.changes and not failures:
        raise await session.unknown_topic(topic)
    return plan


def doubts(topic: str, before: TopicConfig | None, after: TopicConfig) -> list[str]:
    """Warnings about this change. AdminError if it is impossible."""
    found = []
    for wanted in (after.read_queues, after.write_queues):
        if not 0 < wanted <= QUEUES_MAX:
            raise BadArgument(f"{topic} cannot have {wanted} queues: a topic has 1 to {QUEUES_MAX}")
    if after.read_queues < after.write_queues:
        last = f"{after.read_queues} to {after.write_queues - 1}"
        found.append(f"queues {last} of {topic} are written and never read: there are more write than read queues")
    if before is not None and after.read_queues < before.read_queues:
        last = f"{after.read_queues} to {before.read_queues - 1}"
        found.append(
            f"the remaining messages in queues {last} of {topic} would not be read: "
            "lower the write queues first, let them drain, then the read queues"
        )
    return found


async def plan_delete(session: Session, topic: str) -> Plan:
    """Delete the topic with all its messages: at every master that has it, then in the order settings and finally at
    every name server, as a broker that still has the topic would register it again. Conflict for a system topic."""
    await _refuse_system(session, topic)
    _, present, failures = await _present(session, topic, ())
    routes = await session.every_name_server(lambda server: session.request(route, server, topic))
    known = {server: found is not None for server, found in routes.responses.items()}
    homes = {node: config for node, config in present.items() if config is not None}
    if not homes and not any(known.values()) and not failures:
        raise await session.unknown_topic(topic)
    plan = Plan(f"delete topic {topic} with all its messages", destroys=topic)
    plan.failures = [*failures, *routes.failures]
    plan.changes = [deletion(session, node, topic, config) for node, config in homes.items()]
    ordered = await _without_order(session, topic)
    plan.changes += ordered.changes
    plan.undo = undo_of(topic, homes)
    if ordered.changes:
        plan.undo["order"] = ordered.changes[0].step.before
    plan.changes += [forgetting(session, server, topic, is_known) for server, is_known in known.items()]
    plan.changes = [dataclasses.replace(change, chain=f"delete topic {topic}") for change in plan.changes]
    plan.warnings = await _readers(session, topic) if any(known.values()) else []
    plan.warnings += [
        f"{one.target} does not respond: if it has the topic, it will register it again" for one in failures
    ]
    plan.warnings += [
        f"{name} has no master now: if it has the topic, it will register it again" for name in await session.headless()
    ]
    return plan


async def _readers(session: Session, topic: str) -> list[str]:
    groups = [row.group for row in (await topics.consumers(session, topic)).items]
    return [f"it is consumed by {', '.join(groups)}: their progress in it is lost"] if groups else []


async def _without_order(session: Session, topic: str) -> Plan:
    plan = await plan_pair(session, ORDER_NAMESPACE, topic, None)
    plan.changes = [change for change in plan.changes if change.step.changes]
    return plan


async def plan_order(session: Session, topic: str, setting: str | None) -> Plan:
    """Put `broker-a:4;broker-b:4` into the order settings of every name server; None takes it out."""
    if setting is not None:
        setting = _order_text(_order_of(setting))
    plan = await plan_pair(session, ORDER_NAMESPACE, topic, setting)
    before = next((step.before for step in plan.steps if step.before is not None), None)
    plan.undo = {**undo_of(topic, {}), "order": before}
    return plan


def undo_of(topic: str, configs: Mapping[Node, TopicConfig]) -> dict[str, object]:
    """What an undo file keeps of a topic: its configuration, never its messages."""
    configs_by_name = {node.name: msgspec.to_builtins(config) for node, config in configs.items()}
    return {"command": UNDO, "topic": topic, "configs": configs_by_name}


async def plan_undo(session: Session, undo: Mapping[str, Any]) -> Plan:
    """The topic of an undo file, at its brokers. AdminError for another form; a missing broker is a failure."""
    try:
        topic = msgspec.convert(undo["topic"], str)
        configs = msgspec.convert(undo["configs"], dict[str, TopicConfig])
        order = msgspec.convert(undo.get("order"), str | None)
    except (KeyError, msgspec.ValidationError) as error:
        raise BadArgument(f"this is no undo file of a topic: {error}") from error
    check_topic(topic)
    await _refuse_system(session, topic)
    masters = {node.name: node for node in await session.masters()}
    came = await session.each_node(
        [masters[name] for name in sorted(configs.keys() & masters.keys())], partial(topics.table_of, session)
    )
    plan = Plan(f"restore topic {topic}", failures=[*map(lost, sorted(configs.keys() - masters.keys()))])
    plan.failures += came.failures
    for node, table in came.responses.items():
        plan.changes.append(_put(session, node, table.topics.get(topic), configs[node.name], "restore topic"))
    if any(change.step.before is None for change in plan.changes):
        plan.warnings.append(f"messages of {topic}, and the offsets of groups in it, are not restored")
    if "order" in undo:
        plan.changes += (await plan_order(session, topic, order)).changes
    return plan


async def order_setting(session: Session, topic: str) -> str | None:
    """The configuration at the first name server that responds."""
    return await session.any_name_server(lambda server: session.request(kv_value, server, ORDER_NAMESPACE, topic))


def _order_of(setting: str) -> dict[str, int]:
    """Broker name -> queues. AdminError for a text that is not like that."""
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in setting.split(";"))):
        name, _, queues = part.rpartition(":")
        if not name or not queues.isdecimal():
            raise BadArgument(f"{part!r} is no order setting", "broker-a:4;broker-b:4")
        found[name] = int(queues)
    if not found:
        raise BadArgument("an order setting names brokers and queues", "broker-a:4;broker-b:4")
    return found


def _order_text(queues: Mapping[str, int]) -> str:
    return ";".join(f"{name}:{count}" for name, count in sorted(queues.items()))


async def _refuse_system(session: Session, topic: str) -> None:
    if topics.type_of(topic, await topics.system_names(session)) is topics.TopicType.SYSTEM:
        raise Conflict(f"{topic} is a topic of the system", "it belongs to the brokers and stays as it is")


async def _present(
    session: Session, topic: str, brokers: Collection[str]
) -> tuple[list[Node], dict[Node, TopicConfig | None], list[Failure]]:
    """The target masters, and the topic's configuration at each that responds."""
    named = [await session.node(name) for name in brokers]
    only_masters(named, "topics")
    nodes = named or await session.masters()
    if not nodes:
        raise NotFound("there is no master", "orbitmq cluster list")
    gathered = await session.each_node(nodes, partial(topics.table_of, session))
    return nodes, {node: table.topics.get(topic) for node, table in gathered.responses.items()}, gathered.failures


def _put(session: Session, node: Node, before: TopicConfig | None, after: TopicConfig, action: str) -> Change:
    async def make() -> None:
        await session.request(create_topic, node, after, known={} if before is None else before.attributes)

    step = Step(str(node), action, after.name, plain_config(before), plain_config(after))
    return Change(step, make, partial(_read_back, session, node, after.name))


def deletion(session: Session, node: Node, topic: str, config: TopicConfig) -> Change:
    """The topic at one broker."""
    make = partial(session.request, delete_topic, node, topic, timeout_ms=max(30_000.0, session.timeout_ms))
    return Change(
        Step(str(node), "delete topic", topic, plain_config(config), None),
        make,
        partial(_read_back, session, node, topic),
    )


def forgetting(session: Session, server: str, topic: str, is_known: bool) -> Change:
    """Delete the topic at one name server. Brokers may have done so by themselves; repeating it costs nothing."""

    async def read_back() -> Value:
        return "routed" if await session.request(route, server, topic) else None

    make = partial(session.request, delete_topic_route, server, topic)
    return Change(Step(server, "forget topic", topic, "routed" if is_known else None, None), make, read_back)


async def _read_back(session: Session, node: Node, topic: str) -> Value:
    return plain_config((await topics.table_of(session, node)).topics.get(topic))


def _with_bit(flag: int, bit: int, wanted: bool | None) -> int:
    if wanted is None:
        return flag
    return flag | bit if wanted else flag & ~bit
