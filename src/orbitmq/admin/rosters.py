"""The online members of all groups, and the groups of each client.

Takes one request per group and broker: with thousands of groups, cache the result. Knows no lag.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from orbitmq.admin.clients import ConsumerMember, GroupMembership, membership
from orbitmq.admin.groups import groups, is_system
from orbitmq.admin.results import Failure
from orbitmq.admin.session import Session


class ClientSummary(Struct, frozen=True, rename="camel"):
    """One client that consumes."""

    client_id: str
    groups: list[str]
    address: str | None
    """Where it connects from, `host:port`, as a broker sees it."""
    language: str | None
    version: str | None
    brokers: list[str]
    """Names of the brokers it is connected to, for any group."""
    missing: list[str]
    """Names of brokers that other members of its groups are connected to and it is not."""


@dataclass(slots=True)
class Roster:
    """All members at one moment."""

    groups: dict[str, GroupMembership] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)


async def roster(session: Session) -> Roster:
    """The members of every group that has a configuration or offsets, system groups included."""
    found = await groups(session, system=True)
    names = [row.name for row in found.items]
    whos = await asyncio.gather(*(membership(session, name) for name in names))
    failures = [*found.failures, *(failure for who in whos for failure in who.failures)]
    return Roster(dict(zip(names, whos, strict=True)), list({one.target: one for one in failures}.values()))


# ---------------------------------------------------------------------------------------------------------- pure parts


def clients_of(whos: Mapping[str, GroupMembership], *, system: bool = False) -> list[ClientSummary]:
    """Every client by id, with the groups it is in; system groups only with `system`."""
    seen: dict[str, dict[str, ConsumerMember]] = defaultdict(dict)
    for group, who in whos.items():
        for member in who.members:
            if system or not is_system(group):
                seen[member.client_id][group] = member
    return [_client(client_id, seen[client_id]) for client_id in sorted(seen)]


def _client(client_id: str, memberships: Mapping[str, ConsumerMember]) -> ClientSummary:
    joined = list(memberships.values())
    return ClientSummary(
        client_id,
        sorted(memberships),
        next((one.address for one in joined if one.address), None),
        next((one.language for one in joined if one.language), None),
        next((one.version for one in joined if one.version), None),
        _union(one.brokers for one in joined),
        _union(one.missing for one in joined),
    )


def _union(names: Iterable[list[str]]) -> list[str]:
    return sorted({name for some in names for name in some})
