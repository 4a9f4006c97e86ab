"""A cluster as a whole: the metrics of its brokers, the lag of its slaves, and its verdict.

`judge` collects the evidence; the rules are in `orbitmq.admin.verdict` and `orbitmq.admin.diagnosis`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec
from msgspec import Struct

from orbitmq.admin.group_verdicts import GroupVerdicts, findings_of, group_verdicts
from orbitmq.admin.results import Failure, Gathered, Result
from orbitmq.admin.runtime import DailyCount, RequestQueue, Runtime, parse
from orbitmq.admin.session import Node, Session
from orbitmq.admin.verdict import (
    ClusterEvidence,
    Finding,
    Severity,
    bytes_behind,
    findings,
    summary,
    worst,
    worst_first,
)
from orbitmq.errors import RemotingError
from orbitmq.operations.routes import cluster_info
from orbitmq.operations.statistics import runtime_info
from orbitmq.runtime.clock import SystemClock
from orbitmq.wire.bodies import ClusterInfo

POLL_INTERVAL_S = 1.0
"""Between two rounds of requests while a command waits for the cluster to become well."""


class ClusterBroker(Struct, frozen=True, rename="camel"):
    """One broker of a cluster. Metrics are None if it does not respond."""

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
    """Messages delivered per second, the mean of the last ten seconds."""
    send_queue: RequestQueue = RequestQueue()
    pull_queue: RequestQueue = RequestQueue()
    page_cache_lock_ms: int | None = None
    loop_delay_ms: int | None = None
    """The longest that its event loop kept requests waiting in the last minute."""
    put_99_ms: float | None = None
    """99 of 100 messages of the last minute were stored within it."""
    oldest_message_at_ms: int | None = None
    disk_ratio: float | None = None
    """In use, 0 to 1."""
    put_messages: DailyCount = DailyCount()
    got_messages: DailyCount = DailyCount()
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
    """Brokers that do not respond, or are no longer registered."""
    headless: list[str]
    """Broker names without a master."""
    in_per_s: float | None
    """Sum over all masters; None while one of them does not respond."""
    out_per_s: float | None
    put_today: int | None
    got_today: int | None
    max_disk_ratio: float | None
    """The largest of all brokers; None while one of them does not report it."""
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
    """Address of its master; None without one."""
    master_end_offset: int | None
    end_offset: int | None
    behind_bytes: int | None
    """Bytes of the master's log that it lacks. Both are queried at once, so on a busy master it may seem ahead."""
    connected: bool | None
    """Whether it follows its master; RocketMQ does not report this."""
    refusal: str | None
    """Why it does not."""


@dataclass(frozen=True, slots=True)
class ClusterVerdict:
    """Health of everything that a session reaches."""

    evidence: ClusterEvidence
    groups: GroupVerdicts
    findings: list[Finding]
    """Of brokers, name servers and groups, the worst first."""
    failures: list[Failure]
    """Of brokers and name servers; `groups` has its own."""


async def collect(session: Session) -> tuple[ClusterEvidence, list[Failure]]:
    """Query every broker and every name server once."""
    nodes = await session.nodes()
    runtimes = await each_runtime(session, nodes)
    views = await session.every_name_server(partial(session.request, cluster_info))
    registered = {address: _registered(info, session.cluster) for address, info in views.responses.items()}
    silent = [failure.target for failure in views.failures]
    listed = _masters_listed(views.responses.values())
    refusals = {one.target: one for one in runtimes.failures if one.code is not None}
    evidence = ClusterEvidence(nodes, runtimes.responses, registered, silent, masters_listed=listed, refusals=refusals)
    return evidence, [*views.failures, *runtimes.failures]


async def each_runtime(session: Session, nodes: list[Node]) -> Gathered[Node, Runtime]:
    """The metrics of each of them."""

    async def one(node: Node) -> Runtime:
        table = await session.request(runtime_info, node)
        return parse(table, SystemClock().now_ms())

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


async def listed(session: Session) -> Result[ClusterBroker]:
    """Every registered broker, including those that do not respond, and the missed ones."""
    nodes = await session.nodes()
    runtimes = await each_runtime(session, nodes)
    return Result([_member(node, runtimes.responses.get(node)) for node in nodes], failures=list(runtimes.failures))


