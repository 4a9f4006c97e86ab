"""Whether a cluster is healthy: findings, their severities, and the rules that find problems. Pure: no I/O.

All commands and pages that judge a cluster render this verdict: `doctor`, `cluster health`, `cluster overview`,
`check`, `wait`, `top` and the web page. `diagnosis` judges a consumer group, with the same findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from orbitmq.admin.results import Failure
from orbitmq.admin.runtime import Election, Runtime
from orbitmq.admin.session import Node, away

UNDISPATCHED_CRITICAL = 64 << 20
"""Bytes of the log that no consumer can see yet."""
SKEW_WARNING_MS = 5000
"""Searches by time and delays use the broker's clock, which it reports in whole seconds."""
ELECTS = "one in sync is elected once it runs and the agreement store responds: orbitmq cluster replicas"

EvidenceValue = str | int | float | bool | list[str] | None


class Severity(StrEnum):
    """How bad a finding is."""

    WELL = "well"
    UNKNOWN = "unknown"
    """There are too few observations, or a node does not report it."""
    WARNING = "warning"
    """Nothing fails yet."""
    CRITICAL = "critical"
    """Messages cannot be sent or read, or are about to be lost."""


ORDER = (Severity.CRITICAL, Severity.WARNING, Severity.UNKNOWN, Severity.WELL)
"""The worst first."""


class Finding(Struct, frozen=True, rename="camel"):
    """The result of one rule: what it found, how bad that is, and what to do about it."""

    severity: Severity
    rule: str
    subject: str
    """The broker, name server, consumer group or cluster."""
    message: str
    """What was found, and what it means."""
    remedy: str | None = None
    """What repairs it, or the next step of an investigation: mostly a command."""
    evidence: dict[str, EvidenceValue] = {}
    """The values that the message rests on."""


class Limits(NamedTuple):
    """From which value on something is a warning, and from which on it is critical."""

    warning: float
    critical: float

    def severity(self, value: float) -> Severity:
        """A limit is reached by the value that equals it."""
        if value >= self.critical:
            return Severity.CRITICAL
        return Severity.WARNING if value >= self.warning else Severity.WELL


LIMITS: Mapping[str, Limits] = {
    # A share. From 75 % on a broker deletes old messages early, from 85 % on immediately, at 90 % it refuses messages.
    "disk": Limits(0.75, 0.85),
    "writes": Limits(200, 1000),  # ms; a broker refuses sends that have waited 200 ms
    # Bytes. RocketMQ does not read from a slave, nor count it as in sync, once it is 256 MiB behind.
    "slaves": Limits(16 << 20, 256 << 20),
}
"""Rule -> its limits."""


