"""Progress of a consumer group: per queue and in sum, in messages and in time. Unknown values are None, never 0.

`reading` and `summary` interpret values without I/O; `progress` queries every broker. Repairs nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from msgspec import Struct

from orbitmq.admin.clients import GroupMembership, RunningQueue, membership, running
from orbitmq.admin.groups import rules
from orbitmq.admin.results import Failure, Result
from orbitmq.admin.session import Node, Session
from orbitmq.errors import BrokerError, NotFound
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import RETRY_PREFIX, dlq_topic
from orbitmq.operations.groups import consume_stats, time_spans
from orbitmq.operations.offsets import min_offset
from orbitmq.operations.statistics import statistic
from orbitmq.operations.tables import all_consumer_offsets
from orbitmq.operations.topics import topic_stats
from orbitmq.runtime.clock import Clock, SystemClock
from orbitmq.wire.bodies import ConsumerRunningInfo, QueueProgress, QueueRange, QueueTimeSpan
from orbitmq.wire.codes import ResponseCode

BROADCASTING = "BROADCASTING"
PUSHED = "CONSUME_PASSIVELY"
PRODUCED = "TOPIC_PUT_NUMS"
"""The broker's statistic of messages stored, by topic."""


POLL_INTERVAL_SECONDS = 0.5
"""Between two looks while a lag is waited for: it falls with commits, which come every few seconds."""


class QueueState(StrEnum):
    """How to read the values of a queue."""

    CAUGHT_UP = "caughtUp"
    BEHIND = "behind"
    NO_OFFSET = "noOffset"
    """The group has stored none: all the queue holds is ahead of it, wherever it will begin."""
    OFFSET_AHEAD = "offsetAhead"
    """The stored offset is beyond the end: the topic was made anew, or the store was lost."""
    EXPIRED = "expired"
    """Messages were removed before the group took them."""
    BROADCAST = "broadcast"
    """Every member stores its own offsets."""
    UNKNOWN = "unknown"


class GroupQueue(Struct, frozen=True, rename="camel"):
    """One queue. Which request each time comes from stands with it: three different ones circulate as "the lag"."""

    topic: str
    broker_name: str
    queue_id: int
    state: QueueState
    min_offset: int | None = None
    """The first message the queue still holds."""
    max_offset: int | None = None
    """The next message it gets."""
    consumer_offset: int | None = None
    """The next message the group takes; None when it has stored none, or it is not known."""
    lag_messages: int | None = None
    """Messages between the two that still exist; None for a group that broadcasts, and when it is not known."""
    expired_messages: int | None = None
    delay_ms: int | None = None
    """QUERY_CONSUME_TIME_SPAN: age of the next message to consume; 0 without one."""
    last_consumed_age_ms: int | None = None
    """GET_TOPIC_STATS_INFO and GET_CONSUME_STATS: between storing the newest message and the last consumed one."""
    latency_ms: int | None = None
    """As exporters count: `delay_ms`, and by the oldest message that is kept where the next one has expired."""
    last_consumed_at_ms: int | None = None
    """When the last consumed message was stored."""
    client_id: str | None = None
    """The member that owns the queue; None without one, or if it is unknown."""


class GroupProgress(Struct, frozen=True, rename="camel"):
    """One group."""

    group: str
    members: int | None
    """Online clients; None if a broker did not respond."""
    model: str | None
    """`CLUSTERING` or `BROADCASTING`; None if no member is online."""
    lag_messages: int | None
    """Of all its topics, the retry topic left out; None when the part of a queue or broker is not known."""
    known_lag_messages: int
    """Of the queues that are known: the least it is."""
    retry_lag_messages: int | None
    """Messages that failed and wait to be tried again."""
    dead_letters: int | None
    """Messages given up, as far as they are still kept."""
    newest_dead_letter_at_ms: int | None
    """When the last one was; None without any, or when it is not known."""
    expired_messages: int | None
    """Removed before the group took them."""
    consume_tps: float | None
    """Messages per second that listeners finished over the last minute, as members report it. For members that do not,
    the rate of commits between two samples. None if both are unknown.
    """
    handed_out_tps: float | None
    """Messages a second that brokers gave the members over the last minute, finished or not."""
    produce_tps: float | None
    """Messages a second that its topics got over the last minute."""
    drain_seconds: float | None
    """Until it has caught up at these rates; None when it never will."""
    skew: float | None
    """The largest lag of a queue over the mean: 1 is even. None without lag, or when the part of one is not known."""
    delay_ms: int | None
    """The largest of the queues, as are the next two; None when the part of a queue or broker is not known."""
    last_consumed_age_ms: int | None
    latency_ms: int | None
    unowned_queues: list[str] | None
    """`topic/broker/queue` without an owner; None if a member did not respond, or if none is online."""
    idle_clients: list[str] | None
    """Members without a queue."""
    unread_queues: list[str]
    """Queues with messages that consumers are not shown: the topic has less read queues than write queues there."""
    queues: list[GroupQueue]


