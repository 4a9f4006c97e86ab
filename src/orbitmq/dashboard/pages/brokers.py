"""Brokers: all of them with their slaves, one with its metrics and settings, and changes of one."""

from __future__ import annotations

import asyncio

from orbitmq.admin import brokers as admin
from orbitmq.admin import cluster, elections
from orbitmq.admin.brokers import FIXED_SETTINGS, Cleaning, Consumption
from orbitmq.admin.plans import Plan
from orbitmq.dashboard import charts
from orbitmq.dashboard.choices import registered
from orbitmq.dashboard.formats import part
from orbitmq.dashboard.lists import Column, listing
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import DashboardRequest, PageContent, PageResult, Redirect, plans, shows
from orbitmq.dashboard.words import N_
from orbitmq.runtime.languages import gettext

SETTINGS_BYTES_MAX = 512 << 10
"""Size of the form: some 250 settings, each with its old and new value."""
VALUE_CHARS_MAX = 16 << 10
CONSUMPTION_FRESH_SECONDS = 15.0
"""How long the page may use results: for them a broker reads the last message of each queue of each group."""
HERE, MASTERS, EVERYWHERE = "here", "masters", "everywhere"
"""Where settings are changed: at this broker, at all masters, or also at slaves."""


@shows("brokers", "brokers.html")
async def brokers(request: DashboardRequest) -> PageContent:
    cached = await request.cluster.cached(
        "brokers",
        lambda session: asyncio.gather(cluster.listed(session), cluster.replicas(session), elections.replicas(session)),
    )
    members, replicas, elected = cached.value
    values = {
        "members": members.items,
        "behind": {(one.broker, one.broker_id): one for one in replicas.items},
        "elected": elected.items,
    }
    return PageContent(values, members, replicas, elected, age_seconds=cached.age_seconds)


@shows("brokers/{broker}", "broker.html")
async def broker(request: DashboardRequest) -> PageContent:
    session, containing = request.session, request.query.text("containing", at_most=200)
    node = await registered(session, request.path["broker"])
    status, table, settings, written = await asyncio.gather(
        admin.status(session, node.address),
        admin.runtime_table(session, node.address),
        admin.settings(session, node.address, containing=containing),
        session.every_name_server(lambda server: admin.writable(session, server, node.name)),
    )
    values = {
        "node": node,
        "runtime": status.items[0].runtime if status.items else None,
        "entries": [entry for entry in table.items if containing.lower() in entry.key.lower()],
        "settings": settings.items,
        "containing": containing,
        "writable": written.responses,
        "cleanings": list(Cleaning),
        "charts": charts.of_broker(request.cluster.history, node.name, node.id, request.cluster.sample_ms),
    }
    return PageContent(values, status, table, settings, written.result())


CONSUMPTION: tuple[Column[Consumption], ...] = (
    Column(N_("Topic"), "topic", lambda row: row.topic),
    Column(N_("Group"), "group", lambda row: row.group),
    Column(N_("Queue"), "queue", lambda row: row.queue_id, is_number=True),
    Column(N_("End"), is_number=True),
    Column(N_("Offset"), is_number=True),
    Column(N_("Lag"), "lag", lambda row: row.lag_messages, is_number=True),
    Column(N_("Last consumed: stored at"), "last", lambda row: row.last_consumed_at_ms),
)


@shows("brokers/{broker}/consumption", "broker_consumption.html")
async def consumption(request: DashboardRequest) -> PageContent:
    node = await registered(request.session, request.path["broker"])
    cached = await request.cluster.cached(
        f"consumption {node.address}",
        lambda session: admin.consumption(session, node.address, lag_min=1),
        CONSUMPTION_FRESH_SECONDS,
    )
    rows = sorted(cached.value.items, key=lambda row: -row.lag_messages)
    shown = listing(request, f"brokers/{part(request.path['broker'])}/consumption", rows, CONSUMPTION)
    return PageContent({"node": node, "list": shown}, cached.value, age_seconds=cached.age_seconds)


@shows("brokers/{broker}/settings", "broker_settings.html", Role.ADMIN)
async def settings(request: DashboardRequest) -> PageContent:
    containing = request.query.text("containing", at_most=200)
    node = await registered(request.session, request.path["broker"])
    found = await admin.settings(request.session, node.address, containing=containing)
    values = {"node": node, "settings": found.items, "containing": containing, "fixed": FIXED_SETTINGS}
    return PageContent(values, found)


@plans(
    "brokers/{broker}/settings/change", Role.ADMIN, back="brokers/{broker}/settings", body_bytes_max=SETTINGS_BYTES_MAX
)
async def change_settings(request: DashboardRequest) -> PageResult:
    """Changes only the settings edited in the form: another user may have changed the others meanwhile."""
    node = await registered(request.session, request.path["broker"])
    where = request.form.choice("where", (HERE, MASTERS, EVERYWHERE), HERE)
    keys = [name.removeprefix("set:") for name in request.form if name.startswith("set:")]
    wanted = {key: request.form.raw(f"set:{key}", at_most=VALUE_CHARS_MAX) for key in keys}
    pairs = {
        key: value for key, value in wanted.items() if value != request.form.raw(f"was:{key}", at_most=VALUE_CHARS_MAX)
    }
    if not pairs:
        return Redirect(f"brokers/{part(request.path['broker'])}/settings", gettext("Nothing was changed."))
    return await admin.plan_settings(
        request.session, pairs, node.address if where == HERE else None, slaves=where == EVERYWHERE
    )


@plans("brokers/{broker}/writing", Role.ADMIN, back="brokers/{broker}")
async def writing(request: DashboardRequest) -> Plan:
    node = await registered(request.session, request.path["broker"])
    allowed = request.form.choice("writing", ("allow", "forbid")) == "allow"
    return await admin.plan_writing(request.session, node.name, allowed=allowed)


@plans("brokers/{broker}/cleaning", Role.ADMIN, back="brokers/{broker}")
async def cleaning(request: DashboardRequest) -> Plan:
    node = await registered(request.session, request.path["broker"])
    what = Cleaning(request.form.choice("what", [one.value for one in Cleaning]))
    return await admin.plan_cleaning(request.session, what, node.address)
