"""Summaries of all topics: brokers, queues and lag of their groups, with a few requests per broker however many topics
there are.

Contents and produce rates take requests per topic: only for the topics that are shown.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec import Struct

from orbitmq.admin import groups, topics
from orbitmq.admin.results import Failure, Result
from orbitmq.admin.session import Node, Session
from orbitmq.admin.topics import TopicType, day_sum
from orbitmq.errors import BrokerError
from orbitmq.message.config import TopicConfig
from orbitmq.message.flags import perm_text
from orbitmq.message.topic_types import MessageType, type_of
from orbitmq.operations.statistics import broker_consume_stats, statistic
from orbitmq.operations.tables import all_consumer_offsets
from orbitmq.operations.topics import topic_stats
from orbitmq.wire.bodies import BrokerStatsData, ConsumeStatsList, TopicStatsTable
from orbitmq.wire.codes import ResponseCode

TOPICS_AT_ONCE = 8
"""Concurrent requests about topics of one broker."""
VOLUMES_MAX = 500
"""Topics of a list whose messages are counted: a second or two of a broker's time."""


class TopicSummary(Struct, frozen=True, rename="camel"):
    """One topic over all brokers."""

    topic: str
    type: TopicType
    brokers: list[str]
    """Names of the brokers that have it and respond."""
    read_queues: int | None
    """Of all brokers; None if one of them did not respond."""
    write_queues: int | None
    perms: list[str]
    """`RW-`; more than one where brokers differ."""
    differs: bool
    """Whether brokers that have it have it differently."""
    groups: list[str]
    """Groups with offsets of it, on brokers that responded."""
    lag_messages: int | None
    """Of all its groups, as brokers sum it up; None when a part of it is not known."""
    known_lag_messages: int
    """The part of the brokers that responded: a lower bound."""
    message_types: list[MessageType] = []
    """What 5.x clients may send to it; several if brokers differ."""


class TopicVolume(Struct, frozen=True, rename="camel"):
    """Contents and produce rate of a topic; None if one of its brokers did not respond."""

    topic: str
    messages: int | None = None
    in_per_s: float | None = None
    """Messages stored a second, over the last minute."""
    in_24_h: int | None = None
    """Messages stored in the last day, or since the broker runs."""
    updated_at_ms: int | None = None
    """When its last message was stored; None also when it never had one, or that has expired."""


class TopicRow(Struct, frozen=True, rename="camel", kw_only=True):
    """One topic in a list: what it is, holds and gets. None is unknown, or was not requested."""

    topic: str
    type: TopicType
    message_types: list[MessageType] | None = None
    """What 5.x clients may send to it; several if brokers differ, none if brokers with it do not respond."""
    write_queues: int | None = None
    """Of all brokers."""
    read_queues: int | None = None
    messages: int | None = None
    """Messages that are stored."""
    in_per_s: float | None = None
    """Messages stored a second, over the last minute."""
    lag_messages: int | None = None
    """Of all its groups, as brokers sum it up."""
    known_lag_messages: int | None = None
    """The part of the brokers that responded: a lower bound."""
    groups: list[str] = []
    """Groups with offsets of it."""
    brokers: list[str] = []
    """Names of the brokers that have it and respond."""
    updated_at_ms: int | None = None
    """When its last message was stored; None also when it never had one, or that has expired."""


@dataclass(slots=True)
class _AtBroker:
    """What one broker says of its topics."""

    configs: Mapping[str, TopicConfig]
    groups: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    lag: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    unsummed: set[str] = field(default_factory=set)
    """Topics with a group that has offsets and no rules: the broker leaves it out of its sums."""


async def rows(
    session: Session, *, everything: bool = False, containing: str = "", quick: bool = False
) -> Result[TopicRow]:
    """Topics by name, as `topics.listed` chooses them. `quick` leaves out what takes requests per topic or group."""
    if quick:
        names = await topics.listed(session, everything=everything, containing=containing)
        typed = await topics.with_message_types(session, names)
        items = [TopicRow(topic=one.topic, type=one.type, message_types=one.message_types) for one in typed.items]
        return Result(items, typed.warnings, typed.failures)
    found = await summaries(session)
    chosen = [
        one for one in found.items if topics.is_meant(one.topic, one.type, everything=everything, containing=containing)
    ]
    held = await volumes(session, chosen[:VOLUMES_MAX])
    by_name = {one.topic: one for one in held.items}
    items = [_row(one, by_name.get(one.topic) or TopicVolume(one.topic)) for one in chosen]
    if len(chosen) > VOLUMES_MAX:
        found.warnings.append(
            f"messages and rates are those of the first {VOLUMES_MAX} topics: choose some by their name"
        )
    return Result(items, [*found.warnings, *held.warnings], _joined(found.failures, held.failures))


def _row(one: TopicSummary, held: TopicVolume) -> TopicRow:
    return TopicRow(
        topic=one.topic,
        type=one.type,
        message_types=one.message_types,
        write_queues=one.write_queues,
        read_queues=one.read_queues,
        messages=held.messages,
        in_per_s=held.in_per_s,
        lag_messages=one.lag_messages,
        known_lag_messages=one.known_lag_messages,
        groups=one.groups,
        brokers=one.brokers,
        updated_at_ms=held.updated_at_ms,
    )