@dataclass(frozen=True, slots=True)
class ClusterEvidence:
    """What all nodes reported at one time."""

    nodes: list[Node]
    runtimes: Mapping[Node, Runtime]
    """Of the nodes that responded."""
    registered: Mapping[str, frozenset[str]]
    """Name server -> `name:id` of the brokers it knows."""
    silent_name_servers: list[str]
    expected: tuple[str, ...] = ()
    """Broker names that must be registered: name servers forget a broker that has stopped."""
    masters_listed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Broker name -> addresses that name servers have for its master."""
    refusals: Mapping[str, Failure] = field(default_factory=dict)
    """Node -> how it refused to report, such as to an account without the permission."""
    limits: Mapping[str, Limits] = field(default_factory=lambda: LIMITS)

    @property
    def here(self) -> list[Node]:
        """The registered ones."""
        return [node for node in self.nodes if not node.is_away]

    @property
    def clusters(self) -> list[str]:
        return sorted({node.cluster for node in self.nodes})

    def of(self, cluster: str) -> ClusterEvidence:
        """The part of one cluster."""
        nodes = [node for node in self.nodes if node.cluster == cluster]
        names = {f"{node.name}:{node.id}" for node in nodes}
        return replace(
            self,
            nodes=nodes,
            runtimes={node: self.runtimes[node] for node in nodes if node in self.runtimes},
            registered={server: known & names for server, known in self.registered.items()},
            masters_listed={n: at for n, at in self.masters_listed.items() if n in {node.name for node in nodes}},
        )

    @property
    def headless(self) -> list[str]:
        """Broker names without a master."""
        masters = {node.name for node in self.here if node.is_master}
        return sorted({node.name for node in self.here} - masters)


def findings(seen: ClusterEvidence) -> list[Finding]:
    """Everything that is wrong with the brokers and name servers, the worst first."""
    return worst_first(one for rule in _RULES for one in rule(seen))


def worst(found: Iterable[Finding]) -> Severity:
    """The severity of the worst finding; well without findings."""
    return min((one.severity for one in found), key=ORDER.index, default=Severity.WELL)


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    """By severity; findings of the same severity keep their order."""
    return sorted(found, key=lambda one: ORDER.index(one.severity))


def summary(found: Sequence[Finding]) -> str:
    """The verdict in a line: the message of the first finding, and how many more there are."""
    if not found:
        return "all is well"
    return found[0].message + (f" (and {len(found) - 1} more)" if found[1:] else "")


def _no_broker(seen: ClusterEvidence) -> Iterator[Finding]:
    if not seen.nodes and not seen.expected:
        text = "no broker is registered"
        yield Finding(Severity.CRITICAL, "brokers", "cluster", text, "start one: orbitmq broker -n <name servers>")


def _missing(seen: ClusterEvidence) -> Iterator[Finding]:
    for name in sorted(set(seen.expected) - {node.name for node in seen.nodes}):
        text = f"broker {name} is not registered"
        yield Finding(Severity.CRITICAL, "brokers", name, text, "start it; is its namesrvAddr right?")


def _away(seen: ClusterEvidence) -> Iterator[Finding]:
    names = {node.name for node in seen.here}
    for node in seen.nodes:
        if node.is_away and not (node.is_master and node.name in seen.headless):  # `_headless` reports those
            error = away(node)
            severity = Severity.WARNING if node.name in names else Severity.CRITICAL
            yield Finding(severity, "brokers", str(node), f"{node} is away: {error}", error.hint)


def _silent_name_servers(seen: ClusterEvidence) -> Iterator[Finding]:
    for server in seen.silent_name_servers:
        text = f"name server {server} does not respond"
        yield Finding(Severity.WARNING, "name servers", server, text, "start it, or leave it out of -n")


def _unreachable(seen: ClusterEvidence) -> Iterator[Finding]:
    for node in seen.nodes:
        if node not in seen.runtimes and not node.is_away:
            severity = Severity.CRITICAL if node.is_master else Severity.WARNING
            refusal = seen.refusals.get(str(node))
            if refusal is not None:
                yield Finding(severity, "reachable", str(node), f"{node} refused: {refusal.message}", refusal.hint)
                continue
            text = f"{'master' if node.is_master else 'slave'} {node} is registered and does not respond"
            yield Finding(severity, "reachable", str(node), text, "is it running, and reachable from here? --map-addr")


def _headless(seen: ClusterEvidence) -> Iterator[Finding]:
    for name in seen.headless:
        slave = next(node for node in seen.here if node.name == name)
        text = f"{name} has no master: nothing can be sent to it"
        runtime = seen.runtimes.get(slave)
        if runtime is not None and runtime.election is not None:
            yield Finding(Severity.CRITICAL, "masters", name, text, ELECTS)
            continue
        remedy = f"start the master, or make a slave one: orbitmq broker promote --address {slave.address} --dry-run"
        yield Finding(Severity.CRITICAL, "masters", name, text, remedy)


def _inactive(seen: ClusterEvidence) -> Iterator[Finding]:
    for node, runtime in seen.runtimes.items():
        if runtime.active is False:
            text = f"{node} accepts no messages: its disk has failed"
            yield Finding(Severity.CRITICAL, "store", str(node), text, "repair the disk, then restart the broker")


def _disks(seen: ClusterEvidence) -> Iterator[Finding]:
    for node, runtime in seen.runtimes.items():
        ratio = disk_ratio(runtime) or 0.0
        refuses = runtime.disk_refuses_messages is True
        is_held = runtime.disk_held_for is not None
        severity = Severity.CRITICAL if refuses or is_held else seen.limits["disk"].severity(ratio)
        if severity is Severity.WELL:
            continue
        text = f"the disk of {node} is {ratio:.0%} full" + (" and accepts no messages" if refuses else "")
        remedy = "keep messages shorter: orbitmq broker config set fileReservedTime=<hours>; or add disk space"
        if is_held:
            text = f"{text}; old files stay, for {runtime.disk_held_for}"
            remedy = (
                "let the group consume, delete an unused one (orbitmq group delete), add disk space, or drop the "
                "messages: orbitmq broker config set cleanUnreadFileForciblyEnable=true"
            )
        yield Finding(severity, "disk", str(node), text, remedy)


def disk_ratio(runtime: Runtime) -> float | None:
    """How full the fuller one of a broker's disks is, 0 to 1; None when it does not report it."""
    return max((one for one in (runtime.log_disk_ratio, runtime.queue_disk_ratio) if one is not None), default=None)


