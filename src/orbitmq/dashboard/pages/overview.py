"""The first page: the verdict in words, brokers with their curves, and the groups that are furthest behind."""

from __future__ import annotations

import asyncio

from orbitmq.admin.living import GROUPS_SHOWN, with_groups
from orbitmq.dashboard.asking import Asked, Shown, shows
from orbitmq.dashboard.pages.groups import may_be_behind

GROUPS_PATIENCE_SECONDS = 1.5
"""For the members of all groups to say what they do; the page says so where it takes longer."""


@shows("", "overview.html")
async def overview(asked: Asked) -> Shown:
    kept, groups = await asyncio.gather(asked.place.moment(), asked.place.verdicts(GROUPS_PATIENCE_SECONDS))
    now = with_groups(kept.value.items[0], None if groups is None else groups.value)
    behind = [group for group in now.groups if may_be_behind(group, is_partial=bool(kept.value.failures))]
    curves = {
        (broker.broker, broker.broker_id): (
            asked.place.history.of(f"in/{broker.broker}:{broker.broker_id}"),
            asked.place.history.of(f"out/{broker.broker}:{broker.broker_id}"),
            asked.place.history.of(f"delay/{broker.broker}:{broker.broker_id}"),
        )
        for broker in now.brokers
    }
    lags = {group.name: asked.place.history.of(f"lag/{group.name}") for group in behind[:GROUPS_SHOWN]}
    values = {"now": now, "behind": behind[:GROUPS_SHOWN], "behind_in_all": len(behind), "curves": curves, "lags": lags}
    values["waits"] = groups is None
    age_seconds = kept.age_seconds if groups is None else max(kept.age_seconds, groups.age_seconds)
    return Shown(values, kept.value, age_seconds=age_seconds)
