"""Access: the accounts and white lists of each broker, and their changes. No secret is ever shown."""

from __future__ import annotations

import asyncio

from orbitmq.admin import acl
from orbitmq.admin.acl import AccountChanges, AclAccount
from orbitmq.admin.answers import Failure, Found
from orbitmq.admin.plans import Plan
from orbitmq.dashboard.asking import Asked, Shown, plans, shows
from orbitmq.dashboard.choices import registered
from orbitmq.dashboard.roles import Role
from orbitmq.errors import NotFound

KEY_CHARS_MAX = 255
LINES_CHARS_MAX = 32 << 10
"""Of permissions and addresses, one a line."""


@shows("access", "access.html")
async def access(asked: Asked) -> Shown:
    accounts, white, versions = await asyncio.gather(
        acl.listed(asked.session), acl.white_lists(asked.session), acl.versions(asked.session)
    )
    failures = [*accounts.failures, *white.failures, *versions.failures]
    off = sorted({one.target for one in failures if _is_off(one)})
    values = {"accounts": accounts.items, "white": white.items, "versions": versions.items, "off": off}
    return Shown(values, Found[AclAccount](failures=[one for one in failures if not _is_off(one)]))


def _is_off(failure: Failure) -> bool:
    """A broker without access control is no failure of the page."""
    return failure.message.startswith(acl.OFF)


@shows("account", "account.html", Role.ADMIN)
async def account(asked: Asked) -> Shown:
    """The form of an account: with `key` filled in as a broker has it, that of `broker` or the first."""
    key = asked.query.text("key", at_most=KEY_CHARS_MAX)
    at = asked.query.text("broker")
    found = await acl.listed(asked.session)
    known = [one for one in found.items if one.access_key == key]
    chosen = next((one for one in known if not at or one.address == at), None)
    if key and chosen is None and not found.failures:
        raise NotFound(f"there is no account {key}")
    values = {
        "key": key,
        "account": chosen,
        "at": at,
        "nodes": await asked.session.registered(),
        "permissions": ("DENY", "PUB", "SUB", "PUB|SUB"),
        "differs": len({_rights(one) for one in known}) > 1,
    }
    return Shown(values, Found[AclAccount](failures=[one for one in found.failures if not _is_off(one)]))


def _rights(one: AclAccount) -> tuple[object, ...]:
    perms = tuple(one.topic_perms), tuple(one.group_perms)
    return (one.admin, one.white_remote_address, one.default_topic_perm, one.default_group_perm, *perms)


@plans("account", Role.ADMIN, back="access")
async def put_account(asked: Asked) -> Plan:
    """Everything the form shows is wanted so; a secret that is not typed stays."""
    form = asked.form
    wanted = AccountChanges(
        secret_key=form.raw("secret", at_most=KEY_CHARS_MAX) or None,
        admin=form.flag("admin"),
        white_remote_address=form.text("white_remote_address"),
        default_topic_perm=form.text("default_topic_perm") or None,
        default_group_perm=form.text("default_group_perm") or None,
        topic_perms=_lines(asked, "topic_perms"),
        group_perms=_lines(asked, "group_perms"),
    )
    key = form.needed("key", at_most=KEY_CHARS_MAX)
    return await acl.plan_account(asked.session, key, wanted, await _broker(asked))


@plans("account/delete", Role.ADMIN, back="access")
async def delete_account(asked: Asked) -> Plan:
    key = asked.form.needed("key", at_most=KEY_CHARS_MAX)
    return await acl.plan_delete(asked.session, key, await _broker(asked))


@plans("access/white-list", Role.ADMIN, back="access")
async def put_white_list(asked: Asked) -> Plan:
    return await acl.plan_white_list(asked.session, _lines(asked, "addresses"), await _broker(asked))


async def _broker(asked: Asked) -> str | None:
    """The address of the broker that is meant; None for all."""
    text = asked.form.text("broker")
    return (await registered(asked.session, text)).address if text else None


def _lines(asked: Asked, name: str) -> list[str]:
    return [line.strip() for line in asked.form.raw(name, at_most=LINES_CHARS_MAX).splitlines() if line.strip()]