def _damages(seen: ClusterEvidence) -> Iterator[Finding]:
    for node, runtime in seen.runtimes.items():
        if runtime.damaged_state is not None:
            text = f"{node} has found state files damaged: {runtime.damaged_state}"
            remedy = "compare its topics, groups and offsets with what you expect, then remove the *.damaged-* files"
            yield Finding(Severity.CRITICAL, "state", str(node), text, remedy)


def _waits(seen: ClusterEvidence) -> Iterator[Finding]:
    for node, runtime in seen.runtimes.items():
        waited = send_wait_ms(runtime) or 0
        severity = seen.limits["writes"].severity(waited)
        if severity is not Severity.WELL:
            text = f"sends to {node} wait {waited} ms"
            yield Finding(severity, "writes", str(node), text, "check its disk and load")


def send_wait_ms(runtime: Runtime) -> int | None:
    """How long a send waits at a broker; None when it does not report it."""
    waits = (runtime.send_queue.oldest_ms, runtime.page_cache_lock_ms)
    return max((one for one in waits if one is not None), default=None)


def _undispatched(seen: ClusterEvidence) -> Iterator[Finding]:
    for node, runtime in seen.runtimes.items():
        behind = runtime.undispatched_bytes or 0
        if behind >= UNDISPATCHED_CRITICAL:
            text = f"{behind} bytes of the log of {node} are not in its queues: consumers do not see them"
            yield Finding(Severity.CRITICAL, "dispatch", str(node), text, "check its disk and load")


def _two_masters(seen: ClusterEvidence) -> Iterator[Finding]:
    for node, runtime in seen.runtimes.items():
        replication = runtime.replication
        if replication.superseded_by is not None:
            yield Finding(
                Severity.CRITICAL, "one master", str(node), f"{node} has stopped: {replication.superseded_by}"
            )
        if replication.other_masters is not None:
            severity = Severity.CRITICAL if replication.other_masters_serving else Severity.WARNING
            text = f"{node} is not the only master of {node.name}: {replication.other_masters}"
            yield Finding(severity, "one master", str(node), text, "stop the other one, and start it as a slave")
    for name, addresses in seen.masters_listed.items():
        if len(addresses) > 1:
            text = f"name servers have different masters of {name}: {', '.join(sorted(addresses))}"
            yield Finding(Severity.CRITICAL, "one master", name, text, "stop all but the one that was promoted last")


def _elections(seen: ClusterEvidence) -> Iterator[Finding]:
    """Of brokers that elect their master."""
    for node, runtime in seen.runtimes.items():
        election = runtime.election
        if election is None:
            continue
        if election.refusal is not None:
            text = f"{node} accepts no messages: {election.refusal}"
            yield Finding(Severity.CRITICAL, "masters", str(node), text, ELECTS)
        elif election.failure is not None:
            text = f"{node} cannot read the agreement store: {election.failure}"
            severity = Severity.CRITICAL if node.is_master else Severity.WARNING
            yield Finding(severity, "agreement", str(node), text, "check that its members run and can be reached")
        if node.is_master and (late := _not_in_sync(seen, node, election)):
            text = f"{', '.join(late)} of {node.name} cannot be elected: not in sync"
            yield Finding(Severity.WARNING, "slaves", node.name, text, "orbitmq cluster replicas --watch 2")
    elected = {node.name: one.election for node, one in seen.runtimes.items() if one.election is not None}
    for name in sorted(name for name, election in elected.items() if election.maintenance):
        text = f"{name} is in maintenance: if its master fails, no other replica is elected"
        remedy = f"when the work is done: orbitmq broker maintenance {name} --end"
        yield Finding(Severity.WARNING, "maintenance", name, text, remedy)


