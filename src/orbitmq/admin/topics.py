"""Topics: list, brokers, messages, consumer groups and throughput.

`orbitmq.admin.topic_changes` changes them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from orbitmq.admin.results import Gathered, Result, failure_of
from orbitmq.admin.session import Node, Session
from orbitmq.errors import OrbitMQError
from orbitmq.message import topic_types
from orbitmq.message.flags import perm_text
from orbitmq.message.topic_types import MessageType
from orbitmq.message.topics import DLQ_PREFIX, ORDER_NAMESPACE, RETRY_PREFIX, is_system_topic
from orbitmq.operations.groups import consume_stats
from orbitmq.operations.kv import kv_table
from orbitmq.operations.routes import name_server_system_topics, topics, topics_of_cluster
from orbitmq.operations.statistics import statistic
from orbitmq.operations.topics import all_topics, groups_of_topic, system_topics, topic_stats
from orbitmq.wire.bodies import BrokerStatsData, StatsItem, TopicTable


class TopicType(StrEnum):
    """What a topic is for, by its name and the order settings. What 5.x clients may send to it is its `MessageType`."""

    UNSPECIFIED = "UNSPECIFIED"
    FIFO = "FIFO"
    """It is in the order settings of the name servers."""
    RETRY = "RETRY"
    DLQ = "DLQ"
    SYSTEM = "SYSTEM"


class Topic(Struct, frozen=True, rename="camel"):
    """A topic's name and kind."""

    topic: str
    type: TopicType
    message_types: list[MessageType] | None = None
    """What 5.x clients may send to it; several if brokers differ, none if brokers with it do not respond. None if not
    requested.
    """


class TopicQueue(Struct, frozen=True, rename="camel"):
    """One queue and what it holds."""

    topic: str
    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    """The next one to be written: `max - min` is held."""
    messages: int
    updated_at_ms: int | None
    """When its last message was stored; None when it never had one, or that has expired."""


class TopicHome(Struct, frozen=True, rename="camel"):
    """A topic's queues on one broker name, from its route."""

    topic: str
    cluster: str
    broker: str
    addresses: dict[str, str]
    """Broker id, 0 the master -> address."""
    read_queues: int
    write_queues: int
    perm: str
    """`RW-`, `R--`, `-W-`, and X for a topic that others inherit from."""
    ordered: str | None
    """The topic's order setting, `broker-a:4;broker-b:4`."""


class TopicCluster(Struct, frozen=True, rename="camel"):
    """A cluster that has queues of the topic."""

    cluster: str
    brokers: list[str]


class TopicConfiguration(Struct, frozen=True, rename="camel"):
    """How one broker has a topic."""

    topic: str
    cluster: str
    broker: str
    read_queues: int
    write_queues: int
    perm: str
    unit: bool
    unit_subscribed: bool
    ordered: bool
    message_type: MessageType = MessageType.NORMAL
    """What 5.x clients may send to it; other clients are not checked."""


class TopicGroup(Struct, frozen=True, rename="camel"):
    """A group that consumes the topic now, or has done so."""

    topic: str
    group: str
    brokers: list[str]
    """Where it is known."""


class TopicFlow(Struct, frozen=True, rename="camel"):
    """Throughput of a topic for each of its groups; one row without a group when it has none."""

    topic: str
    group: str | None
    lag_messages: int | None
    """Sum over its queues; None without a group, or if a broker did not report it."""
    in_per_s: float | None
    """Messages stored a second, over the last minute."""
    out_per_s: float | None
    in_24_h: int | None
    """Messages stored in the last day, or since the broker runs."""
    out_24_h: int | None


def type_of(name: str, system: frozenset[str] = frozenset(), ordered: frozenset[str] = frozenset()) -> TopicType:
    """`system` are names that brokers and name servers call their own; `ordered` those with an order setting."""
    if name.startswith(RETRY_PREFIX):
        return TopicType.RETRY
    if name.startswith(DLQ_PREFIX):
        return TopicType.DLQ
    if name in system or is_system_topic(name):
        return TopicType.SYSTEM
    return TopicType.FIFO if name in ordered else TopicType.UNSPECIFIED


async def listed(session: Session, *, everything: bool = False, containing: str = "") -> Result[Topic]:
    """Topics of the cluster by name; with `everything` also system, retry and dead letter topics."""
    gathered = await _names(session)
    names = set[str]().union(*gathered.responses.values())
    system = await system_names(session)
    ordered = await session.any_name_server(lambda server: session.request(kv_table, server, ORDER_NAMESPACE))
    rows = [Topic(name, type_of(name, system, frozenset(ordered))) for name in sorted(names)]
    shown = [row for row in rows if is_meant(row.topic, row.type, everything=everything, containing=containing)]
    return Result(shown, failures=[*gathered.failures, *await session.absent()])


