"""The cluster at one moment, as `orbitmq top` and the first page show it: verdict, brokers, groups that are behind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from orbitmq.admin import cluster, groups
from orbitmq.admin.cluster import ClusterBroker, Overview
from orbitmq.admin.group_verdicts import GroupVerdicts
from orbitmq.admin.groups import GroupSummary, Sums
from orbitmq.admin.results import Failure, Result
from orbitmq.admin.session import Session

GROUPS_SHOWN = 20
"""As many as fit on a screen; those with the longest lag."""


class ClusterView(Struct, frozen=True, rename="camel"):
    """The cluster at one moment. Values of a broker that does not respond are None, and the broker is named."""

    clusters: list[Overview]
    brokers: list[ClusterBroker]
    groups: list[GroupSummary]
    """The furthest behind first; groups of the system are not among them."""
    groups_in_all: int


async def moment(session: Session, *, shown: int | None = GROUPS_SHOWN) -> Result[ClusterView]:
    """Query all nodes once; `shown` groups, None for all. ConnectError if no name server responds.

    The verdict is that of the brokers; `with_groups` adds the groups, which take longer.
    """
    found, _ = await moment_and_sums(session, shown=shown)
    return found


async def moment_and_sums(
    session: Session, *, shown: int | None = GROUPS_SHOWN
) -> tuple[Result[ClusterView], Mapping[str, Sums]]:
    """The same, and what the brokers that responded sum up, by group and topic."""
    overviews, members, (found, sums) = await asyncio.gather(
        cluster.broker_overviews(session), cluster.listed(session), groups.groups_and_sums(session)
    )
    behind = sorted(found.items, key=lambda group: (-(group.lag_messages or group.known_lag_messages or 0), group.name))
    one = ClusterView(overviews.items, members.items, behind[:shown], len(found.items))
    warnings = list(dict.fromkeys([*overviews.warnings, *members.warnings, *found.warnings]))
    return Result([one], warnings, _each_once([*overviews.failures, *members.failures, *found.failures])), sums


def with_groups(one: ClusterView, groups: GroupVerdicts | None) -> ClusterView:
    """The view with a verdict no better than those of the groups; None while no group has been judged."""

    def names(of: str) -> list[str]:
        return [broker.broker for broker in one.brokers if broker.cluster == of]

    clusters = [cluster.with_groups(overview, groups, names(overview.cluster)) for overview in one.clusters]
    return msgspec.structs.replace(one, clusters=clusters)


def _each_once(failures: list[Failure]) -> list[Failure]:
    """One line per node, however many requests it did not respond to."""
    return list({failure.target: failure for failure in failures}.values())
