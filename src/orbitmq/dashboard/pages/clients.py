"""Clients: consumers, producers, and the report of one consumer, including its threads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from orbitmq.admin.clients import ConsumerReport, ProducerMember, producers, reports
from orbitmq.admin.results import Result
from orbitmq.admin.rosters import ClientSummary, clients_of
from orbitmq.admin.session import Session
from orbitmq.dashboard.lists import ROWS, Column, listing
from orbitmq.dashboard.pages.groups import members
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import DashboardRequest, PageContent, shows
from orbitmq.dashboard.words import N_
from orbitmq.errors import NotFound

ROSTER_WAIT_SECONDS = 2.5
"""How long to wait for the roster of all groups, which these pages show."""
GROUPS_MAX = 20
"""Groups of one client whose reports are requested; a client is rarely in more than a few."""
QUEUES_MAX = 200
"""Queues that are shown of one client in one group; the page of the group has all of them."""
CONSUMERS: tuple[Column[ClientSummary], ...] = (
    Column(N_("Client"), "client", lambda one: one.client_id),
    Column(N_("Groups"), "groups", lambda one: one.groups),
    Column(N_("Address"), "address", lambda one: one.address),
    Column(N_("Language"), "language", lambda one: one.language),
    Column(N_("Version"), "version", lambda one: one.version),
    Column(N_("Brokers")),
)


@shows("clients", "clients.html")
async def clients(request: DashboardRequest) -> PageContent:
    containing, group = request.query.text("containing"), request.query.text("producers")
    moment = await request.cluster.moment()
    known, produced = await asyncio.gather(
        members(request.cluster, len(moment.value.view.groups), ROSTER_WAIT_SECONDS),
        request.cluster.cached(f"producers {group}", partial(_producers, group=group)),
    )
    rows = [] if known is None else clients_of(known.value.groups, system=request.query.flag("system"))
    shown = [row for row in rows if _matches(containing, row.client_id, row.address, *row.groups)]
    made = [one for one in produced.value.items if _matches(containing, one.client_id, one.address, one.group)]
    values = {
        "waits": known is None,
        "list": listing(request, "clients", shown, CONSUMERS, keep=("containing", "system", "producers")),
        "clients_in_all": len(rows),
        "producers": made[:ROWS],
        "producers_left": len(made[ROWS:]),
        "producers_in_all": len(produced.value.items),
        "containing": containing,
        "system": request.query.flag("system"),
        "group": group,
    }
    parts: list[Result[ProducerMember]] = [produced.value]
    if known is not None:
        parts.append(Result(failures=known.value.failures))
    return PageContent(
        values, *parts, age_seconds=max(produced.age_seconds, 0.0 if known is None else known.age_seconds)
    )


def _matches(text: str, *names: str | None) -> bool:
    return any(text.lower() in name.lower() for name in names if name)


async def _producers(session: Session, group: str) -> Result[ProducerMember]:
    return await producers(session, group or None)


@shows("clients/{client:path}", "client.html")
async def client(request: DashboardRequest) -> PageContent:
    name, group = request.path["client"], request.query.text("group")
    moment = await request.cluster.moment()
    known, produced = await asyncio.gather(
        members(request.cluster, len(moment.value.view.groups), ROSTER_WAIT_SECONDS),
        request.cluster.cached("producers ", partial(_producers, group="")),
    )
    row = None if known is None else next((one for one in _all(known.value.groups) if one.client_id == name), None)
    sends = [one for one in produced.value.items if one.client_id == name]
    groups = [group] if group else [] if row is None else row.groups
    by_group = await _reports(request.session, name, groups[:GROUPS_MAX])
    if known is not None and row is None and not (sends or group or known.value.failures or produced.value.failures):
        raise NotFound(f"no client {name} is online", "the list of clients shows those that are")
    values = {
        "name": name,
        "waits": known is None and not group,
        "row": row,
        "sends": sends,
        "reports": {one: found.items for one, found in by_group.items()},
        "queues_max": QUEUES_MAX,
        "groups_in_all": len(groups),
    }
    return PageContent(values, *by_group.values(), Result(failures=[] if known is None else known.value.failures))


_all = partial(clients_of, system=True)


async def _reports(session: Session, client_id: str, groups: Sequence[str]) -> dict[str, Result[ConsumerReport]]:
    found = await asyncio.gather(*(_of_group(session, client_id, group) for group in groups))
    return dict(zip(groups, found, strict=True))


async def _of_group(session: Session, client_id: str, group: str) -> Result[ConsumerReport]:
    """Empty if the client has left in the meantime."""
    try:
        return await reports(session, group, [client_id])
    except NotFound as error:
        return Result(warnings=[str(error)])


@shows("stacks/{client:path}", "stack.html", Role.OPERATOR)
async def stack(request: DashboardRequest) -> PageContent:
    name, group = request.path["client"], request.query.needed("group")
    found = await reports(request.session, group, [name], stacks=True)
    return PageContent({"name": name, "group": group, "reports": found.items}, found)
