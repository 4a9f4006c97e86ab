"""All consumer groups: a list from cached results, and creation of a group.

Rows need no request: lags are those of the snapshot that all pages share, and members those of a roster that is
refreshed in the background.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.admin.groups import RULES, GroupSummary, plan_create, with_members
from orbitmq.admin.groups import groups as all_groups
from orbitmq.admin.plans import Plan
from orbitmq.admin.results import Result
from orbitmq.admin.rosters import Roster, roster
from orbitmq.dashboard.choices import registered_names
from orbitmq.dashboard.clusters import FRESH_SECONDS, Cached, DashboardCluster, of_group_key
from orbitmq.dashboard.lists import Column, listing
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import DashboardRequest, Fields, PageContent, plans, shows
from orbitmq.dashboard.words import N_

ROSTER_SECONDS = 0.02
"""Lifetime of the roster, for each group: limits its requests to fifty per second for a broker."""
ROSTER_WAIT_SECONDS = 0.1
"""How long to wait for the roster; the list itself needs time, too, and members may follow a moment later."""
FLAGS = tuple(name for name in RULES if name.endswith(("_enable", "_orderly")))
"""Settings that are on or off."""
LOWEST = {"retry_max_times": -1}
HIGHEST = {"retry_queue_nums": 1024}
"""Limits of numbers: queues are files; the others are counts and ids of any size."""
INT_MAX = (1 << 31) - 1
COLUMNS: tuple[Column[GroupSummary], ...] = (
    Column(N_("Group"), "name", lambda one: one.name),
    Column(N_("Lag"), "lag", lambda one: least_lag(one), is_number=True),
    Column(N_("Lag trend")),
    Column(N_("Retries"), "retry", lambda one: one.retry_lag_messages, is_number=True),
    Column(N_("Delivered/s"), "rate", lambda one: one.handed_out_tps, is_number=True),
    Column(N_("Members"), "members", lambda one: one.members, is_number=True),
    Column(N_("Version"), "version", lambda one: one.version),
    Column(N_("Model"), "model", lambda one: one.model),
    Column(N_("Topics"), "topics", lambda one: len(one.topics), is_number=True),
)


def least_lag(group: GroupSummary) -> int | None:
    """The lag, or its known part."""
    return group.lag_messages if group.lag_messages is not None else group.known_lag_messages


def may_be_behind(group: GroupSummary, *, is_partial: bool) -> bool:
    """Whether the group has a lag, or may have one. An unreachable broker may have any lag; if all respond, a group
    without a sum has no offset yet."""
    is_open = group.lag_messages is None and (is_partial or group.known_lag_messages is not None)
    return bool(least_lag(group)) or (is_open and group.model != "BROADCASTING")


async def members(
    cluster: DashboardCluster, groups_in_all: int, wait_seconds: float = ROSTER_WAIT_SECONDS
) -> Cached[Roster] | None:
    """The members of every group; None while they are requested for the first time."""
    fresh = max(FRESH_SECONDS, groups_in_all * ROSTER_SECONDS)
    return await cluster.cached_soon("roster", roster, fresh, wait_seconds)


@shows("groups", "groups.html")
async def groups(request: DashboardRequest) -> PageContent:
    containing, only = request.query.text("containing"), request.query.choice("only", ["", "behind", "online"])
    found, age = await _listed(request.cluster, system=request.query.flag("system"))
    known = await members(request.cluster, len(found.items))
    rows = found.items if known is None else [_joined(row, known.value) for row in found.items]
    is_partial = bool(found.failures)
    shown = [row for row in rows if containing.lower() in row.name.lower() and _is_wanted(row, only, is_partial)]
    listed = listing(request, "groups", shown, COLUMNS, keep=("containing", "only", "system"))
    values = {
        "list": listed,
        "lags": {row.name: request.cluster.history.of(f"lag{of_group_key(row.name)}") for row in listed.rows},
        "groups_in_all": len(rows),
        "waits": known is None,
        "containing": containing,
        "only": only,
        "system": request.query.flag("system"),
    }
    parts = [found] if known is None else [found, Result(failures=known.value.failures)]
    return PageContent(values, *parts, age_seconds=age if known is None else max(age, known.age_seconds))


async def _listed(cluster: DashboardCluster, *, system: bool) -> tuple[Result[GroupSummary], float]:
    """The largest lag first; system groups by name, as their lag rarely matters."""
    if system:
        cached = await cluster.cached(
            "groups of the system", lambda session: all_groups(session, system=True, lag=True)
        )
        return cached.value, cached.age_seconds
    moment = await cluster.moment()
    return moment.value.groups, moment.age_seconds


def _joined(row: GroupSummary, known: Roster) -> GroupSummary:
    who = known.groups.get(row.name)
    return row if who is None else with_members(row, who)


def _is_wanted(row: GroupSummary, only: str, is_partial: bool) -> bool:
    if only == "behind":
        return may_be_behind(row, is_partial=is_partial) or bool(row.retry_lag_messages)
    return only != "online" or bool(row.members)


def rules_of(form: Fields) -> Mapping[str, object]:
    """The settings that the form contains, without empty fields. BadField names an invalid one."""
    given: dict[str, object] = {}
    for name in RULES:
        if name in FLAGS:
            word = form.choice(name, ["", "yes", "no"])
            if word:
                given[name] = word == "yes"
        elif (number := form.optional(name, low=LOWEST.get(name, 0), high=HIGHEST.get(name, INT_MAX))) is not None:
            given[name] = number
    return given


@shows("new-group", "group_new.html", Role.ADMIN)
async def new(request: DashboardRequest) -> PageContent:
    brokers = [node.name for node in await request.session.masters()]
    return PageContent({"brokers": brokers, "flags": FLAGS, "rules": list(RULES)})


@plans("new-group", Role.ADMIN, back="groups")
async def create(request: DashboardRequest) -> Plan:
    brokers = await registered_names(request.session, request.form.many("broker"))
    return await plan_create(request.session, request.form.needed("group"), rules_of(request.form), brokers=brokers)
