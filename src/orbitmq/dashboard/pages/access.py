"""Access: the accounts and white lists of each broker, and their changes. No secret is ever shown."""

from __future__ import annotations

import asyncio

from orbitmq.admin import acl
from orbitmq.admin.acl import AccountChanges, AclAccount
from orbitmq.admin.plans import Plan
from orbitmq.admin.results import Failure, Result
from orbitmq.dashboard.choices import registered
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import DashboardRequest, PageContent, plans, shows
from orbitmq.errors import NotFound

KEY_CHARS_MAX = 255
LINES_CHARS_MAX = 32 << 10
"""Characters of permissions and addresses, one per line."""


@shows("access", "access.html")
async def access(request: DashboardRequest) -> PageContent:
    accounts, white, versions = await asyncio.gather(
        acl.listed(request.session), acl.white_lists(request.session), acl.versions(request.session)
    )
    failures = [*accounts.failures, *white.failures, *versions.failures]
    off = sorted({one.target for one in failures if _is_off(one)})
    values = {"accounts": accounts.items, "white": white.items, "versions": versions.items, "off": off}
    return PageContent(values, Result[AclAccount](failures=[one for one in failures if not _is_off(one)]))


def _is_off(failure: Failure) -> bool:
    """A broker without access control is not a failure."""
    return failure.message.startswith(acl.OFF)


@shows("account", "account.html", Role.ADMIN)
async def account(request: DashboardRequest) -> PageContent:
    """The form of an account. With `key`, filled in with the values of `broker`, or of the first broker that has it."""
    key = request.query.text("key", at_most=KEY_CHARS_MAX)
    at = request.query.text("broker")
    found = await acl.listed(request.session)
    known = [one for one in found.items if one.access_key == key]
    chosen = next((one for one in known if not at or one.address == at), None)
    if key and chosen is None and not found.failures:
        raise NotFound(f"there is no account {key}")
    values = {
        "key": key,
        "account": chosen,
        "at": at,
        "nodes": await request.session.registered(),
        "permissions": ("DENY", "PUB", "SUB", "PUB|SUB"),
        "differs": len({_rights(one) for one in known}) > 1,
    }
    return PageContent(values, Result[AclAccount](failures=[one for one in found.failures if not _is_off(one)]))


def _rights(one: AclAccount) -> tuple[object, ...]:
    perms = tuple(one.topic_perms), tuple(one.group_perms)
    return (one.admin, one.white_remote_address, one.default_topic_perm, one.default_group_perm, *perms)


@plans("account", Role.ADMIN, back="access")
async def put_account(request: DashboardRequest) -> Plan:
    """All fields are applied; an empty secret leaves the secret unchanged."""
    form = request.form
    wanted = AccountChanges(
        secret_key=form.raw("secret", at_most=KEY_CHARS_MAX) or None,
        admin=form.flag("admin"),
        white_remote_address=form.text("white_remote_address"),
        default_topic_perm=form.text("default_topic_perm") or None,
        default_group_perm=form.text("default_group_perm") or None,
        topic_perms=_lines(request, "topic_perms"),
        group_perms=_lines(request, "group_perms"),
    )
    key = form.needed("key", at_most=KEY_CHARS_MAX)
    return await acl.plan_account(request.session, key, wanted, await _broker(request))


@plans("account/delete", Role.ADMIN, back="access")
async def delete_account(request: DashboardRequest) -> Plan:
    key = request.form.needed("key", at_most=KEY_CHARS_MAX)
    return await acl.plan_delete(request.session, key, await _broker(request))


@plans("access/white-list", Role.ADMIN, back="access")
async def put_white_list(request: DashboardRequest) -> Plan:
    return await acl.plan_white_list(request.session, _lines(request, "addresses"), await _broker(request))


async def _broker(request: DashboardRequest) -> str | None:
    """The address of the selected broker; None for all."""
    text = request.form.text("broker")
    return (await registered(request.session, text)).address if text else None


def _lines(request: DashboardRequest, name: str) -> list[str]:
    return [line.strip() for line in request.form.raw(name, at_most=LINES_CHARS_MAX).splitlines() if line.strip()]