def _member(node: Node, runtime: Runtime | None) -> ClusterBroker:
    role = "master" if node.is_master else "slave"
    if runtime is None:
        seen_at_ms = node.seen_at_ms
        return ClusterBroker(
            node.cluster, node.name, node.id, role, node.address, answers=False, registered_at_ms=seen_at_ms
        )
    return ClusterBroker(
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
        put_99_ms=runtime.put_99_ms,
        oldest_message_at_ms=runtime.oldest_message_at_ms,
        disk_ratio=runtime.log_disk_ratio,
        put_messages=runtime.put_messages,
        got_messages=runtime.got_messages,
        booted_at_ms=runtime.booted_at_ms,
    )


async def judge(session: Session, *, expected: Sequence[str] = ()) -> ClusterVerdict:
    """The verdict on all clusters of the session: their brokers, name servers and consumer groups.

    `expected` are broker names that must be registered.
    """
    evidence, failures = await collect(session)
    evidence = replace(evidence, expected=tuple(expected))
    groups = await group_verdicts(session) if evidence.here else GroupVerdicts()
    found = worst_first([*findings(evidence), *findings_of(groups)])
    return ClusterVerdict(evidence, groups, found, failures)


async def overview(session: Session) -> Result[Overview]:
    """Each cluster with a verdict, which is no better than that of its worst consumer group."""
    verdict = await judge(session)
    rows = overviews_of(verdict.evidence)
    names = {one: [node.name for node in verdict.evidence.of(one).nodes] for one in verdict.evidence.clusters}
    failures = list(dict.fromkeys([*verdict.failures, *verdict.groups.failures]))
    return Result([with_groups(one, verdict.groups, names[one.cluster]) for one in rows], failures=failures)


def with_groups(one: Overview, groups: GroupVerdicts | None, broker_names: Sequence[str]) -> Overview:
    """Add the findings of groups; None while they have not been judged."""
    ordered = worst_first([*one.findings, *findings_of(groups, broker_names)])
    return msgspec.structs.replace(one, findings=ordered, verdict=summary(ordered), severity=worst(ordered))


async def broker_overviews(session: Session) -> Result[Overview]:
    """Each cluster, judged by its brokers and name servers alone."""
    evidence, failures = await collect(session)
    return Result(overviews_of(evidence), failures=failures)


def overviews_of(evidence: ClusterEvidence) -> list[Overview]:
    """One row a cluster. A sum is unknown as long as one of its parts is."""
    return [_overview(name, evidence.of(name)) for name in evidence.clusters]


def _overview(cluster: str, mine: ClusterEvidence) -> Overview:
    found = findings(mine)
    masters = [node for node in mine.nodes if node.is_master]
    runtimes = [mine.runtimes.get(node) for node in masters]
    every = [mine.runtimes.get(node) for node in mine.nodes]
    ratios = [None if one is None else one.log_disk_ratio for one in every]
    return Overview(
        cluster,
        summary(found),
        worst(found),
        len(masters),
        len(mine.nodes) - len(masters),
        [str(node) for node in mine.nodes if node not in mine.runtimes],
        mine.headless,
        _sum([None if one is None else one.put_per_s.last_10_s for one in runtimes]),
        _sum([None if one is None else one.transferred_per_s.last_10_s for one in runtimes]),
        _whole([None if one is None else one.put_messages.today for one in runtimes]),
        _whole([None if one is None else one.got_messages.today for one in runtimes]),
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


async def health(session: Session, *, expected: Sequence[str] = ()) -> Result[Finding]:
    """All findings, the worst first, or one row that says that there are no problems. The check fails if one is
    critical.

    `expected` are broker names that must be registered.
    """
    verdict = await judge(session, expected=expected)
    well = Finding(Severity.WELL, "all", session.cluster or "all clusters", summary(()))
    is_critical = worst(verdict.findings) is Severity.CRITICAL
    return Result(verdict.findings or [well], failures=verdict.failures, check_failed=is_critical)


async def health_within(session: Session, seconds: float, *, expected: Sequence[str] = ()) -> Result[Finding]:
    """Repeat `health` until nothing critical is left and all nodes respond, for at most `seconds`.

    A ConnectError of unreachable name servers is raised only then, too.
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
        await asyncio.sleep(min(POLL_INTERVAL_S, max(0.0, deadline - time.monotonic())))


async def replicas(session: Session) -> Result[Replica]:
    """Every slave with its lag."""
    nodes = await session.nodes()
    runtimes = await each_runtime(session, nodes)
    masters = {node.name: node for node in nodes if node.is_master and not node.is_away}
    rows = [_replica(node, masters.get(node.name), runtimes.responses) for node in nodes if not node.is_master]
    return Result(rows, failures=list(runtimes.failures))


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
