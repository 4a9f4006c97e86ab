"""The verdict on every consumer group, as `group why` has it, as a part of the verdict on the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orbitmq.admin.diagnosis import diagnose
from orbitmq.admin.evidence import WATCH_SECONDS, SharedResponses, gather
from orbitmq.admin.groups import GroupSummary, groups
from orbitmq.admin.pace import Paces
from orbitmq.admin.results import Failure, Result
from orbitmq.admin.session import Session
from orbitmq.admin.verdict import Finding, Severity
from orbitmq.errors import OrbitMQError
from orbitmq.runtime.clock import Clock

RULE = "groups"
"""The rule of a finding about a group in the verdict on its cluster."""
GROUPS_MAX = 200
"""Groups that are judged, those with the longest lag first: each costs some twenty requests. The verdict says that it
leaves out the others.
"""
AT_ONCE = 10
"""The requests about one group run concurrently; more groups at a time would only wait for one another."""


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """A group and its worst finding."""

    group: GroupSummary
    worst: Finding

    @property
    def is_well(self) -> bool:
        return self.worst.severity is Severity.WELL


@dataclass(slots=True)
class GroupVerdicts:
    """Of all groups at one time."""

    items: list[GroupVerdict] = field(default_factory=list)
    left_out: int = 0
    """Groups that were not judged."""
    failures: list[Failure] = field(default_factory=list)


async def group_verdicts(
    session: Session,
    *,
    clock: Clock | None = None,
    paces: Paces | None = None,
    watch_seconds: float = WATCH_SECONDS,
    groups_max: int = GROUPS_MAX,
    known: Result[GroupSummary] | None = None,
) -> GroupVerdicts:
    """Judge every group except system groups. `paces` keeps earlier progress. If it is too early for a verdict, judge
    the group again after `watch_seconds`, unless that is 0. `known`: the groups with their lag; None to request them.
    """
    paces = paces or Paces()
    found = known or await groups(session, lag=True)
    rows = sorted(found.items, key=lambda row: (-_weight(row), row.name))
    items = await _each(session, rows[:groups_max], clock, paces)
    undecided = [one.group for one in items if one.worst.severity is Severity.UNKNOWN]
    if watch_seconds and undecided:
        await asyncio.sleep(watch_seconds)
        again = {one.group.name: one for one in await _each(session, undecided, clock, paces)}
        items = [again.get(one.group.name, one) for one in items]
    return GroupVerdicts(items, len(rows) - len(items), found.failures)


def _weight(row: GroupSummary) -> int:
    return (row.lag_messages or row.known_lag_messages or 0) + (row.retry_lag_messages or 0)


async def _each(
    session: Session, rows: Sequence[GroupSummary], clock: Clock | None, paces: Paces
) -> list[GroupVerdict]:
    common, at_once = SharedResponses(session), asyncio.Semaphore(AT_ONCE)

    async def judged(row: GroupSummary) -> GroupVerdict:
        async with at_once:
            try:
                evidence, _ = await gather(session, row.name, clock=clock, paces=paces, common=common)
            except OrbitMQError as error:
                text, remedy = f"{row.name} could not be judged: {error}", f"orbitmq group why {row.name}"
                return GroupVerdict(row, Finding(Severity.UNKNOWN, "no-answer", row.name, text, remedy))
        return GroupVerdict(row, diagnose(evidence)[0])

    return list(await asyncio.gather(*map(judged, rows)))


def _finding(worst: Finding) -> Finding:
    """The worst finding of a group, as a finding about its cluster."""
    name, text = worst.subject, worst.message
    message = text if name in text else f"{name}: {text}"
    return Finding(worst.severity, RULE, name, message, f"orbitmq group why {name}", worst.evidence)


def findings_of(verdicts: GroupVerdicts | None, broker_names: Sequence[str] | None = None) -> Iterator[Finding]:
    """What groups contribute to the verdict of a cluster with these brokers; None stands for all brokers. A group of
    which only offsets are left belongs to every cluster. `verdicts` is None until the groups have been judged."""
    if verdicts is None:
        text = "consumer groups have not been judged yet"
        yield Finding(Severity.UNKNOWN, RULE, "groups", text, "try again in a moment")
        return
    for one in verdicts.items:
        at = one.group.brokers
        if not one.is_well and (broker_names is None or not at or set(at) & set(broker_names)):
            yield _finding(one.worst)
    if verdicts.left_out:
        text = f"{verdicts.left_out} groups were not judged: only the {len(verdicts.items)} with the longest lag were"
        yield Finding(Severity.UNKNOWN, RULE, "groups", text, "orbitmq group why GROUP")
