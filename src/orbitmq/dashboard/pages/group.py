"""One consumer group: its progress, members and queues, why nothing is consumed, its configuration and deletion.

Everything comes from one snapshot, that of "why is nothing consumed". Slow members do not delay the page: it shows the
data of the brokers first and the rest as soon as it arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from orbitmq.admin.clients import Subscription
from orbitmq.admin.diagnosis import diagnose
from orbitmq.admin.evidence import gather
from orbitmq.admin.group_evidence import GroupEvidence
from orbitmq.admin.groups import RULES, GroupRules, plan_alter, plan_delete
from orbitmq.admin.groups import rules as rules_at
from orbitmq.admin.in_flight_messages import in_flight_messages
from orbitmq.admin.plans import Plan
from orbitmq.admin.progress import GroupProgress, GroupQueue, QueueState, progress
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.admin.shares import by_client, by_topic
from orbitmq.admin.verdict import Finding, Severity
from orbitmq.dashboard import charts
from orbitmq.dashboard.clusters import Cached, DashboardCluster
from orbitmq.dashboard.formats import part, span
from orbitmq.dashboard.lists import ROWS, Column, listing
from orbitmq.dashboard.pages.groups import FLAGS, rules_of
from orbitmq.dashboard.pages.remedies import evidence_of, remedies
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import DashboardRequest, PageContent, plans, shows
from orbitmq.dashboard.words import N_, TITLES
from orbitmq.errors import BadField, NotFound

MEMBERS_WAIT_SECONDS = 2.5
"""How long to wait for the reports of members: a broker alone waits 10 s for one that does not respond."""
IN_FLIGHT_ROWS = 200
STATES = {
    QueueState.CAUGHT_UP: N_("caught up"),
    QueueState.BEHIND: N_("behind"),
    QueueState.NO_OFFSET: N_("no offset yet"),
    QueueState.OFFSET_AHEAD: N_("offset beyond the end"),
    QueueState.EXPIRED: N_("messages expired"),
    QueueState.BROADCAST: N_("broadcast"),
    QueueState.UNKNOWN: N_("unknown"),
}
QUEUES: tuple[Column[GroupQueue], ...] = (
    Column(N_("Topic"), "topic", lambda one: one.topic),
    Column(N_("Broker"), "broker", lambda one: one.broker_name),
    Column(N_("Queue"), "queue", lambda one: one.queue_id, is_number=True),
    Column(N_("Member"), "member", lambda one: one.client_id),
    Column(N_("Lag"), "lag", lambda one: one.lag_messages, is_number=True),
    Column(N_("Lag in time"), "delay", lambda one: one.delay_ms, is_number=True),
    Column(N_("Offset"), "offset", lambda one: one.consumer_offset, is_number=True),
    Column(N_("First offset"), is_number=True),
    Column(N_("End"), "end", lambda one: one.max_offset, is_number=True),
    Column(N_("Last consumed"), "consumed", lambda one: one.last_consumed_at_ms, is_number=True),
    Column(N_("State"), "state", lambda one: STATES[one.state]),
)


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """All data of one group."""

    evidence: GroupEvidence
    findings: list[Finding]
    """The worst first."""
    warnings: list[str]

    @property
    def found(self) -> Result[Finding]:
        return Result(self.findings, self.warnings, self.evidence.failures)

    @property
    def conflicts(self) -> list[Subscription]:
        return [one for one in self.evidence.subscriptions if one.conflict]


async def _looked(session: Session, group: str, cluster: DashboardCluster) -> GroupSnapshot:
    evidence, warnings = await gather(session, group, clock=cluster.clock, paces=cluster.paces)
    return GroupSnapshot(evidence, diagnose(evidence), warnings)


async def snapshot_soon(
    request: DashboardRequest, group: str, wait_seconds: float = MEMBERS_WAIT_SECONDS
) -> Cached[GroupSnapshot] | None:
    snapshot = partial(_looked, group=group, cluster=request.cluster)
    return await request.cluster.cached_soon(f"group {group}", snapshot, wait_seconds=wait_seconds)


def _known(snapshot: GroupSnapshot, group: str) -> None:
    """NotFound for an unknown group."""
    for finding in snapshot.findings:
        if finding.rule == "unknown":
            raise NotFound(f"there is no group {group}", snapshot.evidence.similar)


@shows("groups/{group}", "group.html")
async def group(request: DashboardRequest) -> PageContent:
    name = request.path["group"]
    cached, rules = await asyncio.gather(snapshot_soon(request, name), _rules(request.session, name))
    if cached is None:
        measured = await progress(request.session, name, clients=False)
        return PageContent(_values(request, measured.items[0], rules, None), measured, rules)
    snapshot = cached.value
    _known(snapshot, name)
    values = _values(request, snapshot.evidence.progress, rules, snapshot)
    return PageContent(values, snapshot.found, rules, age_seconds=cached.age_seconds)


def _values(
    request: DashboardRequest, one: GroupProgress, rules: Result[GroupRules], snapshot: GroupSnapshot | None
) -> dict[str, Any]:
    name = request.path["group"]
    topics = by_topic(one.queues)
    return {
        "name": name,
        "one": one,
        "snapshot": snapshot,
        "worst": None if snapshot is None else snapshot.findings[0],
        "remedies": [] if snapshot is None else remedies(snapshot.findings[0], name),
        "charts": charts.of_group(request.cluster.history, name, request.cluster.sample_ms),
        "troubled": {} if snapshot is None else _by_member(snapshot.findings),
        "titles": TITLES,
        "topics": topics,
        "highs": {  # of the axes, which all topics of the group share
            "lag": max((share.lag_by_queue.high for share in topics if share.lag_by_queue), default=0),
            "delay": max((share.delay_by_queue.high for share in topics if share.delay_by_queue), default=0),
        },
        "spans": span,
        "shares": by_client(one.queues),
        "members": [] if snapshot is None else snapshot.evidence.members,
        "shown_max": ROWS,
        "queues": listing(request, f"groups/{part(name)}", one.queues, QUEUES),
        "states": STATES,
        "rules": {rule: [getattr(at, rule) for at in rules.items] for rule in RULES},
        "brokers": [at.broker_name for at in rules.items],
        "flags": FLAGS,
    }


def _by_member(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """The findings about single members, such as one that is stuck: client id -> findings."""
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        named = finding.evidence.get("clientId"), finding.evidence.get("clients")
        clients = [named[0], *(named[1] if isinstance(named[1], list) else ())]
        for client in clients:
            if finding.severity in (Severity.CRITICAL, Severity.WARNING) and isinstance(client, str):
                found.setdefault(client, []).append(finding)
    return found


async def _rules(session: Session, name: str) -> Result[GroupRules]:
    try:
        return await rules_at(session, name)
    except NotFound:  # the group may still have offsets or members
        return Result()


@shows("groups/{group}/why", "why.html")
async def why(request: DashboardRequest) -> PageContent:
    name = request.path["group"]
    cached = await snapshot_soon(request, name)
    if cached is None:
        return PageContent({"name": name, "findings": None})
    snapshot = cached.value
    found = [(finding, evidence_of(finding), remedies(finding, name)) for finding in snapshot.findings]
    values = {"name": name, "findings": found}
    return PageContent(values, snapshot.found, age_seconds=cached.age_seconds)


@shows("groups/{group}/in-flight", "in_flight.html")
async def in_flight(request: DashboardRequest) -> PageContent:
    name = request.path["group"]
    found = await in_flight_messages(request.session, name, None, IN_FLIGHT_ROWS)
    return PageContent({"name": name, "messages": found.items, "rows_max": IN_FLIGHT_ROWS}, found)


@plans("groups/{group}/change", Role.ADMIN, back="groups/{group}")
async def change(request: DashboardRequest) -> Plan:
    given = rules_of(request.form)
    if not given:
        raise BadField("no setting to change", f"give one of {', '.join(RULES)}")
    return await plan_alter(request.session, request.path["group"], given)


@plans("groups/{group}/delete", Role.ADMIN, back="groups")
async def delete(request: DashboardRequest) -> Plan:
    form = request.form
    return await plan_delete(
        request.session,
        request.path["group"],
        offsets=form.flag("offsets"),
        topics=form.flag("topics"),
        force=form.flag("force"),
    )
