"""A cluster as a whole: its brokers with their figures, how far slaves are behind, and what is wrong with it.

Judging is in `orbitmq.admin.verdict`; here is what it takes to judge.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from orbitmq.admin.answers import Found, Gathered
from orbitmq.admin.group_verdicts import Verdicts, findings_of, group_verdicts
from orbitmq.admin.runtime import Daily, Runtime, Waiting, parse
from orbitmq.admin.session import Node, Session
from orbitmq.admin.verdict import Finding, Seen, Severity, bytes_behind, findings, sentence, worst_first
from orbitmq.errors import RemotingError
from orbitmq.operations.figures import runtime_info
from orbitmq.operations.routes import cluster_info
from orbitmq.runtime.clock import SystemClock
from orbitmq.wire.bodies import ClusterInfo

ASK_AGAIN_S = 1.0
"""Between two looks of somebody who waits for the cluster to become well."""


class Member(Struct, frozen=True, rename="camel"):
    """One broker of a cluster. All figures are None for one that does not answer."""

    cluster: str
    broker: str
    broker_id: int
    """0 is the master."""
    role: str
    """`master` or `slave`."""
    address: str
    answers: bool
    registered_at_ms: int | None = None
    """Of a broker that no name server knows any more: when one did last. None while it is registered."""
    version: str | None = None
    in_per_s: float | None = None
    """Messages stored a second, the mean of the last ten."""
    out_per_s: float | None = None
    """Messages handed out a second, the mean of the last ten."""
    send_queue: Waiting = Waiting()
    pull_queue: Waiting = Waiting()
    page_cache_lock_ms: int | None = None
    loop_delay_ms: int | None = None
    """The longest that its event loop kept requests waiting in the last minute."""
    oldest_message_at_ms: int | None = None
    disk_ratio: float | None = None
    """In use, 0 to 1."""
    put_messages: Daily = Daily()
    got_messages: Daily = Daily()
    booted_at_ms: int | None = None


class Overview(Struct, frozen=True, rename="camel"):
    """One cluster in a line."""

    cluster: str
    verdict: str
    """In words: `all is well`, or the worst that was found."""
    severity: Severity
    masters: int
    slaves: int
    unreachable: list[str]
    """Brokers that do not answer, or are not registered any more."""
    headless: list[str]
    """Broker names without a master."""
    in_per_s: float | None
    """Of all masters; None while one of them does not answer."""
    out_per_s: float | None
    put_today: int | None
    got_today: int | None
    max_disk_ratio: float | None
    """Of all brokers; None while one of them does not tell."""
    versions: list[str]
    findings: list[Finding]
    """The worst first."""


class Replica(Struct, frozen=True, rename="camel"):
    """A slave and how far it is behind its master."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    master: str | None
    """Its master's address; None when there is none."""
    master_end_offset: int | None
    end_offset: int | None
    behind_bytes: int | None
    """Bytes of the master's log it lacks. Both are asked at the same time, so a busy master seems some ahead."""
    connected: bool | None
    """Whether it follows; RocketMQ does not tell."""
    refusal: str | None
    """Why it does not."""


class Health(Struct, frozen=True, rename="camel"):
    """One thing that was looked at."""

    check: str
    subject: str
    severity: Severity
    message: str
    remedy: str | None


async def look(session: Session) -> tuple[Seen, Gathered[Node, Runtime], Gathered[str, ClusterInfo]]:
    """Ask every broker and every name server once."""
    nodes = await session.nodes()
    runtimes = await each_runtime(session, nodes)
    views = await session.every_name_server(
        lambda address: cluster_info(session.remoting, address, timeout_ms=session.timeout_ms)
    )
    told = {address: _registered(info, session.cluster) for address, info in views.answers.items()}
    silent = [failure.target for failure in views.failures]
    listed = _masters_listed(views.answers.values())
    seen = Seen(nodes, runtimes.answers, told, silent, SystemClock().now_ms(), masters_listed=listed)
    return seen, runtimes, views