async def summaries(session: Session) -> Result[TopicSummary]:
    """Every topic, those of the system, of retries and of dead letters too, by name. Three requests a broker and those
    of `topics.listed`.
    """
    listed = await topics.listed(session, everything=True)
    nodes = await session.readable()
    gathered = await session.each_node(nodes, partial(_at_broker, session))
    failures = _joined(listed.failures, gathered.failures)
    # Thousands of lines would hold the event loop up.
    rows = await asyncio.to_thread(_summaries, listed.items, gathered.responses, whole=not failures)
    return Result(rows, list(listed.warnings), failures)


def _summaries(rows: Sequence[topics.Topic], by_node: Mapping[Node, _AtBroker], *, whole: bool) -> list[TopicSummary]:
    return [_summary(row, by_node, whole=whole) for row in rows]


async def _at_broker(session: Session, node: Node) -> _AtBroker:
    timeout_ms = max(session.timeout_ms, groups.SUMS_TIMEOUT_MS)
    table, offsets, stats = await asyncio.gather(
        topics.table_of(session, node),
        session.request(all_consumer_offsets, node),
        session.request(broker_consume_stats, node, timeout_ms=timeout_ms),
    )
    return await asyncio.to_thread(_read, table.topics, offsets, stats)


def _read(configs: Mapping[str, TopicConfig], offsets: Iterable[str], stats: ConsumeStatsList) -> _AtBroker:
    found = _AtBroker(configs)
    summed = set[str]()
    for group, parts in (pair for row in stats.consume_stats_list for pair in row.items()):
        summed.add(group)
        for queue, at in (pair for part in parts for pair in part.offset_table.items()):
            found.lag[queue.topic] += max(0, at.broker_offset - at.consumer_offset)
    for topic, group in map(groups.parts, offsets):
        if not groups.is_system(group):
            found.groups[topic].add(group)
            if group not in summed:
                found.unsummed.add(topic)
    return found


def _summary(row: topics.Topic, by_node: Mapping[Node, _AtBroker], *, whole: bool) -> TopicSummary:
    name = row.topic
    homes = {node.name: one.configs[name] for node, one in by_node.items() if name in one.configs}
    ways = {(one.read_queues, one.write_queues, one.perm, type_of(one.attributes)) for one in homes.values()}
    known = sum(one.lag.get(name, 0) for one in by_node.values())
    is_summed = whole and not any(name in one.unsummed for one in by_node.values())
    return TopicSummary(
        name,
        row.type,
        sorted(homes),
        sum(one.read_queues for one in homes.values()) if whole else None,
        sum(one.write_queues for one in homes.values()) if whole else None,
        sorted({perm_text(one.perm) for one in homes.values()}),
        len(ways) > 1,
        sorted(set[str]().union(*(one.groups.get(name, ()) for one in by_node.values()))),
        known if is_summed else None,
        known,
        sorted({type_of(one.attributes) for one in homes.values()}),
    )


async def volumes(session: Session, rows: Sequence[TopicSummary]) -> Result[TopicVolume]:
    """Messages and rates of these topics: two requests per topic and broker."""
    nodes = {node.name: node for node in await session.readable()}
    mine: dict[Node, list[str]] = defaultdict(list)
    for row in rows:
        for name in row.brokers:
            if name in nodes:
                mine[nodes[name]].append(row.topic)
    gathered = await session.each_node(list(mine), lambda node: _volumes_at(session, node, mine[node]))
    whole = {node.name for node in gathered.responses if not node.stands_in}
    found = [
        _volume(row.topic, [one.get(row.topic) for one in gathered.responses.values()])
        if row.write_queues is not None and whole.issuperset(row.brokers)
        else TopicVolume(row.topic)
        for row in rows
    ]
    return Result(found, failures=list(gathered.failures))


Held = tuple[TopicStatsTable, BrokerStatsData | None]


async def _volumes_at(session: Session, node: Node, names: Sequence[str]) -> dict[str, Held]:
    """Without topics that were deleted in the meantime. A refusal or an incomplete response is raised."""
    places = asyncio.Semaphore(TOPICS_AT_ONCE)
    remoting, address, timeout_ms = session.remoting, node.address, session.timeout_ms
    found: dict[str, Held] = {}

    async def one(topic: str) -> None:
        async with places:
            try:
                held = await topic_stats(remoting, address, topic, timeout_ms=timeout_ms)
            except BrokerError as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    return
                raise
            found[topic] = held, await statistic(remoting, address, "TOPIC_PUT_NUMS", topic, timeout_ms=timeout_ms)

    tasks = [asyncio.create_task(one(topic)) for topic in names]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return found


def _volume(topic: str, parts: Iterable[Held | None]) -> TopicVolume:
    held = [part for part in parts if part is not None]
    queues = [queue for table, _ in held for queue in table.offset_table.values()]
    counted = [data for _, data in held if data is not None]
    return TopicVolume(
        topic,
        sum(max(0, queue.max_offset - queue.min_offset) for queue in queues),
        sum(data.stats_minute.tps for data in counted),
        sum(day_sum(data) for data in counted),
        max((queue.last_update_timestamp for queue in queues if queue.last_update_timestamp > 0), default=None),
    )


def _joined(first: Sequence[Failure], second: Sequence[Failure]) -> list[Failure]:
    """Each target once."""
    return list({failure.target: failure for failure in (*first, *second)}.values())
