"""Name servers: the brokers and topics of each, missing ones, settings and key-value pairs, with differences."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from orbitmq.admin import namesrv as admin
from orbitmq.admin.namesrv import FIXED_SETTINGS, Pair
from orbitmq.admin.plans import Plan
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import DashboardRequest, PageContent, plans, shows
from orbitmq.message.topics import ORDER_NAMESPACE

NAME_CHARS_MAX = 255


@shows("nameservers", "nameservers.html")
async def nameservers(request: DashboardRequest) -> PageContent:
    session = request.session
    containing = request.query.text("containing", at_most=NAME_CHARS_MAX)
    namespace = request.query.text("namespace", ORDER_NAMESPACE, at_most=NAME_CHARS_MAX)
    servers, settings, pairs = await asyncio.gather(
        admin.listed(session), admin.settings(session, containing=containing), admin.pairs(session, namespace)
    )
    edited = request.query.text("key", at_most=NAME_CHARS_MAX)
    values = {
        "servers": servers.items,
        "settings": _by_key(settings.items),
        "pairs": _by_key(pairs.items),
        "fixed": FIXED_SETTINGS,
        "containing": containing,
        "namespace": namespace,
        "key": edited,
        "value": next((row.value for row in settings.items if row.key == edited), None),
    }
    return PageContent(values, servers, settings, pairs)


def _by_key(rows: Iterable[Pair]) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = {}
    for row in rows:
        found.setdefault(row.key, []).append(row)
    return found


@plans("nameservers/settings", Role.ADMIN, back="nameservers")
async def change_setting(request: DashboardRequest) -> Plan:
    return await admin.plan_settings(request.session, {request.form.needed("key"): request.form.text("value")})


@plans("nameservers/pairs", Role.ADMIN, back="nameservers")
async def put_pair(request: DashboardRequest) -> Plan:
    namespace, key = request.form.needed("namespace"), request.form.needed("key")
    return await admin.plan_pair(request.session, namespace, key, request.form.needed("value"))


@plans("nameservers/pairs/remove", Role.ADMIN, back="nameservers")
async def remove_pair(request: DashboardRequest) -> Plan:
    namespace, key = request.form.needed("namespace"), request.form.needed("key")
    return await admin.plan_pair(request.session, namespace, key, None)
