"""Brokers that elect their master: their replicas, and a planned switch of the master."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial

from msgspec import Struct

from orbitmq.admin.cluster import each_runtime
from orbitmq.admin.plans import Change, Plan, Step
from orbitmq.admin.results import Result
from orbitmq.admin.runtime import Runtime
from orbitmq.admin.session import Node, Session
from orbitmq.errors import Conflict, NotFound
from orbitmq.message.model import MASTER_ID
from orbitmq.operations.mastership import set_maintenance, switch_master
from orbitmq.operations.routes import cluster_info

SERVES_SECONDS = 10.0
"""A broker takes less than a second to change its role, unless its disk is slow."""
LOOK_SECONDS = 0.1
SWITCH_MS = 10_000.0


class ElectedReplica(Struct, frozen=True, rename="camel"):
    """One replica of a broker name whose replicas elect their master. Values are None if it does not respond."""

    cluster: str
    broker: str
    broker_id: int
    """0 is the master."""
    address: str
    role: str | None = None
    """`master`, `following`, `halting` or `halted`: it waits for a master, or to be elected."""
    epoch: int | None = None
    """The number of the last election that it knows."""
    in_sync: bool | None = None
    """Whether it has every acknowledged message and may be elected, as the master sees it, or else this replica."""
    behind_bytes: int | None = None
    lease_left_ms: int | None = None
    """Of the master: how long it may serve without a renewal of its lease."""
    end_offset: int | None = None
    confirmed_offset: int | None = None
    """What ends before is on every replica in sync, and can be read."""
    member: str | None = None
    """The name of its store in the agreement."""
    maintenance: bool | None = None
    """Whether no replica but the last master is elected."""
    problem: str | None = None
    """Why it accepts or serves nothing, or cannot reach the agreement store."""


async def replicas(session: Session) -> Result[ElectedReplica]:
    """Every registered replica, by broker name."""
    nodes = await session.nodes()
    found = await each_runtime(session, nodes)
    elects = {node.name for node, runtime in found.responses.items() if runtime.election is not None}
    rows = [_row(node, found.responses) for node in nodes if node.name in elects]
    none = "no broker elects its master: `agreement` in the files of brokers turns that on"
    return Result(rows, [] if rows or not nodes else [none], list(found.failures))


def _row(node: Node, runtimes: Mapping[Node, Runtime]) -> ElectedReplica:
    mine = runtimes.get(node)
    if mine is None or mine.election is None:
        problem = "no name server knows it any more" if node.is_away else "it does not respond"
        return ElectedReplica(node.cluster, node.name, node.id, node.address, problem=problem)
    masters = [
        one for at, one in runtimes.items() if at.name == node.name and at.is_master and one.election is not None
    ]
    master = masters[0] if masters else None
    seen_by = master.election if master is not None and master.election is not None else mine.election
    ends = None if master is None else master.log_end_offset, mine.log_end_offset
    behind = None if ends[0] is None or ends[1] is None else max(0, ends[0] - ends[1])
    election, replication = mine.election, mine.replication
    return ElectedReplica(
        node.cluster,
        node.name,
        node.id,
        node.address,
        election.role,
        election.epoch,
        election.member in seen_by.in_sync,
        behind,
        election.lease_left_ms,
        mine.log_end_offset,
        election.confirmed_offset,
        election.member,
        election.maintenance,
        election.refusal or replication.not_serving or election.failure or replication.refusal,
    )


async def _responding(session: Session, broker: str) -> list[ElectedReplica]:
    rows = [row for row in (await replicas(session)).items if row.broker == broker and row.member is not None]
    if not rows:
        raise NotFound(
            f"no broker {broker} responds that elects its master", "orbitmq cluster replicas lists those that do"
        )
    return rows


async def plan_maintenance(session: Session, broker: str, *, is_on: bool) -> Plan:
    """Begin or end maintenance of a broker name: no replica but the last master is elected meanwhile. If there is no
    master when it ends, the replica in sync that has most is elected.
    """
    rows = await _responding(session, broker)
    masters = [row for row in rows if row.role == "master"]
    plan = Plan(f"begin maintenance of {broker}" if is_on else f"end maintenance of {broker}")
    asked = masters or [row for row in rows if row.in_sync]
    if not asked or (is_on and not masters):
        raise Conflict(f"{broker} has no master now", "orbitmq cluster replicas shows what is left")
    chosen = max(asked, key=lambda row: row.end_offset or 0)
    step = Step(chosen.address, "set maintenance", broker, _on(chosen.maintenance), _on(is_on))

    async def apply() -> None:
        await session.request(set_maintenance, chosen.address, is_on, timeout_ms=SWITCH_MS)

    async def check() -> str | None:
        """As soon as it responds: one that is elected by this begins anew."""
        ends = time.monotonic() + SERVES_SECONDS
        while True:
            found = {row.address: row.maintenance for row in (await replicas(session)).items}
            if (state := found.get(chosen.address)) is not None:
                return _on(state)
            if time.monotonic() > ends:
                return None
            await asyncio.sleep(LOOK_SECONDS)

    plan.changes.append(Change(step, apply, check))
    if is_on:
        plan.warnings.append("if the master fails, sends are refused until it is back or maintenance ends")
    elif not masters:
        plan.warnings.append(f"there is no master: {chosen.address} is elected")
    return plan


def _on(is_on: bool | None) -> str:
    return "on" if is_on else "off"


async def plan_switch(session: Session, broker: str, *, to: str | None, unclean: bool) -> Plan:
    """Have another replica of a broker name be the master: the one with the id or address `to`, else the one in sync
    that has most. `unclean` takes one that is not in sync while there is no master.
    """
    rows = await _responding(session, broker)
    masters = [row for row in rows if row.role == "master"]
    others = [row for row in rows if row.role != "master" and (to is None or to in (str(row.broker_id), row.address))]
    others.sort(key=lambda row: (row.in_sync is True, row.end_offset or 0), reverse=True)
    if not others:
        raise NotFound(f"{broker} has no other replica{'' if to is None else f' {to}'}", "orbitmq cluster replicas")
    chosen = others[0]
    if unclean:
        if masters:
            raise Conflict(f"{broker} has a master at {masters[0].address}: switch without --unclean")
        return _unclean(session, broker, chosen)
    if not masters:
        raise Conflict(f"{broker} has no master now: one of its replicas in sync is elected as soon as it can be")
    if not chosen.in_sync:
        raise Conflict(f"{chosen.address} is not in sync: it lacks {chosen.behind_bytes} bytes, wait until it has them")
    master = masters[0]
    plan = Plan(f"switch the master of {broker} to {chosen.address}")
    plan.changes.append(_change(session, broker, master.address, master.address, chosen, unclean=False))
    plan.warnings.append("sends are refused for up to a second, and clients try again")
    return plan


def _unclean(session: Session, broker: str, chosen: ElectedReplica) -> Plan:
    plan = Plan(f"make {chosen.address} the master of {broker} though it may lack acknowledged messages")
    plan.changes.append(_change(session, broker, chosen.address, None, chosen, unclean=True))
    if chosen.in_sync:
        plan.warnings.append("it is in sync: it is elected without this as soon as the last master's lease has ended")
    else:
        plan.warnings.append(
            f"what the replicas in sync have acknowledged beyond {chosen.end_offset} is lost for consumers; they keep "
            "it aside when they follow again (orbitmq store dump)"
        )
    return plan


def _change(
    session: Session, broker: str, asked: str, before: str | None, chosen: ElectedReplica, *, unclean: bool
) -> Change:
    step = Step(asked, "switch master", broker, before, chosen.address)

    async def switch() -> None:
        assert chosen.member is not None, "only those that say it are chosen"
        await session.request(switch_master, asked, chosen.member, unclean=unclean, timeout_ms=SWITCH_MS)

    async def master() -> str | None:
        """The one in the routes, as soon as it is the chosen one."""
        ends = time.monotonic() + SERVES_SECONDS
        while True:
            found = (await session.any_name_server(partial(session.request, cluster_info))).brokers.get(broker)
            address = None if found is None else found.addresses.get(MASTER_ID)
            if address == chosen.address or time.monotonic() > ends:
                return address
            await asyncio.sleep(LOOK_SECONDS)

    return Change(step, switch, master)
