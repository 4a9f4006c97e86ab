"""Where is my message? Any id, key or transaction id -> the history of each message that has it.

Gathers facts of all brokers and leaves what they mean to `message_history`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from orbitmq.admin.bodies import real_topic, unique_id
from orbitmq.admin.half_messages import half_of
from orbitmq.admin.ids import Identity, IdKind, identify
from orbitmq.admin.message_history import Delayed, Facts, HalfState, MessageHistory, history_of
from orbitmq.admin.messages import by_offset_id, oldest_first, search
from orbitmq.admin.results import Failure, Result, failure_of
from orbitmq.admin.runtime import parse
from orbitmq.admin.session import Session
from orbitmq.admin.traces import trace
from orbitmq.admin.tracks import consumer_offsets, groups_of, in_flight_until, tracks
from orbitmq.errors import AdminError, NotFound, OrbitMQError
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.pop import pop_retry_topic, retry_group
from orbitmq.message.properties import REAL_TOPIC
from orbitmq.message.timers import due_ms as timer_due_ms
from orbitmq.message.topics import (
    DLQ_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRANSACTION_CHECK_MAX_TOPIC,
    dlq_topic,
    is_system_topic,
    retry_topic,
)
from orbitmq.operations.queries import queue_entries
from orbitmq.operations.routes import topics as all_topics
from orbitmq.operations.statistics import runtime_info
from orbitmq.operations.tables import all_delay_offsets

HISTORIES_MAX = 5
"""Limit of messages of one key: each costs some ten requests to every broker."""
TOPICS_MAX = 500
"""Topics looked into when none is given: each costs a question to every broker."""
LOOKS_MAX = 2
"""Retries of a decision that changes while it is read."""
GROUPS_MAX = 200
"""Limit of groups whose retries and dead letters are searched."""
BROKERS_OWN = (HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, TRANSACTION_CHECK_MAX_TOPIC)
"""Where messages wait before they come into their topic."""


@dataclass(slots=True)
class _Looked:
    """What has been found so far, where, and which nodes did not respond."""

    identity: Identity
    messages: dict[tuple[str, str], MessageExt] = field(default_factory=dict)
    """By topic and offset id."""
    searched: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, found: Result[MessageExt], where: str | None = None) -> None:
        self.messages |= {(one.topic, one.offset_msg_id): one for one in found.items}
        self.warnings += found.warnings
        self.failures += [one for one in found.failures if one not in self.failures]
        if where is not None:
            self.searched.append(where)


async def find(
    session: Session,
    name: str,
    now_ms: int,
    *,
    topic: str | None = None,
    trace_topic: str = TRACE_TOPIC,
    limit: int = HISTORIES_MAX,
    topics_max: int = TOPICS_MAX,
) -> Result[MessageHistory]:
    """The history of each message named `name`, newest first; without a match one history that says so.

    Without `topic` the topic comes from the message itself, else from its trace; else all topics are searched.
    """
    looked = _Looked(identify(name, now_ms))
    await _search(session, looked, topic, trace_topic, topics_max)
    names = _distinct(looked.messages.values())
    if len(names) > limit:
        looked.warnings.append(f"{len(names)} messages are called {name}; these are the newest {limit}")
    found = Result[MessageHistory](warnings=looked.warnings, failures=looked.failures)
    for seeds in names[:limit]:
        facts = await _facts(session, looked, seeds, now_ms, trace_topic, found)
        found.items.append(history_of(facts))
    if not names:
        found.items.append(await _nothing(session, looked, topic, now_ms, trace_topic))
    return found


async def record(session: Session, name: str, now_ms: int, *, topic: str | None = None) -> MessageExt:
    """The newest record named `name`, found as `find` does: in `topic`, else in an application's topic, else in any.
    NotFound without one, AdminError when not every node has responded."""
    looked = _Looked(identify(name, now_ms))
    await _search(session, looked, topic, TRACE_TOPIC, TOPICS_MAX)
    records = oldest_first(looked.messages.values())
    for is_wanted in (
        lambda one: one.topic == topic or one.offset_msg_id == looked.identity.text.upper(),
        lambda one: one.topic not in BROKERS_OWN,
        lambda one: topic is None or real_topic(one) == topic,
    ):
        if chosen := [one for one in records if is_wanted(one)]:
            return chosen[-1]
    if looked.failures:
        silent = ", ".join(dict.fromkeys(failure.target for failure in looked.failures))
        raise AdminError(f"{name} is not found, and some nodes do not respond: {silent}", looked.failures[0].hint)
    raise NotFound(f"there is no message {name}: searched {', '.join(looked.searched)}")


def _distinct(messages: Iterable[MessageExt]) -> list[list[MessageExt]]:
    """Records by the message they are of, the newest message first."""
    groups: dict[tuple[str, str], list[MessageExt]] = {}
    for message in messages:
        groups.setdefault((real_topic(message), unique_id(message) or message.offset_msg_id), []).append(message)
    return sorted(groups.values(), key=lambda found: max(one.store_timestamp for one in found), reverse=True)


async def _search(session: Session, looked: _Looked, topic: str | None, trace_topic: str, topics_max: int) -> None:
    """Look where the message may be, nearest first, until it is found. A key may belong to messages of every topic."""
    text, kind = looked.identity.text, looked.identity.kind
    place = looked.identity.place
    if place is not None:
        looked.add(await by_offset_id(session, text), f"the log of {place.address}")
        if looked.messages:
            return
    if topic is not None:
        await session.route(topic)  # NotFound with the nearest names is more use than "no message"
        looked.add(await search(session, [topic], text), f"topic {topic}")
    looked.add(await search(session, BROKERS_OWN, text), "delayed and half messages")
    if topic is not None or (looked.messages and kind is not IdKind.KEY):
        return
    history = await trace(session, text, trace_topic)
    traced = list(dict.fromkeys(one.topic for one in history.records if one.topic))
    looked.searched.append(f"traces in {trace_topic}")
    if traced:
        looked.add(await search(session, traced, text), f"topic {', '.join(traced)}")
    if not looked.messages or kind is IdKind.KEY:
        await _look_everywhere(session, looked, topics_max)


async def _look_everywhere(session: Session, looked: _Looked, topics_max: int) -> None:
    known = await session.any_name_server(partial(session.request, all_topics))
    plain = sorted(one for one in known if not is_system_topic(one) and not one.startswith("%"))
    derived = sorted(one for one in known if one.startswith((RETRY_PREFIX, DLQ_PREFIX)))
    chosen = [*plain, *derived][:topics_max]
    looked.add(await search(session, chosen, looked.identity.text), f"{len(chosen)} topics")
    if len(chosen) < len(plain) + len(derived):
        looked.warnings.append(
            f"only {len(chosen)} of {len(plain) + len(derived)} topics were searched: set the topic with -t"
        )


# -------------------------------------------------------------------------------------------------------------- facts


async def _facts(
    session: Session,
    looked: _Looked,
    seeds: Sequence[MessageExt],
    now_ms: int,
    trace_topic: str,
    found: Result[MessageHistory],
) -> Facts:
    """All records of one message, and what brokers report about them. Failed requests are added to `found`."""
    topic, unique = real_topic(seeds[-1]), unique_id(seeds[-1])
    facts = Facts(looked.identity.text, now_ms, topic, unique, searched=looked.searched)
    records = oldest_first(seeds)
    try:
        records = await _settled(session, facts, records, found)
        facts.delayed = [
            await _delayed(session, one, records) for one in records if one.topic in (SCHEDULE_TOPIC, TIMER_TOPIC)
        ]
        facts.retries_passed = await _passed(session, facts.retries, facts.topic)
        if facts.copies:
            seen = await tracks(session, facts.copies[-1])
            facts.tracks = seen.items
            found.warnings += seen.warnings
            _note(found, seen.failures)
    except OrbitMQError as error:
        _note(found, [failure_of(f"what became of {facts.asked}", error)])
    facts.trace = await trace(session, unique or looked.identity.text, trace_topic, records[0].born_timestamp)
    if not facts.copies:
        facts.expired = await _expired(session, identify(unique or "", now_ms))
    facts.is_partial = found.partial
    return facts


async def _settled(
    session: Session, facts: Facts, records: list[MessageExt], found: Result[MessageHistory]
) -> list[MessageExt]:
    """All records, and the half's state. One that was decided while we looked has become another record: look again."""
    for _ in range(LOOKS_MAX):
        records = await _records(session, records, facts, found)
        _sort_out(facts, records)
        if facts.copies or not facts.half_messages:
            break
        facts.half = await half_of(session, facts.half_messages[-1])
        if facts.half.state is not HalfState.DECIDED:
            break
    return records