# ---------------------------------------------------------------------------------------------------------- pure parts


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What brokers say of one queue; None is: not said."""

    queue: MessageQueue
    max_offset: int | None = None
    min_offset: int | None = None
    stored_offset: int | None = None
    has_offset: bool | None = None
    """Whether the group has stored one; None when it is not known."""
    newest_at_ms: int | None = None
    oldest_at_ms: int | None = None
    last_consumed_at_ms: int | None = None
    reported_delay_ms: int | None = None
    """As the broker reports it: 0 also if it cannot know."""
    owner: str | None = None


def reading(facts: QueueFacts, now_ms: int, *, broadcasting: bool = False) -> GroupQueue:
    """What the facts of a queue mean at `now_ms`."""
    queue, end, low = facts.queue, facts.max_offset, facts.min_offset
    stored = facts.stored_offset if facts.has_offset else None
    state = _state(facts, broadcasting=broadcasting)
    if state in (QueueState.BROADCAST, QueueState.UNKNOWN):
        return GroupQueue(
            queue.topic, queue.broker_name, queue.queue_id, state, low, end, stored, client_id=facts.owner
        )
    assert end is not None, "else it is unknown"
    first = max(low or 0, stored or 0)
    lag = max(0, end - first)
    delay = 0 if not lag else facts.reported_delay_ms if state is QueueState.BEHIND else None
    return GroupQueue(
        queue.topic,
        queue.broker_name,
        queue.queue_id,
        state,
        low,
        end,
        stored,
        lag_messages=lag,
        expired_messages=None if low is None else max(0, low - stored) if stored is not None else 0,
        delay_ms=delay,
        last_consumed_age_ms=_between(facts.last_consumed_at_ms, facts.newest_at_ms),
        latency_ms=delay if delay is not None else _between(facts.oldest_at_ms, now_ms),
        last_consumed_at_ms=facts.last_consumed_at_ms,
        client_id=facts.owner,
    )


def _state(facts: QueueFacts, *, broadcasting: bool) -> QueueState:
    if broadcasting:
        return QueueState.BROADCAST
    if facts.max_offset is None or facts.has_offset is None:
        return QueueState.UNKNOWN
    if not facts.has_offset:
        return QueueState.NO_OFFSET
    stored = facts.stored_offset
    if stored is None:
        return QueueState.UNKNOWN
    if stored > facts.max_offset:
        return QueueState.OFFSET_AHEAD
    if facts.min_offset is not None and stored < facts.min_offset:
        return QueueState.EXPIRED
    return QueueState.BEHIND if stored < facts.max_offset else QueueState.CAUGHT_UP


def _between(earlier_ms: int | None, later_ms: int | None) -> int | None:
    """None when one of them is not known; clocks of two machines may differ, so never below 0."""
    return None if earlier_ms is None or later_ms is None else max(0, later_ms - earlier_ms)


def drain_seconds(lag: int | None, consume_tps: float | None, produce_tps: float | None) -> float | None:
    """Time until the lag is consumed; None when it is unknown, or grows."""
    if lag == 0:
        return 0.0
    if lag is None or consume_tps is None or produce_tps is None or consume_tps <= produce_tps:
        return None
    return round(lag / (consume_tps - produce_tps), 1)


def finished_tps(reports: Mapping[str, ConsumerRunningInfo]) -> float | None:
    """What the listeners of all members finish a second, retries apart; None where a member has no listener."""
    if not reports or any(info.properties.get("PROP_CONSUME_TYPE") != PUSHED for info in reports.values()):
        return None
    topics = [pair for info in reports.values() for pair in info.status_table.items()]
    return round(sum(one.consume_ok_tps for topic, one in topics if not _is_retry(topic)), 3)


def skew(lags: Collection[int]) -> float | None:
    """The largest over the mean, None without any lag."""
    total = sum(lags)
    return round(max(lags) * len(lags) / total, 2) if total else None


def owners(reports: Mapping[str, ConsumerRunningInfo]) -> dict[MessageQueue, str]:
    """Queue -> the member that has it now."""
    return {
        queue: client for client, info in reports.items() for queue, state in info.mq_table.items() if not state.dropped
    }


def vanished(reports: Mapping[str, ConsumerRunningInfo], registered: Collection[str]) -> list[Failure]:
    """Brokers of which members have queues but which no name server knows any more: the only trace of a dead broker.

    Members forget it, too, with their next update of the route, some 30 s later.
    """
    names = {queue.broker_name for queue in owners(reports)} - set(registered)
    return [
        Failure(
            name, None, "UNREACHABLE", "members still have queues of it, and no name server knows it any more",
            "is it running? orbitmq cluster health --expect " + name, retryable=True,
        )
        for name in sorted(names)
    ]  # fmt: skip


def label(queue: MessageQueue | GroupQueue | RunningQueue) -> str:
    """`topic/broker/queue`."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """Those of one group; None is not known."""

    count: int | None
    newest_at_ms: int | None = None


@dataclass(slots=True)
class GroupRates:
    """Messages a second; None when a broker did not say."""

    handed_out: float | None = 0.0
    produced: float | None = 0.0


def summary(
    group: str,
    queues: list[GroupQueue],
    rates: GroupRates,
    who: GroupMembership,
    reports: Mapping[str, ConsumerRunningInfo] | None,
    *,
    whole: bool,
    dead_letters: DeadLetterCount = DeadLetterCount(None),
    unread: Iterable[str] = (),
) -> GroupProgress:
    """The summary of the group. Unless `whole`, a part is missing and sums are None."""
    counted = [one for one in queues if not one.topic.startswith(RETRY_PREFIX)]
    known = [one.lag_messages for one in counted if one.lag_messages is not None]
    lag = _sum((one.lag_messages for one in counted), whole=whole)
    of_all = counted if whole and all(one.state is not QueueState.UNKNOWN for one in counted) else []
    at = None if reports is None else owners(reports)
    consumed = None if reports is None else finished_tps(reports)
    busy = set() if at is None else {client for queue, client in at.items() if not _is_retry(queue.topic)}
    return GroupProgress(
        group,
        members=None if who.failures else len(who.members),
        model=who.model,
        lag_messages=lag,
        known_lag_messages=sum(known),
        retry_lag_messages=_sum((one.lag_messages for one in queues if _is_retry(one.topic)), whole=whole),
        dead_letters=dead_letters.count,
        newest_dead_letter_at_ms=dead_letters.newest_at_ms,
        expired_messages=_sum((one.expired_messages for one in counted), whole=whole),
        consume_tps=consumed,
        handed_out_tps=rates.handed_out if whole else None,
        produce_tps=rates.produced if whole else None,
        drain_seconds=drain_seconds(lag, consumed, rates.produced),
        skew=skew(known) if of_all else None,
        delay_ms=_worst(one.delay_ms for one in of_all),
        last_consumed_age_ms=_largest(one.last_consumed_age_ms for one in of_all),
        latency_ms=_worst(one.latency_ms for one in of_all),
        unowned_queues=None if at is None else sorted(label(one) for one in counted if one.client_id is None),
        idle_clients=None if at is None else sorted(one.client_id for one in who.members if one.client_id not in busy),
        unread_queues=sorted(unread),
        queues=queues,
    )


def _is_retry(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def _sum(counts: Iterable[int | None], *, whole: bool) -> int | None:
    found = list(counts)
    return None if not whole or None in found else sum(one for one in found if one is not None)


def _worst(times: Iterable[int | None]) -> int | None:
    """The largest; None when one is not known, such as the delay of a queue whose next message has expired."""
    found = list(times)
    return None if None in found else _largest(found)


def _largest(times: Iterable[int | None]) -> int | None:
    return max((one for one in times if one is not None), default=None)


def warnings_of(found: GroupProgress) -> list[str]:
    """Warnings about the limits of the values."""
    said = []
    ahead = [label(one) for one in found.queues if one.state is QueueState.OFFSET_AHEAD]
    if ahead:
        said.append(f"the stored offset is beyond the end of {', '.join(ahead)}: was the topic made anew?")
    if found.expired_messages:
        said.append(f"{found.expired_messages} messages were removed before the group took them")
    if any(one.state is QueueState.BROADCAST for one in found.queues):
        said.append(f"{found.group} broadcasts: its members keep their offsets themselves, brokers know no lag")
    fresh = [label(one) for one in found.queues if one.state is QueueState.NO_OFFSET and one.lag_messages]
    if fresh:
        said.append(f"the group has stored no offset for {', '.join(fresh)}")
    return said


# ----------------------------------------------------------------------------------------------------------- requests


@dataclass(slots=True)
class _AtBroker:
    """What one broker says."""

    facts: list[QueueFacts] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    rates: GroupRates = field(default_factory=GroupRates)


async def progress(
    session: Session, group: str, topic: str | None = None, *, clients: bool = True, clock: Clock | None = None
) -> Result[GroupProgress]:
    """Progress of the group, in one topic or in all that it consumes. NotFound for an unknown group. `clients` requests
    from each member which queues it owns.
    """
    who = await membership(session, group)
    found, _ = await measured(session, who, topic, clients=clients, clock=clock)
    (one,) = found.items
    if not one.queues and not who.online and not found.failures:
        known = await rules(session, group)
        found.warnings.append(f"{group} has consumed nothing yet and has no member online")
        found.failures += known.failures
    return found


async def by_queue(
    session: Session,
    group: str,
    topic: str | None = None,
    *,
    clients: bool = True,
    above: int | None = None,
    within_seconds: float = 0,
) -> Result[GroupQueue]:
    """The queues of `progress`. `check_failed` if the lag, retries included, exceeds `above` or is unknown; repeats the
    query until it does not, for at most `within_seconds`.
    """
    deadline = time.monotonic() + within_seconds
    while True:
        whole = await progress(session, group, topic, clients=clients)
        one = whole.items[0]
        found = Result(one.queues, whole.warnings, whole.failures)
        if above is not None:
            behind = None if one.lag_messages is None else one.lag_messages + (one.retry_lag_messages or 0)
            found.check_failed = behind is None or behind > above
        left = deadline - time.monotonic()
        if left <= 0 or not (found.check_failed or found.failures):
            return found
        await asyncio.sleep(min(POLL_INTERVAL_SECONDS, left))
        session.forget()


async def measured(
    session: Session,
    who: GroupMembership,
    topic: str | None = None,
    *,
    clients: bool = True,
    clock: Clock | None = None,
) -> tuple[Result[GroupProgress], dict[str, ConsumerRunningInfo]]:
    """The same for members that are known already, and what they say of themselves."""
    topics = {topic} if topic else set(who.subscribed)
    nodes = await session.readable()
    gathered = await session.each_node(nodes, lambda node: _at_broker(session, node, who.group, topic, topics))
    failures = _joined(who.failures, gathered.failures)
    reports: dict[str, ConsumerRunningInfo] = {}
    has_reports = clients and who.online
    if has_reports:
        gathered_reports = await running(session, who)
        reports, failures = gathered_reports.responses, [*failures, *gathered_reports.failures]
        has_reports = not (
            gathered_reports.failures or who.failures
        )  # a queue is known to have no owner once every member has reported
    dead_brokers = vanished(reports, {node.name for node in await session.nodes()})
    dead, missing = await _dead_letters(session, who.group)
    failures = _joined(failures, [*dead_brokers, *missing])
    at = owners(reports)
    now_ms = (clock or SystemClock()).now_ms()
    queues = [
        reading(_owned(facts, at), now_ms, broadcasting=who.model == BROADCASTING)
        for progress in gathered.responses.values()
        for facts in progress.facts
    ]
    queues.sort(key=lambda one: (one.topic.startswith(RETRY_PREFIX), one.topic, one.broker_name, one.queue_id))
    rates = _added(progress.rates for progress in gathered.responses.values())
    unread = [name for progress in gathered.responses.values() for name in progress.unread]
    whole = not gathered.failures and not dead_brokers
    known_reports = reports if has_reports else None
    one = summary(who.group, queues, rates, who, known_reports, whole=whole, dead_letters=dead, unread=unread)
    return Result([one], warnings_of(one), failures), reports


def _joined(first: list[Failure], second: list[Failure]) -> list[Failure]:
    """Each target once: a broker that does not respond is not listed for every request."""
    seen = {one.target for one in first}
    return [*first, *(one for one in second if one.target not in seen)]


def _owned(facts: QueueFacts, at: Mapping[MessageQueue, str]) -> QueueFacts:
    owner = at.get(facts.queue)
    return replace(facts, owner=owner) if owner else facts


def _added(rates: Iterable[GroupRates]) -> GroupRates:
    total = GroupRates()
    for one in rates:
        total.handed_out = _plus(total.handed_out, one.handed_out)
        total.produced = _plus(total.produced, one.produced)
    return total


def _plus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else round(one + other, 3)


async def _at_broker(
    session: Session, node: Node, group: str, topic: str | None, subscribed: Collection[str]
) -> _AtBroker:
    stats = await session.request(consume_stats, node, group, topic)
    found = _AtBroker()
    found.rates.handed_out = stats.consume_tps
    by_topic: dict[str, dict[MessageQueue, QueueProgress]] = {name: {} for name in subscribed}
    for queue, at in stats.offset_table.items():
        by_topic.setdefault(queue.topic, {})[queue] = at
    stored: Mapping[str, Mapping[int, int]] | None = None
    if any(at.consumer_offset == 0 for at in stats.offset_table.values()):  # stored, or the broker's word for none
        stored = await session.request(all_consumer_offsets, node)
    for name, queues in sorted(by_topic.items()):
        await _add_topic(session, node, group, name, queues, stored, found)
    return found


async def _add_topic(
    session: Session,
    node: Node,
    group: str,
    topic: str,
    listed: Mapping[MessageQueue, QueueProgress],
    stored: Mapping[str, Mapping[int, int]] | None,
    found: _AtBroker,
) -> None:
    """The queues of one topic at one broker. A topic that is not there adds nothing."""
    remoting, address, timeout_ms = session.remoting, node.address, session.timeout_ms
    try:
        ranges, spans, put = await asyncio.gather(
            topic_stats(remoting, address, topic, timeout_ms=timeout_ms),
            time_spans(remoting, address, group, topic, timeout_ms=timeout_ms),
            statistic(remoting, address, PRODUCED, topic, timeout_ms=timeout_ms),
        )
    except BrokerError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST and not listed:
            return
        raise
    if not listed:  # subscribed, and nothing stored yet: the broker lists only topics with offsets
        some = await consume_stats(remoting, address, group, topic, timeout_ms=timeout_ms)
        listed = some.offset_table
        stored = {}
    if put is not None and not _is_retry(topic):
        found.rates.produced = _plus(found.rates.produced, put.stats_minute.tps)
    times = {span.message_queue: span for span in spans}
    offsets = None if stored is None else stored.get(f"{topic}@{group}", {})
    for queue, at in sorted(listed.items()):
        known = ranges.offset_table.get(queue)
        low = known.min_offset if known else await min_offset(remoting, address, queue, timeout_ms=timeout_ms)
        found.facts.append(_facts(queue, at, low, known, times.get(queue), offsets))
    found.unread += [
        label(queue)
        for queue, known in ranges.offset_table.items()
        if queue not in listed and known.max_offset > known.min_offset
    ]


def _facts(
    queue: MessageQueue,
    at: QueueProgress,
    low: int,
    known: QueueRange | None,
    span: QueueTimeSpan | None,
    offsets: Mapping[int, int] | None,
) -> QueueFacts:
    has_offset = at.consumer_offset > 0 or (offsets is not None and queue.queue_id in offsets)
    return QueueFacts(
        queue,
        max_offset=at.broker_offset,
        min_offset=max(0, low),
        stored_offset=at.consumer_offset if has_offset else None,
        has_offset=has_offset,
        newest_at_ms=_time(known.last_update_timestamp if known else None),
        oldest_at_ms=_time(span.min_time_stamp if span else None),
        last_consumed_at_ms=_time(at.last_timestamp),
        reported_delay_ms=None if span is None else max(0, span.delay_time),
    )


def _time(timestamp: int | None) -> int | None:
    """Brokers say 0 or -1 for a time they do not know."""
    return timestamp if timestamp and timestamp > 0 else None


async def _dead_letters(session: Session, group: str) -> tuple[DeadLetterCount, list[Failure]]:
    topic = dlq_topic(group)
    try:
        homes = await session.homes(topic)
    except NotFound:
        return DeadLetterCount(0), []
    gathered = await session.each_node(homes, lambda node: session.request(topic_stats, node, topic))
    if gathered.failures:
        return DeadLetterCount(None), gathered.failures
    ranges = [one for stats in gathered.responses.values() for one in stats.offset_table.values()]
    newest = _largest(_time(one.last_update_timestamp) for one in ranges if one.max_offset > one.min_offset)
    return DeadLetterCount(sum(one.max_offset - one.min_offset for one in ranges), newest), []