def is_meant(name: str, type_: TopicType, *, everything: bool, containing: str) -> bool:
    """Whether a list shows this topic; by default those of applications."""
    is_hidden = type_ in (TopicType.SYSTEM, TopicType.RETRY, TopicType.DLQ) and not everything
    return not is_hidden and containing.lower() in name.lower()


async def with_message_types(session: Session, rows: Result[Topic]) -> Result[Topic]:
    """The rows with what the topics take. One request a broker, with all its topics in the response."""
    gathered = await session.each_node(await session.readable(), lambda node: table_of(session, node))
    types: dict[str, set[MessageType]] = defaultdict(set)
    for table in gathered.responses.values():
        for name, config in table.topics.items():
            types[name].add(topic_types.type_of(config.attributes))
    items = [replace(row, message_types=sorted(types[row.topic])) for row in rows.items]
    known = {failure.target for failure in rows.failures}
    failures = [*rows.failures, *(failure for failure in gathered.failures if failure.target not in known)]
    return Result(items, list(rows.warnings), failures)


async def _names(session: Session) -> Gathered[str, list[str]]:
    """Name servers may differ: what one of them knows is a topic."""
    cluster, timeout_ms = session.cluster, session.timeout_ms
    await session.nodes()  # an unknown cluster is reported differently from one without topics

    async def one(server: str) -> list[str]:
        if cluster is None:
            return await session.request(topics, server, timeout_ms=timeout_ms)
        return await session.request(topics_of_cluster, server, cluster, timeout_ms=timeout_ms)

    return await session.every_name_server(one)


async def system_names(session: Session) -> frozenset[str]:
    """System topics according to brokers and name servers; without those of a broker that does not respond."""
    timeout_ms = session.timeout_ms
    own = await session.any_name_server(
        lambda server: session.request(name_server_system_topics, server, timeout_ms=timeout_ms)
    )
    names = await session.each_node(
        await session.readable(), lambda node: session.request(system_topics, node, timeout_ms=timeout_ms)
    )
    info = await session.info()
    return frozenset((*own, *info.brokers, *info.clusters)).union(*names.responses.values())


async def status(session: Session, topic: str) -> Result[TopicQueue]:
    """Every queue of the topic, in the order of brokers and queues."""
    gathered = await session.each_node(
        await session.homes(topic), lambda node: session.request(topic_stats, node, topic)
    )
    rows = [
        TopicQueue(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            held.min_offset,
            held.max_offset,
            max(0, held.max_offset - held.min_offset),
            held.last_update_timestamp if held.last_update_timestamp > 0 else None,
        )
        for table in gathered.responses.values()
        for queue, held in table.offset_table.items()
    ]
    rows.sort(key=lambda row: (row.broker, row.queue_id))
    return Result(rows, failures=list(gathered.failures))


async def route(session: Session, topic: str) -> Result[TopicHome]:
    """The queues that producers and consumers use, by route."""
    found = await session.route(topic)
    brokers = {broker.broker_name: broker for broker in found.broker_datas}
    rows = [
        TopicHome(
            topic,
            brokers[queues.broker_name].cluster,
            queues.broker_name,
            {str(number): address for number, address in sorted(brokers[queues.broker_name].addresses.items())},
            queues.read_queues,
            queues.write_queues,
            perm_text(queues.perm),
            found.order_topic_conf,
        )
        for queues in found.queue_datas
        if queues.broker_name in brokers and session.cluster in (None, brokers[queues.broker_name].cluster)
    ]
    return Result(sorted(rows, key=lambda row: (row.cluster, row.broker)), failures=await session.absent(topic))


async def clusters(session: Session, topic: str) -> Result[TopicCluster]:
    """The clusters it has queues in."""
    homes: dict[str, list[str]] = {}
    routed = await route(session, topic)
    for row in routed.items:
        homes.setdefault(row.cluster, []).append(row.broker)
    rows = [TopicCluster(cluster, brokers) for cluster, brokers in sorted(homes.items())]
    return Result(rows, failures=routed.failures)


async def configurations(session: Session, topic: str) -> Result[TopicConfiguration]:
    """How each broker that has the topic has it."""
    gathered = await session.each_node(await session.homes(topic), lambda node: table_of(session, node))
    rows = []
    for node, table in gathered.responses.items():
        config = table.topics.get(topic)
        if config is not None:
            unit, subscribed = bool(config.sys_flag & 1), bool(config.sys_flag & 2)
            rows.append(
                TopicConfiguration(
                    topic,
                    node.cluster,
                    node.name,
                    config.read_queues,
                    config.write_queues,
                    perm_text(config.perm),
                    unit,
                    subscribed,
                    config.order,
                    topic_types.type_of(config.attributes),
                )
            )
    return Result(rows, failures=list(gathered.failures))


async def table_of(session: Session, node: Node) -> TopicTable:
    """Every topic of a broker, by the request that all broker versions support."""
    return await session.request(all_topics, node)


