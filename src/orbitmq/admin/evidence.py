"""What is looked at to answer why a group does not consume: everything `diagnosis` has rules for, gathered in one look.

A broker or client that does not answer becomes evidence itself. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from orbitmq.admin.answers import Failure, Found, Gathered
from orbitmq.admin.browsing import pull_header
from orbitmq.admin.clients import Membership, Running, compared, membership, running, running_of
from orbitmq.admin.diagnosis import Evidence, Finding, TopicPlace, diagnose, stuck
from orbitmq.admin.groups import GroupRules, rules
from orbitmq.admin.offsets import show
from orbitmq.admin.progress import QueueLag, measured
from orbitmq.admin.session import Node, Session
from orbitmq.admin.verdict import Severity
from orbitmq.errors import NotFound
from orbitmq.message.config import SUBSCRIBE_ALL, TAG
from orbitmq.message.model import MessageQueue
from orbitmq.message.properties import TAGS, decode_properties
from orbitmq.message.topics import RETRY_PREFIX
from orbitmq.message.unit import decode_units
from orbitmq.operations import pulling
from orbitmq.operations.settings import broker_settings
from orbitmq.runtime.clock import Clock, SystemClock
from orbitmq.wire.bodies import TopicRouteData

SAMPLED_QUEUES, SAMPLED_MESSAGES = 8, 16
"""So many queues of a topic, and of each its newest messages, tell which tags are produced."""
TOPICS_MAX = 100
"""A group that consumes more is looked at in part, and the answer says so."""


async def why(session: Session, group: str, *, clock: Clock | None = None) -> Found[Finding]:
    """What speaks against the group consuming, the worst first. `check_failed` when something critical does."""
    evidence, warnings = await gather(session, group, clock=clock)
    found = Found(diagnose(evidence), warnings, list(evidence.failures))
    found.check_failed = any(one.severity is Severity.CRITICAL for one in found.items)
    return found


async def gather(session: Session, group: str, *, clock: Clock | None = None) -> tuple[Evidence, list[str]]:
    """All evidence, and what a reader must know of its limits."""
    clock = clock or SystemClock()
    who = await membership(session, group)
    measure, infos = await measured(session, who, clock=clock)
    evidence = Evidence(
        group, measure.items[0], clock.now_ms(), kind=who.kind, start=who.start, members=who.members,
        reports=[running_of(client, info) for client, info in infos.items()],
        subscriptions=compared(group, {client: info.subscription_set for client, info in infos.items()}),
        failures=list(measure.failures),
    )  # fmt: skip
    evidence.rules, evidence.similar = await _rules(session, group, evidence.failures)
    warnings: list[str] = []
    wanted = {topic for topic in who.subscribed if not topic.startswith(RETRY_PREFIX)}
    topics = sorted(wanted | {one.topic for one in evidence.own})
    if len(topics) > TOPICS_MAX:
        warnings.append(f"{group} consumes {len(topics)} topics; the first {TOPICS_MAX} were looked at")
    await _add_topics(session, evidence, topics[:TOPICS_MAX], wanted)
    if who.online:
        evidence.unsubscribed = await _unsubscribed(session, group, wanted, evidence.failures)
    perms = await session.each_node(await session.readable(), lambda node: _permission(session, node))
    evidence.broker_perms = {node.name: perm for node, perm in perms.answers.items()}
    _add(evidence.failures, perms.failures)
    await _add_tags(session, evidence)
    await _add_stacks(session, who, evidence)
    return evidence, warnings


def _add(failures: list[Failure], more: Iterable[Failure]) -> None:
    known = {one.target for one in failures}
    failures += [one for one in more if one.target not in known]


async def _rules(session: Session, group: str, failures: list[Failure]) -> tuple[list[GroupRules], str | None]:
    try:
        found = await rules(session, group)
    except NotFound as error:
        return [], error.hint
    _add(failures, found.failures)
    return found.items, None


async def _add_topics(session: Session, evidence: Evidence, topics: Sequence[str], wanted: Collection[str]) -> None:
    async def route(topic: str) -> TopicRouteData | None:
        try:
            return await session.route(topic)
        except NotFound:
            return None

    came: Gathered[str, TopicRouteData | None] = await session.each({topic: topic for topic in topics}, route)
    _add(evidence.failures, came.failures)
    for topic, found in came.answers.items():
        if found is not None:
            evidence.places += [
                TopicPlace(topic, one.broker_name, one.perm, one.read_queues, one.write_queues)
                for one in found.queue_datas
            ]
        elif topic in wanted:
            evidence.missing_topics.append(topic)


async def _unsubscribed(
    session: Session, group: str, wanted: Collection[str], failures: list[Failure]
) -> dict[str, int]:
    try:
        found = await show(session, group)
    except NotFound:
        return {}
    _add(failures, found.failures)
    behind: dict[str, int] = {}
    for row in found.items:
        if row.topic not in wanted and not row.topic.startswith(RETRY_PREFIX):
            behind[row.topic] = behind.get(row.topic, 0) + (row.lag_messages or 0)
    return behind


async def _permission(session: Session, node: Node) -> int:
    settings = await broker_settings(session.remoting, node.address, timeout_ms=session.timeout_ms)
    text = settings.values.get("brokerPermission", "6")
    return int(text) if text.isdecimal() else 6


async def _add_tags(session: Session, evidence: Evidence) -> None:
    """The tags of the newest messages, where a subscription wants some only."""
    picky = {
        one.topic
        for one in evidence.subscriptions
        if one.expression_type == TAG and one.expression not in (None, "", SUBSCRIBE_ALL)
    }
    for topic in sorted(picky):
        queues = [one for one in evidence.own if one.topic == topic and (one.max_offset or 0) > (one.min_offset or 0)]
        came = await session.each(
            {queue: f"{topic} on {queue.broker_name}" for queue in map(_at, queues[:SAMPLED_QUEUES])},
            lambda queue: _newest_tags(session, queue, evidence.own),
        )
        evidence.tags[topic] = [tag for tags in came.answers.values() for tag in tags]
        _add(evidence.failures, came.failures)


def _at(one: QueueLag) -> MessageQueue:
    return MessageQueue(one.topic, one.broker_name, one.queue_id)


async def _newest_tags(session: Session, queue: MessageQueue, known: Sequence[QueueLag]) -> list[str]:
    node = await session.node(queue.broker_name)
    one = next(one for one in known if _at(one) == queue)
    first = max(one.min_offset or 0, (one.max_offset or 0) - SAMPLED_MESSAGES)
    header = pull_header(queue, first, SAMPLED_MESSAGES)
    reply = await pulling.pull(session.remoting, node.address, header, timeout_ms=session.timeout_ms)
    return [decode_properties(unit.properties).get(TAGS, "") for unit in decode_units(reply.body)]


async def _add_stacks(session: Session, who: Membership, evidence: Evidence) -> None:
    """Members whose listener seems stuck are asked once more, for the stacks of their threads."""
    suspects = {str(one.evidence["clientId"]) for one in stuck(evidence)}
    if not suspects:
        return
    came = await running(session, who, suspects, stacks=True)
    told: dict[str, Running] = {client: running_of(client, info) for client, info in came.answers.items()}
    evidence.reports = [told.get(one.client_id, one) for one in evidence.reports]
    _add(evidence.failures, came.failures)
