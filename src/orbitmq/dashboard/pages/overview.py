"""The first page: the verdict, brokers with their curves, and the groups with the largest lag."""

from __future__ import annotations

import asyncio

from orbitmq.admin.cluster_view import GROUPS_SHOWN, with_groups
from orbitmq.dashboard.pages.groups import may_be_behind
from orbitmq.dashboard.routes import DashboardRequest, PageContent, shows

VERDICTS_WAIT_SECONDS = 1.5
"""How long to wait for the verdicts of groups, which need a request to each member; without them the page says so."""


@shows("", "overview.html")
async def overview(request: DashboardRequest) -> PageContent:
    cached, groups = await asyncio.gather(request.cluster.moment(), request.cluster.verdicts(VERDICTS_WAIT_SECONDS))
    now = with_groups(cached.value.items[0], None if groups is None else groups.value)
    behind = [group for group in now.groups if may_be_behind(group, is_partial=bool(cached.value.failures))]
    curves = {
        (broker.broker, broker.broker_id): (
            request.cluster.history.of(f"in/{broker.broker}:{broker.broker_id}"),
            request.cluster.history.of(f"out/{broker.broker}:{broker.broker_id}"),
            request.cluster.history.of(f"delay/{broker.broker}:{broker.broker_id}"),
        )
        for broker in now.brokers
    }
    lags = {group.name: request.cluster.history.of(f"lag/{group.name}") for group in behind[:GROUPS_SHOWN]}
    values = {"now": now, "behind": behind[:GROUPS_SHOWN], "behind_in_all": len(behind), "curves": curves, "lags": lags}
    values["waits"] = groups is None
    age_seconds = cached.age_seconds if groups is None else max(cached.age_seconds, groups.age_seconds)
    return PageContent(values, cached.value, age_seconds=age_seconds)
