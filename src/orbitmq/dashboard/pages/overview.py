"""The first page: the verdict in words, brokers with their curves, and the groups that are furthest behind."""

from __future__ import annotations

from orbitmq.admin.living import GROUPS_SHOWN
from orbitmq.dashboard.asking import Asked, Shown, shows
from orbitmq.dashboard.pages.groups import may_be_behind


@shows("", "overview.html")
async def overview(asked: Asked) -> Shown:
    kept = await asked.place.moment()
    (now,) = kept.value.items
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
    return Shown(values, kept.value, age_seconds=kept.age_seconds)
