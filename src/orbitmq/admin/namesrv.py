"""Name servers: their views, settings, and key-value pairs. They do not know each other, so requests and changes go to
each of them, and differences are reported."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from msgspec import Struct

from orbitmq.admin.plans import Change, Plan, Step
from orbitmq.admin.results import Gathered, Result
from orbitmq.admin.session import Session, nearest
from orbitmq.errors import Conflict, NotFound
from orbitmq.operations.kv import delete_kv, kv_table, put_kv
from orbitmq.operations.routes import cluster_info, topics
from orbitmq.operations.settings import change_name_server_settings, name_server_settings

SETTINGS_HINT = "`orbitmq namesrv config show` shows the settings"
FIXED_SETTINGS = frozenset(("rocketmqHome", "kvConfigPath", "configStorePath", "productEnvName", "listenPort"))
"""Old name servers accept paths from any client and then write their settings into that file."""


class NameServerStatus(Struct, frozen=True, rename="camel"):
    """The entries of one name server, and those that it lacks and another one has."""

    address: str
    brokers: int
    topics: int
    missing_brokers: list[str]
    """`name:id` of brokers that are registered at another name server only."""
    missing_topics: list[str]


class Pair(Struct, frozen=True, rename="camel"):
    """A key and its value at one name server."""

    name_server: str
    key: str
    value: str | None
    """None where only another name server has the key."""
    differs: bool
    """Whether another name server has another value."""


async def listed(session: Session) -> Result[NameServerStatus]:
    """Every name server that was given."""

    async def one(address: str) -> tuple[set[str], set[str]]:
        info = await session.request(cluster_info, address)
        names = {f"{name}:{number}" for name, broker in info.brokers.items() for number in broker.addresses}
        return names, set(await session.request(topics, address))

    gathered = await session.every_name_server(one)
    brokers = set[str]().union(*(known for known, _ in gathered.responses.values()))
    names = set[str]().union(*(known for _, known in gathered.responses.values()))
    rows = [
        NameServerStatus(address, len(mine), len(known), sorted(brokers - mine), sorted(names - known))
        for address, (mine, known) in gathered.responses.items()
    ]
    return Result(rows, failures=list(gathered.failures))


async def settings(session: Session, *, containing: str = "") -> Result[Pair]:
    """What each name server runs with, defaults included; only keys with this text in them."""
    return _compared(await session.every_name_server(partial(_settings, session)), containing)


async def pairs(session: Session, namespace: str) -> Result[Pair]:
    """Everything kept under a namespace."""
    return _compared(await session.every_name_server(partial(_pairs, session, namespace)))


async def pair(session: Session, namespace: str, key: str) -> Result[Pair]:
    """One of them. NotFound when no name server has it."""
    found = await pairs(session, namespace)
    rows = [row for row in found.items if row.key == key]
    if not rows and not found.failures:
        hint = nearest(key, {row.key for row in found.items})
        raise NotFound(f"there is no {key} in the namespace {namespace}", hint)
    return Result(rows, failures=found.failures)


async def plan_settings(session: Session, wanted: Mapping[str, str]) -> Plan:
    """Set keys at every name server. Conflict for one that names a file; NotFound for one that none has."""
    if fixed := sorted(wanted.keys() & FIXED_SETTINGS):
        raise Conflict(f"{fixed[0]} cannot be changed while the name server runs", "change its file and restart it")
    gathered = await session.every_name_server(partial(_settings, session))
    known = set[str]().union(*gathered.responses.values())
    for key in wanted:
        if known and key not in known:
            raise NotFound(f"there is no setting {key}", nearest(key, known) or SETTINGS_HINT)
    plan = Plan(f"set {', '.join(wanted)} at {len(gathered.responses)} name servers", failures=list(gathered.failures))
    for server, table in gathered.responses.items():
        for key, value in wanted.items():
            make = partial(session.request, change_name_server_settings, server, {key: value})
            plan.changes.append(_change(server, "set", key, table.get(key), value, make, partial(_settings, session)))
    return plan


async def plan_pair(session: Session, namespace: str, key: str, value: str | None) -> Plan:
    """Keep a pair at every name server; None removes it."""
    gathered = await session.every_name_server(partial(_pairs, session, namespace))
    action = "remove" if value is None else "put"
    title = f"remove {key} in the namespace {namespace}" if value is None else f"put {key} in the namespace {namespace}"
    plan = Plan(title, failures=list(gathered.failures), only_adds=True)
    for server, table in gathered.responses.items():
        make = (
            partial(session.request, delete_kv, server, namespace, key)
            if value is None
            else partial(session.request, put_kv, server, namespace, key, value)
        )
        read = partial(_pairs, session, namespace)
        plan.changes.append(_change(server, action, key, table.get(key), value, make, read))
    return plan


def _change(
    server: str,
    action: str,
    key: str,
    before: str | None,
    after: str | None,
    make: Callable[[], Awaitable[None]],
    read: Callable[[str], Awaitable[dict[str, str]]],
) -> Change:
    async def read_back() -> str | None:
        return (await read(server)).get(key)

    return Change(Step(server, action, key, before, after), make, read_back)


async def _settings(session: Session, server: str) -> dict[str, str]:
    return await session.request(name_server_settings, server)


async def _pairs(session: Session, namespace: str, server: str) -> dict[str, str]:
    return await session.request(kv_table, server, namespace)


def _compared(gathered: Gathered[str, dict[str, str]], containing: str = "") -> Result[Pair]:
    keys = sorted(set[str]().union(*gathered.responses.values()))
    rows = []
    for key in (key for key in keys if containing.lower() in key.lower()):
        values = {server: table.get(key) for server, table in gathered.responses.items()}
        differs = len(set(values.values())) > 1
        rows += [Pair(server, key, value, differs) for server, value in values.items()]
    return Result(rows, failures=list(gathered.failures))
