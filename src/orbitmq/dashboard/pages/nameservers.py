"""Name servers: what each knows and lacks, their settings, and the pairs they keep, each where they differ."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from orbitmq.admin import namesrv as admin
from orbitmq.admin.namesrv import FIXED_SETTINGS, Pair
from orbitmq.admin.plans import Plan
from orbitmq.dashboard.asking import Asked, Shown, plans, shows
from orbitmq.dashboard.roles import Role
from orbitmq.message.topics import ORDER_NAMESPACE

NAME_CHARS_MAX = 255


@shows("nameservers", "nameservers.html")
async def nameservers(asked: Asked) -> Shown:
    session = asked.session
    containing = asked.query.text("containing", at_most=NAME_CHARS_MAX)
    namespace = asked.query.text("namespace", ORDER_NAMESPACE, at_most=NAME_CHARS_MAX)
    servers, settings, pairs = await asyncio.gather(
        admin.listed(session), admin.settings(session, containing=containing), admin.pairs(session, namespace)
    )
    edited = asked.query.text("key", at_most=NAME_CHARS_MAX)
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
    return Shown(values, servers, settings, pairs)


def _by_key(rows: Iterable[Pair]) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = {}
    for row in rows:
        found.setdefault(row.key, []).append(row)
    return found


@plans("nameservers/settings", Role.ADMIN, back="nameservers")
async def change_setting(asked: Asked) -> Plan:
    return await admin.plan_settings(asked.session, {asked.form.needed("key"): asked.form.text("value")})


@plans("nameservers/pairs", Role.ADMIN, back="nameservers")
async def put_pair(asked: Asked) -> Plan:
    namespace, key = asked.form.needed("namespace"), asked.form.needed("key")
    return await admin.plan_pair(asked.session, namespace, key, asked.form.needed("value"))


@plans("nameservers/pairs/remove", Role.ADMIN, back="nameservers")
async def remove_pair(asked: Asked) -> Plan:
    namespace, key = asked.form.needed("namespace"), asked.form.needed("key")
    return await admin.plan_pair(asked.session, namespace, key, None)
