"""The verdict of every consumer group, as `group why` has it, for those who judge a cluster as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orbitmq.admin.answers import Failure
from orbitmq.admin.diagnosis import diagnose
from orbitmq.admin.evidence import WATCH_SECONDS, Common, gather
from orbitmq.admin.groups import Group, groups
from orbitmq.admin.observed import Finding as Reason
from orbitmq.admin.pace import Paces
from orbitmq.admin.session import Session
from orbitmq.admin.verdict import Finding, Severity
from orbitmq.errors import OrbitMQError
from orbitmq.runtime.clock import Clock

RULE = "groups"
"""What a finding about a group is called in the verdict of its cluster."""
GROUPS_MAX = 200
"""Groups that are looked at, the furthest behind first: each costs some twenty questions. Of the others nothing is
known, and the verdict says so.
"""
AT_ONCE = 10
"""A group has its questions answered together; more groups at a time would only wait for one another."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One group and the worst that was found."""

    group: Group
    worst: Reason

    @property
    def is_well(self) -> bool:
        return self.worst.severity is Severity.WELL


@dataclass(slots=True)
class Verdicts:
    """Of all groups at one time."""

    items: list[Judged] = field(default_factory=list)
    left_out: int = 0
    """Groups that were not looked at."""
    failures: list[Failure] = field(default_factory=list)


async def group_verdicts(
    session: Session,
    *,
    clock: Clock | None = None,
    paces: Paces | None = None,
    watch_seconds: float = WATCH_SECONDS,
    groups_max: int = GROUPS_MAX,
) -> Verdicts:
    """Every group but those of the system. `paces` has what earlier looks have told; groups of which it is too early to
    tell are looked at once more after `watch_seconds`, unless that is 0.
    """
    paces = paces or Paces()
    found = await groups(session, lag=True)
    rows = sorted(found.items, key=lambda row: (-_weight(row), row.name))
    items = await _each(session, rows[:groups_max], clock, paces)
    undecided = [one.group for one in items if one.worst.severity is Severity.UNKNOWN]
    if watch_seconds and undecided:
        await asyncio.sleep(watch_seconds)
        again = {one.group.name: one for one in await _each(session, undecided, clock, paces)}
        items = [again.get(one.group.name, one) for one in items]
    return Verdicts(items, len(rows) - len(items), found.failures)


def _weight(row: Group) -> int:
    return (row.lag_messages or row.known_lag_messages or 0) + (row.retry_lag_messages or 0)


async def _each(session: Session, rows: Sequence[Group], clock: Clock | None, paces: Paces) -> list[Judged]:
    common, at_once = Common(session), asyncio.Semaphore(AT_ONCE)

    async def judged(row: Group) -> Judged:
        async with at_once:
            try:
                evidence, _ = await gather(session, row.name, clock=clock, paces=paces, common=common)
            except OrbitMQError as error:
                text = f"{row.name} could not be looked at: {error}"
                return Judged(row, Reason(Severity.UNKNOWN, "no-answer", text, {}, f"orbitmq group why {row.name}"))
        return Judged(row, diagnose(evidence)[0])

    return list(await asyncio.gather(*map(judged, rows)))


def findings_of(verdicts: Verdicts | None, broker_names: Sequence[str] | None = None) -> Iterator[Finding]:
    """What groups add to the verdict of a cluster with these brokers, None for all there are. A group that only has
    left offsets belongs to every cluster. `verdicts` is None while nobody has looked.
    """
    if verdicts is None:
        text = "consumer groups have not been looked at yet"
        yield Finding(Severity.UNKNOWN, RULE, "groups", text, "look again in a moment")
        return
    for one in verdicts.items:
        at = one.group.brokers
        if not one.is_well and (broker_names is None or not at or set(at) & set(broker_names)):
            name, worst = one.group.name, one.worst
            text = worst.sentence if name in worst.sentence else f"{name}: {worst.sentence}"
            yield Finding(worst.severity, RULE, name, text, f"orbitmq group why {name}")
    if verdicts.left_out:
        text = f"{verdicts.left_out} groups were not looked at: only the {len(verdicts.items)} furthest behind were"
        yield Finding(Severity.UNKNOWN, RULE, "groups", text, "orbitmq group why GROUP")
