"""One consumer group: how far it is, who has what, why it stands still, and its rules, to be changed and deleted.

Everything comes from one look, that of "why is nothing consumed". Members that take long to answer do not hold the page
up: it shows what brokers say, and the rest when it is there.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

from orbitmq.admin.answers import Found
from orbitmq.admin.clients import Subscription
from orbitmq.admin.diagnosis import diagnose
from orbitmq.admin.evidence import gather
from orbitmq.admin.group_evidence import GroupEvidence
from orbitmq.admin.groups import RULES, GroupRules, plan_alter, plan_delete
from orbitmq.admin.groups import rules as rules_at
from orbitmq.admin.plans import Plan
from orbitmq.admin.progress import GroupProgress, GroupQueue, QueueState, progress
from orbitmq.admin.session import Session
from orbitmq.admin.shares import by_client, by_topic
from orbitmq.admin.verdict import Finding
from orbitmq.dashboard.asking import Asked, Shown, plans, shows
from orbitmq.dashboard.lists import ROWS, Column, listing
from orbitmq.dashboard.pages.groups import FLAGS, rules_of
from orbitmq.dashboard.pages.remedies import figures_of, remedies
from orbitmq.dashboard.places import Kept, Place
from orbitmq.dashboard.rendering import part
from orbitmq.dashboard.roles import Role
from orbitmq.errors import BadField, NotFound

PATIENCE_SECONDS = 2.5
"""For members to say what they have: a broker alone waits 10 s for one that is silent."""
STATES = {
    QueueState.CAUGHT_UP: "caught up",
    QueueState.BEHIND: "behind",
    QueueState.NO_OFFSET: "no offset yet",
    QueueState.OFFSET_AHEAD: "offset beyond the end",
    QueueState.EXPIRED: "messages expired",
    QueueState.BROADCAST: "broadcast",
    QueueState.UNKNOWN: "unknown",
}
QUEUES: tuple[Column[GroupQueue], ...] = (
    Column("Topic", "topic", lambda one: one.topic),
    Column("Broker", "broker", lambda one: one.broker_name),
    Column("Queue", "queue", lambda one: one.queue_id, is_number=True),
    Column("Member", "member", lambda one: one.client_id),
    Column("Lag", "lag", lambda one: one.lag_messages, is_number=True),
    Column("Lag in time", "delay", lambda one: one.delay_ms, is_number=True),
    Column("Offset", "offset", lambda one: one.consumer_offset, is_number=True),
    Column("First offset", is_number=True),
    Column("End", "end", lambda one: one.max_offset, is_number=True),
    Column("Last consumed", "consumed", lambda one: one.last_consumed_at_ms, is_number=True),
    Column("State", "state", lambda one: STATES[one.state]),
)


@dataclass(frozen=True, slots=True)
class Look:
    """All there is to see of one group."""

    evidence: GroupEvidence
    findings: list[Finding]
    """The worst first."""
    warnings: list[str]

    @property
    def found(self) -> Found[Finding]:
        return Found(self.findings, self.warnings, self.evidence.failures)

    @property
    def conflicts(self) -> list[Subscription]:
        return [one for one in self.evidence.subscriptions if one.conflict]


async def _looked(session: Session, group: str, place: Place) -> Look:
    evidence, warnings = await gather(session, group, clock=place.clock, paces=place.paces)
    return Look(evidence, diagnose(evidence), warnings)


async def _soon(asked: Asked, group: str) -> Kept[Look] | None:
    look = partial(_looked, group=group, place=asked.place)
    return await asked.place.soon(f"group {group}", look, patience_seconds=PATIENCE_SECONDS)


def _known(look: Look, group: str) -> None:
    """NotFound for a group that nobody knows."""
    for finding in look.findings:
        if finding.rule == "unknown":
            raise NotFound(f"there is no group {group}", look.evidence.similar)


@shows("groups/{group}", "group.html")
async def group(asked: Asked) -> Shown:
    name = asked.path["group"]
    kept, rules = await asyncio.gather(_soon(asked, name), _rules(asked.session, name))
    if kept is None:
        measured = await progress(asked.session, name, clients=False)
        return Shown(_values(asked, measured.items[0], rules, None), measured, rules)
    look = kept.value
    _known(look, name)
    values = _values(asked, look.evidence.progress, rules, look)
    return Shown(values, look.found, rules, age_seconds=kept.age_seconds)


def _values(asked: Asked, one: GroupProgress, rules: Found[GroupRules], look: Look | None) -> dict[str, Any]:
    name = asked.path["group"]
    return {
        "name": name,
        "one": one,
        "look": look,
        "worst": None if look is None else look.findings[0],
        "remedies": [] if look is None else remedies(look.findings[0], name),
        "curve": asked.place.history.of(f"lag/{name}"),
        "topics": by_topic(one.queues),
        "shares": by_client(one.queues),
        "members": [] if look is None else look.evidence.members,
        "shown_max": ROWS,
        "queues": listing(asked, f"groups/{part(name)}", one.queues, QUEUES),
        "states": STATES,
        "rules": {rule: [getattr(at, rule) for at in rules.items] for rule in RULES},
        "brokers": [at.broker_name for at in rules.items],
        "flags": FLAGS,
    }


async def _rules(session: Session, name: str) -> Found[GroupRules]:
    try:
        return await rules_at(session, name)
    except NotFound:  # it may have offsets or members all the same
        return Found()


@shows("groups/{group}/why", "why.html")
async def why(asked: Asked) -> Shown:
    name = asked.path["group"]
    kept = await _soon(asked, name)
    if kept is None:
        return Shown({"name": name, "findings": None})
    look = kept.value
    found = [(finding, figures_of(finding), remedies(finding, name)) for finding in look.findings]
    values = {"name": name, "findings": found}
    return Shown(values, look.found, age_seconds=kept.age_seconds)


@plans("groups/{group}/change", Role.ADMIN, back="groups/{group}")
async def change(asked: Asked) -> Plan:
    given = rules_of(asked.form)
    if not given:
        raise BadField("no setting to change is given", f"give one of {', '.join(RULES)}")
    return await plan_alter(asked.session, asked.path["group"], given)


@plans("groups/{group}/delete", Role.ADMIN, back="groups")
async def delete(asked: Asked) -> Plan:
    form = asked.form
    return await plan_delete(
        asked.session,
        asked.path["group"],
        offsets=form.flag("offsets"),
        topics=form.flag("topics"),
        force=form.flag("force"),
    )
