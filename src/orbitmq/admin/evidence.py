"""Collects the evidence for why a group does not consume: everything that the rules of `diagnosis` need.

A broker or client that does not respond is evidence itself. Decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence

import msgspec

from orbitmq.admin.clients import ConsumerReport, GroupMembership, compared, membership, running, running_of
from orbitmq.admin.consumption import stuck
from orbitmq.admin.diagnosis import diagnose
from orbitmq.admin.group_evidence import GroupEvidence, TopicPlace
from orbitmq.admin.groups import GroupRules, every_rules, rules_in
from orbitmq.admin.offsets import show
from orbitmq.admin.pace import Paces
from orbitmq.admin.progress import GroupQueue, drain_seconds, measured
from orbitmq.admin.results import Failure, Gathered, Result
from orbitmq.admin.scan import pull_header
from orbitmq.admin.session import Node, Session
from orbitmq.admin.verdict import Finding, Severity, worst
from orbitmq.errors import NotFound
from orbitmq.message.config import SUBSCRIBE_ALL, TAG, SubscriptionGroup
from orbitmq.message.model import MessageQueue
from orbitmq.message.properties import TAGS, decode_properties
from orbitmq.message.topics import RETRY_PREFIX
from orbitmq.message.unit import decode_units
from orbitmq.operations import pulls
from orbitmq.operations.settings import broker_settings
from orbitmq.runtime.clock import Clock, SystemClock
from orbitmq.wire.bodies import TopicRouteData

SAMPLED_QUEUES, SAMPLED_MESSAGES = 8, 16
"""The tags of the newest messages are sampled: queues per topic, messages per queue."""
WATCH_SECONDS = 6.0
"""Between two samples of one command: consumers commit every 5 s."""
TOPICS_MAX = 100
"""Further topics of a group are left out, with a warning."""


class SharedResponses:
    """Responses that are the same for all groups, requested once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rules: asyncio.Task[Gathered[Node, dict[str, SubscriptionGroup]]] | None = None
        self._permissions: asyncio.Task[Gathered[Node, int]] | None = None

    async def rules(self) -> Gathered[Node, dict[str, SubscriptionGroup]]:
        if self._rules is None:
            self._rules = asyncio.create_task(every_rules(self._session))
        return await self._rules

    async def permissions(self) -> Gathered[Node, int]:
        """The `brokerPermission` of each broker."""
        if self._permissions is None:
            self._permissions = asyncio.create_task(self._request_permissions())
        return await self._permissions

    async def _request_permissions(self) -> Gathered[Node, int]:
        nodes = await self._session.readable()
        return await self._session.each_node(nodes, lambda node: _permission(self._session, node))


async def why(
    session: Session, group: str, *, clock: Clock | None = None, paces: Paces | None = None, watch_seconds: float = 0
) -> Result[Finding]:
    """Findings on why the group may not consume, the worst first. `check_failed` if one is critical.

    `paces` has earlier samples. If the first sample is not enough for a verdict, a second one is taken after
    `watch_seconds`.
    """
    paces = paces or Paces()
    evidence, warnings = await gather(session, group, clock=clock, paces=paces)
    findings = diagnose(evidence)
    if watch_seconds and findings[0].severity is Severity.UNKNOWN:
        await asyncio.sleep(watch_seconds)
        evidence, warnings = await gather(session, group, clock=clock, paces=paces)
        findings = diagnose(evidence)
    found = Result(findings, warnings, list(evidence.failures))
    found.check_failed = worst(found.items) is Severity.CRITICAL
    return found


async def gather(
    session: Session,
    group: str,
    *,
    clock: Clock | None = None,
    paces: Paces | None = None,
    common: SharedResponses | None = None,
) -> tuple[GroupEvidence, list[str]]:
    """All evidence, and warnings about its limits. `paces` keeps this sample for the next one; `common` saves requests
    when several groups are examined.
    """
    clock, common = clock or SystemClock(), common or SharedResponses(session)
    who = await membership(session, group)
    measure, infos = await measured(session, who, clock=clock)
    evidence = GroupEvidence(
        group, measure.items[0], clock.now_ms(), kind=who.kind, start=who.start, members=who.members,
        reports=[running_of(client, info) for client, info in infos.items()],
        subscriptions=compared(group, {client: info.subscription_set for client, info in infos.items()}),
        failures=list(measure.failures),
    )  # fmt: skip
    if paces is not None:
        _add_pace(evidence, paces)
    evidence.rules, evidence.similar = await _rules(common, group, evidence.failures)
    warnings: list[str] = []
    wanted = {topic for topic in who.subscribed if not topic.startswith(RETRY_PREFIX)}
    topics = sorted(wanted | {one.topic for one in evidence.own})
    if len(topics) > TOPICS_MAX:
        warnings.append(f"{group} consumes {len(topics)} topics; the first {TOPICS_MAX} were read")
    await _add_topics(session, evidence, topics[:TOPICS_MAX], wanted)
    if who.online:
        evidence.unsubscribed = await _unsubscribed(session, group, wanted, evidence.failures)
    perms = await common.permissions()
    evidence.broker_perms = {node.name: perm for node, perm in perms.responses.items()}
    _add(evidence.failures, perms.failures)
    await _add_tags(session, evidence)
    await _add_stacks(session, who, evidence)
    return evidence, warnings