def _not_in_sync(seen: ClusterEvidence, master: Node, election: Election) -> list[str]:
    others = [(node, one.election) for node, one in seen.runtimes.items() if node.name == master.name]
    return [str(node) for node, one in others if one is not None and one.member not in election.in_sync]


def _refused_slaves(seen: ClusterEvidence) -> Iterator[Finding]:
    """Slaves that are in no route: their master reports them."""
    for node, runtime in seen.runtimes.items():
        if (replication := runtime.replication.refused_slaves) is not None:
            text = f"a slave of {node} does not follow and serves nothing: {replication}"
            remedy = "check which messages only it has, then move its store directory away and start it empty"
            yield Finding(Severity.CRITICAL, "slaves", str(node), text, remedy)


def _slaves(seen: ClusterEvidence) -> Iterator[Finding]:
    masters = {node.name: seen.runtimes.get(node) for node in seen.nodes if node.is_master}
    for node, runtime in seen.runtimes.items():
        master = masters.get(node.name)
        if node.is_master or master is None:
            continue
        if runtime.replication.refusal is not None:
            yield Finding(
                Severity.CRITICAL, "slaves", str(node), f"{node} does not follow: {runtime.replication.refusal}"
            )
        behind = bytes_behind(master, runtime) or 0
        severity = seen.limits["slaves"].severity(behind)
        if severity is not Severity.WELL:
            text = f"slave {node} is {behind} bytes behind its master"
            yield Finding(severity, "slaves", str(node), text, "orbitmq cluster ha --watch 2")


def bytes_behind(master: Runtime | None, slave: Runtime | None) -> int | None:
    """How much of its master's log a slave lacks; None when one of them does not report its own."""
    if master is None or slave is None or master.log_end_offset is None or slave.log_end_offset is None:
        return None
    return max(0, master.log_end_offset - slave.log_end_offset)


def _versions(seen: ClusterEvidence) -> Iterator[Finding]:
    for cluster in seen.clusters:
        runtimes = [runtime for node, runtime in seen.runtimes.items() if node.cluster == cluster]
        versions = sorted({runtime.version for runtime in runtimes if runtime.version is not None})
        if len(versions) > 1:
            text = f"brokers have different versions: {', '.join(versions)}"
            yield Finding(Severity.WARNING, "versions", cluster, text, "run the same version everywhere")


def _registrations(seen: ClusterEvidence) -> Iterator[Finding]:
    all_known = frozenset[str]().union(*seen.registered.values())
    for server, known in seen.registered.items():
        for missing in sorted(all_known - known):
            text = f"broker {missing} is not registered at name server {server}"
            remedy = "set namesrvAddr of the broker to all name servers"
            yield Finding(Severity.WARNING, "registrations", missing, text, remedy)


def _clocks(seen: ClusterEvidence) -> Iterator[Finding]:
    for node, runtime in seen.runtimes.items():
        skew = runtime.clock_ahead_ms
        if skew is not None and abs(skew) >= SKEW_WARNING_MS:
            text = f"the clock of {node} is {abs(skew) / 1000:.0f} s {'ahead' if skew > 0 else 'behind'} of this one"
            yield Finding(Severity.WARNING, "clocks", str(node), text, "synchronise the clocks")


_RULES: tuple[Callable[[ClusterEvidence], Iterator[Finding]], ...] = (
    _no_broker,
    _missing,
    _away,
    _headless,
    _two_masters,
    _unreachable,
    _inactive,
    _disks,
    _damages,
    _waits,
    _undispatched,
    _slaves,
    _elections,
    _refused_slaves,
    _silent_name_servers,
    _registrations,
    _versions,
    _clocks,
)
"""By weight: among findings of the same severity that of the first rule counts."""