async def each_runtime(session: Session, nodes: list[Node]) -> Gathered[Node, Runtime]:
    """The figures of each of them."""

    async def one(node: Node) -> Runtime:
        return parse(await runtime_info(session.remoting, node.address, timeout_ms=session.timeout_ms))

    return await session.each_node(nodes, one)


def _masters_listed(views: Iterable[ClusterInfo]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for info in views:
        for name, broker in info.brokers.items():
            found[name] = found.get(name, frozenset()) | {at for number, at in broker.addresses.items() if number == 0}
    return found


def _registered(info: ClusterInfo, cluster: str | None) -> frozenset[str]:
    """`name:id` of the brokers a name server knows."""
    return frozenset(
        f"{name}:{number}"
        for name, broker in info.brokers.items()
        for number in broker.addresses
        if cluster in (None, broker.cluster)
    )


async def listed(session: Session) -> Found[Member]:
    """Every registered broker, also those that do not answer, and those that are missed."""
    nodes = await session.nodes()
    runtimes = await each_runtime(session, nodes)
    return Found([_member(node, runtimes.answers.get(node)) for node in nodes], failures=list(runtimes.failures))


def _member(node: Node, runtime: Runtime | None) -> Member:
    role = "master" if node.is_master else "slave"
    if runtime is None:
        seen_at_ms = node.seen_at_ms
        return Member(node.cluster, node.name, node.id, role, node.address, answers=False, registered_at_ms=seen_at_ms)
    return Member(
        node.cluster,
        node.name,
        node.id,
        role,
        node.address,
        answers=True,
        version=runtime.version,
        in_per_s=runtime.put_per_s.last_10_s,
        out_per_s=runtime.transferred_per_s.last_10_s,
        send_queue=runtime.send_queue,
        pull_queue=runtime.pull_queue,
        page_cache_lock_ms=runtime.page_cache_lock_ms,
        loop_delay_ms=runtime.loop_delay_ms,
        oldest_message_at_ms=runtime.oldest_message_at_ms,
        disk_ratio=runtime.log_disk_ratio,
        put_messages=runtime.put_messages,
        got_messages=runtime.got_messages,
        booted_at_ms=runtime.booted_at_ms,
    )


async def overview(session: Session) -> Found[Overview]:
    """Each cluster with a verdict, which is no better than that of its worst consumer group."""
    found, groups = await asyncio.gather(of_brokers(session), group_verdicts(session))
    names = await broker_names(session)
    found.items = [judged(one, groups, names[one.cluster]) for one in found.items]
    found.failures += [failure for failure in groups.failures if failure not in found.failures]
    return found


def judged(one: Overview, groups: Verdicts | None, broker_names: Sequence[str]) -> Overview:
    """The overview of the brokers, with what is found in the groups; None while nobody has looked at them."""
    found = worst_first([*one.findings, *findings_of(groups, broker_names)])
    severity = found[0].severity if found else Severity.WELL
    return msgspec.structs.replace(one, findings=found, verdict=sentence(found), severity=severity)


async def broker_names(session: Session) -> dict[str, list[str]]:
    """Cluster -> its brokers' names."""
    names: dict[str, list[str]] = defaultdict(list)
    for node in await session.nodes():
        names[node.cluster].append(node.name)
    return names


async def of_brokers(session: Session) -> Found[Overview]:
    """The same by what brokers and name servers say alone. A sum is unknown as long as one of its parts is."""
    seen, runtimes, views = await look(session)
    clusters = sorted({node.cluster for node in seen.nodes})
    found = Found([_overview(name, seen) for name in clusters])
    found.failures = [*views.failures, *runtimes.failures]
    return found


def _overview(cluster: str, seen: Seen) -> Overview:
    mine = seen.of(cluster)
    found = findings(mine)
    masters = [node for node in mine.nodes if node.is_master]
    figures = [mine.runtimes.get(node) for node in masters]
    runtimes = [mine.runtimes.get(node) for node in mine.nodes]
    ratios = [None if one is None else one.log_disk_ratio for one in runtimes]
    return Overview(
        cluster,
        sentence(found),
        found[0].severity if found else Severity.WELL,
        len(masters),
        len(mine.nodes) - len(masters),
        [str(node) for node in mine.nodes if node not in mine.runtimes],
        mine.headless,
        _sum([None if one is None else one.put_per_s.last_10_s for one in figures]),
        _sum([None if one is None else one.transferred_per_s.last_10_s for one in figures]),
        _whole([None if one is None else one.put_messages.today for one in figures]),
        _whole([None if one is None else one.got_messages.today for one in figures]),
        _most(ratios),
        sorted({runtime.version for runtime in mine.runtimes.values() if runtime.version is not None}),
        found,
    )


def _sum(parts: list[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if parts and len(known) == len(parts) else None


def _most(parts: list[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return max(known) if parts and len(known) == len(parts) else None


def _whole(parts: list[int | None]) -> int | None:
    total = _sum([None if part is None else float(part) for part in parts])
    return None if total is None else int(total)


async def health(session: Session, *, expected: Sequence[str] = ()) -> Found[Health]:
    """What is wrong, the worst first; one row that says so when nothing is. The check fails for what is critical.

    `expected` are broker names that must be there.
    """
    seen, runtimes, views = await look(session)
    parts = [seen.of(cluster) for cluster in sorted({node.cluster for node in seen.nodes})]
    whole = Seen([], {}, {}, [], seen.now_ms, tuple(set(expected) - {node.name for node in seen.nodes}))
    if whole.expected or not parts:
        parts.append(whole)
    groups = await group_verdicts(session) if seen.here else Verdicts()
    told = worst_first([*(one for part in parts for one in findings(part)), *findings_of(groups)])
    rows = [Health(one.rule, one.subject, one.severity, one.message, one.remedy) for one in told]
    found = Found(rows or [Health("all", session.cluster or "all clusters", Severity.WELL, "all is well", None)])
    found.failures = [*views.failures, *runtimes.failures]
    found.check_failed = any(row.severity is Severity.CRITICAL for row in rows)
    return found


async def health_within(session: Session, seconds: float, *, expected: Sequence[str] = ()) -> Found[Health]:
    """The same, asked anew until nothing critical is left and everybody answers, for at most so many seconds.

    As long as no name server can be reached, that is waited for, too; then its error is raised.
    """
    deadline = time.monotonic() + seconds
    while True:
        session.forget()
        try:
            found = await health(session, expected=expected)
        except RemotingError:
            if time.monotonic() >= deadline:
                raise
        else:
            if time.monotonic() >= deadline or not (found.check_failed or found.failures):
                return found
        await asyncio.sleep(min(ASK_AGAIN_S, max(0.0, deadline - time.monotonic())))


async def replicas(session: Session) -> Found[Replica]:
    """Every slave with what it lacks."""
    nodes = await session.nodes()
    runtimes = await each_runtime(session, nodes)
    masters = {node.name: node for node in nodes if node.is_master and not node.is_away}
    rows = [_replica(node, masters.get(node.name), runtimes.answers) for node in nodes if not node.is_master]
    return Found(rows, failures=list(runtimes.failures))


def _replica(node: Node, master: Node | None, runtimes: Mapping[Node, Runtime]) -> Replica:
    mine, theirs = runtimes.get(node), None if master is None else runtimes.get(master)
    return Replica(
        node.cluster,
        node.name,
        node.id,
        node.address,
        None if master is None else master.address,
        None if theirs is None else theirs.log_end_offset,
        None if mine is None else mine.log_end_offset,
        bytes_behind(theirs, mine),
        None if mine is None else mine.replication.connected,
        None if mine is None else mine.replication.refusal,
    )