def _add_pace(evidence: GroupEvidence, paces: Paces) -> None:
    """If no member reports its consume rate, take it from the offsets committed since earlier samples."""
    evidence.pace = paces.seen(evidence.progress, evidence.now_ms)
    one = evidence.progress
    committed = evidence.pace.committed_tps
    if one.consume_tps is None and one.lag_messages is not None and committed is not None:
        drain = drain_seconds(one.lag_messages, committed, one.produce_tps)
        evidence.progress = msgspec.structs.replace(one, consume_tps=committed, drain_seconds=drain)


def _add(failures: list[Failure], more: Iterable[Failure]) -> None:
    known = {one.target for one in failures}
    failures += [one for one in more if one.target not in known]


async def _rules(common: SharedResponses, group: str, failures: list[Failure]) -> tuple[list[GroupRules], str | None]:
    try:
        found = rules_in(await common.rules(), group)
    except NotFound as error:
        return [], error.hint
    _add(failures, found.failures)
    return found.items, None


async def _add_topics(
    session: Session, evidence: GroupEvidence, topics: Sequence[str], wanted: Collection[str]
) -> None:
    async def route(topic: str) -> TopicRouteData | None:
        try:
            return await session.route(topic)
        except NotFound as error:
            evidence.topic_hints[topic] = error.hint or ""
            return None

    gathered: Gathered[str, TopicRouteData | None] = await session.each({topic: topic for topic in topics}, route)
    _add(evidence.failures, gathered.failures)
    for topic, found in gathered.responses.items():
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
    settings = await session.request(broker_settings, node)
    text = settings.values.get("brokerPermission", "6")
    return int(text) if text.isdecimal() else 6


async def _add_tags(session: Session, evidence: GroupEvidence) -> None:
    """The tags of the newest messages, for subscriptions that filter by tag."""
    picky = {
        one.topic
        for one in evidence.subscriptions
        if one.expression_type == TAG and one.expression not in (None, "", SUBSCRIBE_ALL)
    }
    for topic in sorted(picky):
        queues = [one for one in evidence.own if one.topic == topic and (one.max_offset or 0) > (one.min_offset or 0)]
        gathered = await session.each(
            {queue: f"{topic} on {queue.broker_name}" for queue in map(_at, queues[:SAMPLED_QUEUES])},
            lambda queue: _newest_tags(session, queue, evidence.own),
        )
        evidence.tags[topic] = [tag for tags in gathered.responses.values() for tag in tags]
        _add(evidence.failures, gathered.failures)


def _at(one: GroupQueue) -> MessageQueue:
    return MessageQueue(one.topic, one.broker_name, one.queue_id)


async def _newest_tags(session: Session, queue: MessageQueue, known: Sequence[GroupQueue]) -> list[str]:
    node = await session.node(queue.broker_name)
    one = next(one for one in known if _at(one) == queue)
    first = max(one.min_offset or 0, (one.max_offset or 0) - SAMPLED_MESSAGES)
    header = pull_header(queue, first, SAMPLED_MESSAGES)
    reply = await session.request(pulls.pull, node, header)
    return [decode_properties(unit.properties).get(TAGS, "") for unit in decode_units(reply.body)]


async def _add_stacks(session: Session, who: GroupMembership, evidence: GroupEvidence) -> None:
    """Request thread stacks from members whose listener seems stuck."""
    suspects = {str(one.evidence["clientId"]) for one in stuck(evidence)}
    if not suspects:
        return
    gathered = await running(session, who, suspects, stacks=True)
    reports: dict[str, ConsumerReport] = {
        client: running_of(client, info) for client, info in gathered.responses.items()
    }
    evidence.reports = [reports.get(one.client_id, one) for one in evidence.reports]
    _add(evidence.failures, gathered.failures)