def _note(found: Result[MessageHistory], failures: Iterable[Failure]) -> None:
    """Each once."""
    found.failures += [one for one in failures if one not in found.failures]


def _sort_out(facts: Facts, records: Sequence[MessageExt]) -> None:
    """Which record is what, by its topic."""
    topic = facts.topic
    facts.copies = [one for one in records if one.topic == topic]
    facts.retries = [one for one in records if one.topic.startswith(RETRY_PREFIX) and one.topic != topic]
    facts.dead = [one for one in records if one.topic.startswith(DLQ_PREFIX) and one.topic != topic]
    facts.half_messages = sorted((one for one in records if one.topic == HALF_TOPIC), key=lambda one: one.queue_offset)
    facts.given_up = [one for one in records if one.topic == TRANSACTION_CHECK_MAX_TOPIC]


async def _records(
    session: Session, seeds: Sequence[MessageExt], facts: Facts, found: Result[MessageHistory]
) -> list[MessageExt]:
    """Every record with its unique id, oldest first. A message of a producer that makes no ids is what was found."""
    topic, unique = facts.topic or "", facts.unique_id
    if unique is None:
        return oldest_first(seeds)
    groups: set[str] = set()
    try:
        known = await groups_of(session, topic, await session.homes(topic))
        groups.update(known.items)
        _note(found, known.failures)
    except NotFound:
        facts.is_topic_missing = True
        found.warnings.append(f"topic {topic} does not exist (any more), so its consumers are not known")
    groups.update(_groups_in(seeds, topic))
    searched: set[str] = set()
    records = {(one.topic, one.offset_msg_id): one for one in seeds}
    places = [topic, *BROKERS_OWN]
    while True:  # a retry in the schedule topic may name a group that no other source has
        fresh = sorted(groups - searched)[:GROUPS_MAX]
        places += [name(group) for group in fresh for name in (retry_topic, dlq_topic)]
        places += [pop_retry_topic(topic, group) for group in fresh]
        more = await search(session, places, unique)
        _note(found, more.failures)
        records |= {(one.topic, one.offset_msg_id): one for one in more.items}
        searched.update(fresh)
        groups.update(_groups_in(records.values(), topic))
        if groups <= searched or len(searched) >= GROUPS_MAX:
            return oldest_first(one for one in records.values() if unique_id(one) == unique)
        places = []


