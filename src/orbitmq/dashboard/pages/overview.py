"""The first page: the verdict, charts of the last hour, the groups that need attention, and brokers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from orbitmq.admin.cluster_view import GROUPS_SHOWN, with_groups
from orbitmq.admin.group_verdicts import GroupVerdicts
from orbitmq.admin.groups import GroupSummary
from orbitmq.admin.verdict import ORDER, Finding, Severity
from orbitmq.dashboard import charts
from orbitmq.dashboard.clusters import of_group_key
from orbitmq.dashboard.pages.groups import least_lag, may_be_behind
from orbitmq.dashboard.routes import DashboardRequest, PageContent, shows

MOMENT_WAIT_SECONDS = 0.25
"""How long the page waits for the brokers when it knows nothing yet; then it says so and updates itself."""
VERDICTS_WAIT_SECONDS = 0.1
"""How long it waits then for the verdicts of groups, which need a request to each member."""
FINDINGS_SHOWN = 5
"""Findings of a cluster that are not folded."""


class Attention(NamedTuple):
    """A group of the list, with its worst finding, which is None while it has not been judged."""

    group: GroupSummary
    finding: Finding | None


@shows("", "overview.html")
async def overview(request: DashboardRequest) -> PageContent:
    cluster = request.cluster
    cached = await cluster.moment_soon(MOMENT_WAIT_SECONDS)
    judged = await cluster.verdicts(0 if cached is None else VERDICTS_WAIT_SECONDS)
    if cached is None:
        return PageContent({"now": None})
    verdicts = None if judged is None else judged.value
    found = cached.value.found
    now = with_groups(cached.value.view, verdicts)
    worst = worst_groups(now.groups, verdicts, is_partial=bool(found.failures))
    shown = worst[:GROUPS_SHOWN]
    values = {
        "now": now,
        "names": {one.name for one in now.groups},
        "findings_max": FINDINGS_SHOWN,
        "worst": shown,
        "worst_in_all": len(worst),
        "lags": {row.group.name: cluster.history.of(f"lag{of_group_key(row.group.name)}") for row in shown},
        "charts": charts.of_cluster(cluster.history, cluster.sample_ms),
        "waits": judged is None,
    }
    age_seconds = cached.age_seconds if judged is None else max(cached.age_seconds, judged.age_seconds)
    return PageContent(values, found, age_seconds=age_seconds)


def worst_groups(
    groups: Iterable[GroupSummary], verdicts: GroupVerdicts | None, *, is_partial: bool
) -> list[Attention]:
    """Groups with a lag or a problem: the worst verdict first, then the longest lag."""
    findings = {} if verdicts is None else {one.group.name: one.worst for one in verdicts.items}
    rows = [Attention(group, findings.get(group.name)) for group in groups]
    found = [row for row in rows if _is_bad(row.finding) or may_be_behind(row.group, is_partial=is_partial)]
    return sorted(found, key=_rank)


def _is_bad(finding: Finding | None) -> bool:
    return finding is not None and finding.severity in (Severity.CRITICAL, Severity.WARNING)


def _rank(row: Attention) -> tuple[int, int, str]:
    severity = Severity.UNKNOWN if row.finding is None else row.finding.severity
    return ORDER.index(severity), -(least_lag(row.group) or 0), row.group.name
