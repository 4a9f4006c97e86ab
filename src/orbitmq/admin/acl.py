"""Accounts and white lists (ACL of 4.x).

Each broker, master and slave, has its own files: all are queried and changed, and differences are shown. Secrets are
shown only on request.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from orbitmq.admin.brokers import chosen
from orbitmq.admin.masters import lost
from orbitmq.admin.plans import Change, Make, Plan, Step, Value
from orbitmq.admin.results import Gathered, Result
from orbitmq.admin.session import Node, Session, nearest
from orbitmq.errors import BadArgument, Conflict, NotFound
from orbitmq.operations.access import accounts, acl_version, delete_account, put_account, put_white_addresses
from orbitmq.operations.settings import broker_settings
from orbitmq.wire.bodies_access import AccountConfig, AclConfig

T = TypeVar("T")
UNDO = "acl undo"
"""The command that takes the undo files of accounts."""
MASKED = "******"
OFF = "access control is off"
"""The remark of a broker whose access control is off."""
KEY_LENGTH_MIN = 7
"""Of an access key and of a secret: brokers refuse shorter ones."""
EMPTIED = "RocketMQ refuses an empty list of permissions: name one with DENY, or delete the account and make it anew"
PERMISSIONS = ("DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB", "ANY")
_RUN_KEY = os.urandom(16)
"""Secrets are compared by a keyed digest; the digest says nothing about the secret."""


class AclAccount(Struct, frozen=True, rename="camel"):
    """One account at one broker."""

    access_key: str
    broker: str
    address: str
    secret_key: str
    """Asterisks, unless the secret was requested."""
    admin: bool
    white_remote_address: str | None
    """From where no signature is needed."""
    default_topic_perm: str | None
    default_group_perm: str | None
    topic_perms: list[str]
    """`orders=PUB|SUB` each."""
    group_perms: list[str]


class WhiteList(Struct, frozen=True, rename="camel"):
    """From where a broker takes requests without an account."""

    broker: str
    address: str
    white_addresses: list[str]


class AclFileStatus(Struct, frozen=True, rename="camel"):
    """An access control file of a broker and how often it was changed."""

    broker: str
    address: str
    path: str
    version: int
    changed_at_ms: int | None


class _Rights(Struct, frozen=True, forbid_unknown_fields=True):
    """All of an account but its name and its secret."""

    admin: bool = False
    white_remote_address: str | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


class AccountChanges(Struct, frozen=True):
    """A change of an account; None leaves a field as it is. Lists are whole lists."""

    secret_key: str | None = None
    admin: bool | None = None
    white_remote_address: str | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None

    def over(self, account: AccountConfig) -> AccountConfig:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        # RocketMQ refuses an empty list, so an empty one is left out.
        nothing = [name for name, value in given.items() if value == [] and not getattr(account, name)]
        return replace(account, **{name: value for name, value in given.items() if name not in nothing})

    def empties(self, account: AccountConfig) -> bool:
        """Whether this takes a whole list of permissions away."""
        after = self.over(account)
        lists = ((account.topic_perms, after.topic_perms), (account.group_perms, after.group_perms))
        return any(before and now == [] for before, now in lists)


async def listed(session: Session, broker: str | None = None, *, show_secrets: bool = False) -> Result[AclAccount]:
    """Every account of every broker, in the order of their names, so that differences are next to each other."""
    gathered = await _each(session, broker)
    rows = [
        AclAccount(
            one.access_key,
            _label(node),
            node.address,
            one.secret_key if show_secrets else MASKED,
            one.admin,
            one.white_remote_address or None,
            one.default_topic_perm,
            one.default_group_perm,
            list(one.topic_perms or ()),
            list(one.group_perms or ()),
        )
        for node, config in gathered.responses.items()
        for one in config.plain_access_configs
    ]
    return Result(sorted(rows, key=lambda row: (row.access_key, row.broker)), failures=list(gathered.failures))


async def white_lists(session: Session, broker: str | None = None) -> Result[WhiteList]:
    """Of every broker."""
    gathered = await _each(session, broker)
    rows = [
        WhiteList(_label(node), node.address, config.global_white_addrs) for node, config in gathered.responses.items()
    ]
    return Result(rows, failures=list(gathered.failures))


async def versions(session: Session, broker: str | None = None) -> Result[AclFileStatus]:
    """How often each file of each broker was changed, and when last."""

    async def one(node: Node) -> list[AclFileStatus]:
        await _must_be_on(session, node)
        found = await session.request(acl_version, node)
        name = _label(node)
        return [
            AclFileStatus(name, node.address, path, version.counter, version.timestamp or None)
            for path, version in sorted(found.by_file.items())
        ]

    gathered = await session.each_node(await chosen(session, broker), one)
    return Result([row for rows in gathered.responses.values() for row in rows], failures=list(gathered.failures))


async def plan_account(session: Session, access_key: str, wanted: AccountChanges, broker: str | None = None) -> Plan:
    """Create an account or change it, at every broker; a new one needs a secret. Fields that are None stay."""
    _check(access_key, wanted)
    gathered = await _to_change(session, broker)
    plan = Plan(f"set account {access_key}", failures=list(gathered.failures), only_adds=True)
    rights: dict[str, object] = {}
    plan.undo = {"command": UNDO, "accessKey": access_key, "rights": rights}
    if wanted.secret_key is not None:
        plan.warnings.append("an undo file keeps no secret: the one that is set stays")
    for node, config in gathered.responses.items():
        before = _of(config, access_key)
        if before is None and wanted.secret_key is None:
            hint = "a new account needs a secret: --secret-env or --secret-file"
            raise NotFound(f"there is no account {access_key} at {node}", hint)
        if before is not None and wanted.empties(before) and EMPTIED not in plan.warnings:
            plan.warnings.append(EMPTIED)
        rights[_label(node)] = _rights(before)
        after = wanted.over(before or AccountConfig(access_key, ""))
        make = partial(session.request, put_account, node, after)
        plan.changes.append(_change(session, node, "set account", access_key, before, after, make))
    return plan


async def plan_delete(session: Session, access_key: str, broker: str | None = None) -> Plan:
    """Delete an account at every broker. Its permissions can be restored, its secret cannot. NotFound if none has
    it.
    """
    gathered = await _to_change(session, broker)
    plan = Plan(f"delete account {access_key}", failures=list(gathered.failures), destroys=access_key)
    rights: dict[str, object] = {}
    plan.undo = {"command": UNDO, "accessKey": access_key, "rights": rights}
    for node, config in gathered.responses.items():
        before = _of(config, access_key)
        if before is not None:
            rights[_label(node)] = _rights(before)
            make = partial(session.request, delete_account, node, access_key)
            plan.changes.append(_change(session, node, "delete account", access_key, before, None, make))
    if not plan.changes and not plan.failures:
        known = {one.access_key for config in gathered.responses.values() for one in config.plain_access_configs}
        raise NotFound(f"there is no account {access_key}", nearest(access_key, known))
    return plan


async def plan_white_list(
    session: Session, addresses: Sequence[str], broker: str | None = None, *, file: str | None = None
) -> Plan:
    """Replace the white list of every broker, or that of one of its files."""
    gathered = await _to_change(session, broker)
    plan = Plan(f"replace the white list by {', '.join(addresses) or 'nothing'}", failures=list(gathered.failures))
    if set(addresses) & {"*", "*.*.*.*"}:
        plan.warnings.append("this grants access to every client without an account")
    plan.changes = [_white(session, node, config, addresses, file) for node, config in gathered.responses.items()]
    if file is None:
        lists = {_label(node): list(config.global_white_addrs) for node, config in gathered.responses.items()}
        plan.undo = {"command": UNDO, "whiteLists": lists}
    return plan


def _white(
    session: Session, node: Node, config: AclConfig, addresses: Sequence[str], file: str | None = None
) -> Change:
    async def read_back() -> Value:
        return _listed((await _accounts(session, node)).global_white_addrs)

    make = partial(session.request, put_white_addresses, node, addresses, file=file)
    before = _listed(config.global_white_addrs)
    step = Step(str(node), "set white list", file or "main file", before, _listed(addresses))
    return Change(step, make, None if file else read_back)


async def plan_undo(session: Session, undo: Mapping[str, Any], secret: str | None = None) -> Plan:
    """An account, or white lists, in an undo file, without secrets: an existing account keeps its own, a deleted one
    gets `secret`, NotFound without. AdminError for a file of another form.
    """
    try:
        lists = msgspec.convert(undo.get("whiteLists", {}), dict[str, list[str]])
        rights = msgspec.convert(undo.get("rights", {}), dict[str, _Rights | None])
        access_key = msgspec.convert(undo.get("accessKey", ""), str)
    except msgspec.ValidationError as error:
        raise BadArgument(f"this is no undo file of accounts: {error}") from error
    nodes = {_label(node): node for node in await session.registered()}
    labels = sorted({*lists, *rights})
    gathered = await session.each_node([nodes[one] for one in labels if one in nodes], partial(_accounts, session))
    plan = Plan(f"restore account {access_key}" if rights else "restore white lists", failures=list(gathered.failures))
    plan.failures += [lost(one) for one in labels if one not in nodes]
    for node, config in gathered.responses.items():
        if _label(node) in lists:
            plan.changes.append(_white(session, node, config, lists[_label(node)]))
        if _label(node) in rights:
            before = _of(config, access_key)
            plan.changes.append(_again(session, node, before, access_key, rights[_label(node)], secret))
    return plan


def _again(
    session: Session,
    node: Node,
    before: AccountConfig | None,
    access_key: str,
    rights: _Rights | None,
    secret: str | None,
) -> Change:
    if rights is None:  # there was no such account
        remove = partial(session.request, delete_account, node, access_key)
        return _change(session, node, "delete account", access_key, before, None, remove)
    key = before.secret_key if before is not None else secret
    if key is None:
        hint = "its secret was not saved; pass one with --secret-env or --secret-file"
        raise NotFound(f"there is no account {access_key} at {node}", hint)
    after = AccountConfig(access_key, key, **asdict(rights))
    make = partial(session.request, put_account, node, after)
    return _change(session, node, "restore account", access_key, before, after, make)


def _label(node: Node) -> str:
    return node.name if node.is_master else f"{node.name}:{node.id}"


def _rights(account: AccountConfig | None) -> dict[str, object] | None:
    if account is None:
        return None
    return {name: value for name, value in asdict(account).items() if name not in ("access_key", "secret_key")}


def _listed(texts: Sequence[str]) -> list[object]:
    return list(texts)


def _check(access_key: str, wanted: AccountChanges) -> None:
    """Values that a broker would refuse, or accept and never grant."""
    for name, text in (("access key", access_key), ("secret", wanted.secret_key)):
        if text is not None and len(text) < KEY_LENGTH_MIN:
            raise BadArgument(f"the {name} is shorter than {KEY_LENGTH_MIN} characters")
    for text in filter(None, (wanted.default_topic_perm, wanted.default_group_perm)):
        _check_permission(text, text)
    for line in (*(wanted.topic_perms or ()), *(wanted.group_perms or ())):
        name, equals, text = line.partition("=")
        if not name or not equals:
            raise BadArgument(f"{line!r} is not NAME=PERMISSION", "orders=PUB|SUB")
        _check_permission(line, text)


def _check_permission(line: str, text: str) -> None:
    if text not in PERMISSIONS:
        raise BadArgument(f"{line!r}: {text!r} is no permission", "DENY, PUB, SUB or PUB|SUB")


def _change(
    session: Session,
    node: Node,
    action: str,
    access_key: str,
    before: AccountConfig | None,
    after: AccountConfig | None,
    make: Make,
) -> Change:
    async def read_back() -> Value:
        return plain_account(_of(await _accounts(session, node), access_key))

    return Change(Step(str(node), action, access_key, plain_account(before), plain_account(after)), make, read_back)


def plain_account(account: AccountConfig | None) -> Value:
    """An account as a step shows it. The secret is a mark that differs when the secret does, in this run."""
    if account is None:
        return None
    mark = hmac.new(_RUN_KEY, account.secret_key.encode(), "sha256").hexdigest()[:6]
    return {
        "secretKey": f"{MASKED} #{mark}",
        "admin": account.admin,
        "whiteRemoteAddress": account.white_remote_address or None,
        "defaultTopicPerm": account.default_topic_perm,
        "defaultGroupPerm": account.default_group_perm,
        "topicPerms": list(account.topic_perms or ()),
        "groupPerms": list(account.group_perms or ()),
    }


def _of(config: AclConfig, access_key: str) -> AccountConfig | None:
    return next((one for one in config.plain_access_configs if one.access_key == access_key), None)


def plainly(found: Result[T]) -> Result[T]:
    """A broker without access control has responded: report it, but not as a failure."""
    off = [one for one in found.failures if one.message.startswith(OFF)]
    said = [f"{one.message}: every client has all permissions; to change that, {one.hint}" for one in off]
    return Result(found.items, [*found.warnings, *said], [one for one in found.failures if one not in off])


async def _to_change(session: Session, broker: str | None) -> Gathered[Node, AclConfig]:
    """`_each`, for a plan. Conflict when none of them has accounts to change."""
    gathered = await _each(session, broker)
    if gathered.failures and not gathered.responses and all(one.message.startswith(OFF) for one in gathered.failures):
        raise Conflict(gathered.failures[0].message, gathered.failures[0].hint)
    return gathered


async def _each(session: Session, broker: str | None) -> Gathered[Node, AclConfig]:
    """What each broker has, slaves included: they check accounts, too."""
    return await session.each_node(await chosen(session, broker), partial(_accounts, session))


async def _accounts(session: Session, node: Node) -> AclConfig:
    await _must_be_on(session, node)
    return await session.request(accounts, node)


async def _must_be_on(session: Session, node: Node) -> None:
    """RocketMQ sends no response to these requests while access control is off. Raise Conflict instead of waiting."""
    settings = await session.request(broker_settings, node)
    if settings.values.get("aclEnable", "").strip().lower() == "false":
        raise Conflict(f"access control is off at {node}", "aclEnable=true in its configuration file, and a restart")