def _groups_in(records: Iterable[MessageExt], topic: str) -> set[str]:
    """Groups whose retry topic or dead letters are named by these records."""
    found: set[str] = set()
    for one in records:
        if one.topic.startswith(RETRY_PREFIX):
            found.add(retry_group(one, topic))
        elif one.topic.startswith(DLQ_PREFIX):
            found.add(one.topic.removeprefix(DLQ_PREFIX))
        elif (waits_for := one.properties.get(REAL_TOPIC, "")).startswith((RETRY_PREFIX, DLQ_PREFIX)):
            found.add(waits_for.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX))
    return found


async def _delayed(session: Session, message: MessageExt, records: Sequence[MessageExt]) -> Delayed:
    """Its queue entry has the due time; it is delivered once its record exists or its level's progress is past it."""
    node = await session.node(message.broker_name)
    due_ms: int | None
    if message.topic == TIMER_TOPIC:
        due_ms = timer_due_ms(message.properties.get)
    else:
        entries = await session.request(queue_entries, node, SCHEDULE_TOPIC, message.queue_id, message.queue_offset, 1)
        due_ms = next(
            (one.tags_code for one in entries.queue_data if one.physical_offset == message.commit_log_offset), None
        )
    target = message.properties.get(REAL_TOPIC)
    for one in records:
        if one.topic == target and one.reconsume_times == message.reconsume_times and not _is_before(one, message):
            return Delayed(message, due_ms, is_delivered=True)
    progress = await session.request(all_delay_offsets, node)
    if message.topic == TIMER_TOPIC:
        timers = progress.timers
        is_done = None if timers is None or due_ms is None else timers.is_done(message.commit_log_offset, due_ms)
        return Delayed(message, due_ms, is_done)
    delivered = progress.offset_table.get(message.queue_id + 1)
    return Delayed(message, due_ms, None if delivered is None else delivered > message.queue_offset)