async def consumers(session: Session, topic: str) -> Result[TopicGroup]:
    """Groups that subscribe the topic or have offsets of it, by the account of all its brokers."""
    return _known_groups(topic, await _groups_at(session, await session.homes(topic), topic))


async def _groups_at(session: Session, homes: Sequence[Node], topic: str) -> Gathered[Node, list[str]]:
    return await session.each_node(homes, lambda node: session.request(groups_of_topic, node, topic))


def _known_groups(topic: str, gathered: Gathered[Node, list[str]]) -> Result[TopicGroup]:
    brokers: dict[str, list[str]] = {}
    for node, groups in gathered.responses.items():
        for group in groups:
            if group != topic:  # RocketMQ 5 names the topic itself among its groups
                brokers.setdefault(group, []).append(node.name)
    return Result(
        [TopicGroup(topic, group, sorted(brokers[group])) for group in sorted(brokers)], [], gathered.failures
    )


async def flow(session: Session, topic: str) -> Result[TopicFlow]:
    """Produce rate of a topic and consume rate of each group, like RocketMQ's `statsAll` for one topic.

    The metrics of brokers are summed. A broker that does not respond makes the sum unknown, and so does a slave that
    stands in for its master, because it counts nothing. A broker that did not list its groups gets no further requests.
    """
    homes = await session.homes(topic)
    known = await _groups_at(session, homes, topic)
    groups, responding = _known_groups(topic, known), list(known.responses)
    came = await _counted(session, responding, "TOPIC_PUT_NUMS", topic)
    alone = TopicFlow(topic, None, None, _per_second(came, homes), None, _of_a_day(came, homes), None)
    # Not through `session.each`, as in `flows`.
    rows = await asyncio.gather(*(_flow(session, homes, responding, row.group, alone) for row in groups.items))
    return Result(rows or [alone], failures=list(groups.failures))


async def flows(session: Session, topic: str | None, *, active: bool = False) -> Result[TopicFlow]:
    """The same of one topic, or of every topic that is listed; with `active` only where something went through."""
    if topic is not None:
        return await flow(session, topic)
    names = [row.topic for row in (await listed(session)).items]
    # Not through `session.each`: it limits operations, and each of these sends several requests, which are limited
    # anyway.
    came = await asyncio.gather(*map(partial(flow, session), names), return_exceptions=True)
    found = Result[TopicFlow]()
    for name, result in zip(names, came, strict=True):
        if isinstance(result, OrbitMQError):
            found.failures.append(failure_of(name, result))
        elif isinstance(result, BaseException):
            raise result
        else:
            found.items += [row for row in result.items if not active or row.in_24_h or row.out_24_h]
            found.failures += [failure for failure in result.failures if failure not in found.failures]
    return found


async def _flow(session: Session, homes: list[Node], responding: list[Node], group: str, alone: TopicFlow) -> TopicFlow:
    """`there` are the home brokers that respond."""
    went, lag = await asyncio.gather(
        _counted(session, responding, "GROUP_GET_NUMS", f"{alone.topic}@{group}"),
        _lag(session, homes, responding, alone.topic, group),
    )
    out, day = _per_second(went, homes), _of_a_day(went, homes)
    return replace(alone, group=group, lag_messages=lag, out_per_s=out, out_24_h=day)


Counted = Mapping[Node, BrokerStatsData | None]


async def _counted(session: Session, responding: list[Node], name: str, key: str) -> Counted:
    """A statistic of each broker that responds; None if it counted nothing."""
    gathered = await session.each_node(responding, lambda node: session.request(statistic, node, name, key))
    return gathered.responses


def _per_second(counted: Counted, homes: Iterable[Node]) -> float | None:
    if not _is_whole(counted, homes):
        return None
    return sum(data.stats_minute.tps for data in counted.values() if data is not None)


def _is_whole(counted: Counted, homes: Iterable[Node]) -> bool:
    """Of `homes`, as keys of what was counted need not say who stands in."""
    return all(node in counted and not node.stands_in for node in homes)


def _of_a_day(counted: Counted, homes: Iterable[Node]) -> int | None:
    if not _is_whole(counted, homes):
        return None
    return sum(day_sum(data) for data in counted.values() if data is not None)


def day_sum(data: BrokerStatsData) -> int:
    """A young broker has counted for an hour or a minute only: the longest of its windows that has anything."""
    windows: tuple[StatsItem, ...] = (data.stats_day, data.stats_hour, data.stats_minute)
    return next((window.sum for window in windows if window.sum), 0)


async def _lag(session: Session, homes: list[Node], there: list[Node], topic: str, group: str) -> int | None:
    gathered = await session.each_node(there, lambda node: session.request(consume_stats, node, group, topic))
    if gathered.failures or len(gathered.responses) < len(homes):
        return None
    parts = [part for stats in gathered.responses.values() for part in stats.offset_table.values()]
    return sum(max(0, part.broker_offset - part.consumer_offset) for part in parts)