def _is_before(one: MessageExt, other: MessageExt) -> bool:
    return one.broker_name == other.broker_name and one.commit_log_offset < other.commit_log_offset


async def _passed(session: Session, retries: Sequence[MessageExt], topic: str | None) -> dict[str, bool | None]:
    """Whether each group has passed the newest of its retries."""
    newest = {retry_group(one, topic): one for one in retries}
    passed: dict[str, bool | None] = {}
    for group, one in newest.items():
        queue = MessageQueue(one.topic, one.broker_name, one.queue_id)
        offset = (await consumer_offsets(session, queue, [group])).responses.get(group)
        passed[group] = None if offset is None else offset > one.queue_offset
        if passed[group]:
            redelivery = (await in_flight_until(session, queue, one.queue_offset, [group])).responses.get(group)
            passed[group] = None if redelivery is None or redelivery.problem else redelivery.due_ms is None
    return passed


async def _expired(session: Session, identity: Identity) -> str | None:
    """Why a message of this id cannot be there any more, None when it could."""
    gathered = await session.each_node(await session.readable(), partial(session.request, runtime_info))
    runtimes = {node: parse(table) for node, table in gathered.responses.items()}
    place, made = identity.place, identity.made
    for node, found in runtimes.items():
        begin = found.log_begin_offset
        if place is not None and node.address == place.address and begin and begin > place.commit_log_offset:
            return f"the log of {node.name} begins at {begin}, and its place was {place.commit_log_offset}"
    oldest = [found.oldest_message_at_ms for found in runtimes.values() if found.oldest_message_at_ms]
    if made is not None and oldest and not gathered.failures and made.created_at_ms < min(oldest):
        return "it was made before the oldest message that is kept"
    return None


async def _nothing(
    session: Session, looked: _Looked, topic: str | None, now_ms: int, trace_topic: str
) -> MessageHistory:
    """The history of a message that no broker has: its trace may know it, or its id may show that it has expired."""
    identity = looked.identity
    facts = Facts(identity.text, now_ms, topic, searched=looked.searched, is_partial=bool(looked.failures))
    made_ms = identity.made.created_at_ms if identity.made else None
    facts.trace = await trace(session, identity.text, trace_topic, made_ms)
    facts.expired = await _expired(session, identity)
    sent = next((one for one in facts.trace.records if one.kind == "Pub"), None)
    if sent is not None:
        facts.topic, facts.unique_id = sent.topic, sent.msg_id
        if sent.offset_msg_id and facts.expired is None:
            facts.expired = await _expired(session, identify(sent.offset_msg_id, now_ms))
    return history_of(facts)
