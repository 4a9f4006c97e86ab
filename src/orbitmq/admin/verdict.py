"""What is wrong with a cluster, by rules over what its nodes say. Pure: asks nobody.

A limit stands beside the rule that has it, with where it comes from; each finding says what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from msgspec import Struct

from orbitmq.admin.runtime import Runtime
from orbitmq.admin.session import Node, away

DISK_WARNING, DISK_CRITICAL = 0.75, 0.85
"""From 75 % on a broker deletes old messages early, from 85 % on at once, at 90 % it takes none."""
WAIT_WARNING_MS, WAIT_CRITICAL_MS = 200, 1000
"""A broker refuses sends that have waited 200 ms."""
BEHIND_WARNING, BEHIND_CRITICAL = 16 << 20, 256 << 20
"""Bytes. RocketMQ does not read from a slave, nor count it as in sync, once it is 256 MiB behind."""
UNDISPATCHED_CRITICAL = 64 << 20
"""Bytes of the log that no consumer can see yet."""
SKEW_WARNING_MS = 5000
"""Searches by time and delays go by the broker's clock; its figures are whole seconds, and an answer takes some."""


class Severity(StrEnum):
    """How bad it is."""

    WELL = "well"
    UNKNOWN = "unknown"
    """Too early to tell, or nobody tells: not well, and nothing is known to be wrong."""
    WARNING = "warning"
    """Nothing fails yet."""
    CRITICAL = "critical"
    """Messages cannot be sent or read, or are about to be lost."""


ORDER = (Severity.CRITICAL, Severity.WARNING, Severity.UNKNOWN, Severity.WELL)
"""The worst first."""


class Finding(Struct, frozen=True, rename="camel"):
    """One thing that is wrong."""

    severity: Severity
    rule: str
    subject: str
    """The broker, name server, consumer group or cluster."""
    message: str
    remedy: str | None = None
    """Mostly the next command."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All that was seen in one look."""

    nodes: list[Node]
    runtimes: Mapping[Node, Runtime]
    """Of those nodes that answered."""
    registered: Mapping[str, frozenset[str]]
    """Name server -> `name:id` of the brokers it knows."""
    silent_name_servers: list[str]
    now_ms: int
    expected: tuple[str, ...] = ()
    """Broker names that must be there: one that is gone altogether no name server remembers."""
    masters_listed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Broker name -> addresses that name servers have for its master."""

    @property
    def here(self) -> list[Node]:
        """Those that are registered."""
        return [node for node in self.nodes if not node.is_away]

    def of(self, cluster: str) -> Seen:
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


def findings(seen: Seen) -> list[Finding]:
    """Everything that is wrong, the worst first."""
    return worst_first(one for rule in _RULES for one in rule(seen))


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    """By severity; what is as bad stays in its order."""
    return sorted(found, key=lambda one: ORDER.index(one.severity))


def sentence(found: list[Finding]) -> str:
    """The verdict in words: the worst, and how much there is beside it."""
    if not found:
        return "all is well"
    worst, *rest = found
    return worst.message + (f" (and {len(rest)} more)" if rest else "")


def _no_broker(seen: Seen) -> Iterator[Finding]:
    if not seen.nodes and not seen.expected:
        text = "no broker is registered"
        yield Finding(Severity.CRITICAL, "brokers", "cluster", text, "start one: orbitmq broker -n <name servers>")


def _missing(seen: Seen) -> Iterator[Finding]:
    for name in sorted(set(seen.expected) - {node.name for node in seen.nodes}):
        text = f"broker {name} is not registered"
        yield Finding(Severity.CRITICAL, "brokers", name, text, "start it; is its namesrvAddr right?")


def _away(seen: Seen) -> Iterator[Finding]:
    names = {node.name for node in seen.here}
    for node in seen.nodes:
        if node.is_away and not (node.is_master and node.name in names):  # that its name has no master is told
            error = away(node)
            severity = Severity.CRITICAL if node.is_master or node.name not in names else Severity.WARNING
            yield Finding(severity, "brokers", str(node), f"{node} is away: {error}", error.hint)


def _silent_name_servers(seen: Seen) -> Iterator[Finding]:
    for server in seen.silent_name_servers:
        text = f"name server {server} does not answer"
        yield Finding(Severity.WARNING, "name servers", server, text, "start it, or leave it out of -n")


def _unreachable(seen: Seen) -> Iterator[Finding]:
    for node in seen.nodes:
        if node not in seen.runtimes and not node.is_away:
            severity = Severity.CRITICAL if node.is_master else Severity.WARNING
            text = f"{'master' if node.is_master else 'slave'} {node} is registered and does not answer"
            yield Finding(severity, "reachable", str(node), text, "is it running, and reachable from here? --map-addr")


def _headless(seen: Seen) -> Iterator[Finding]:
    for name in seen.headless:
        slave = next(node for node in seen.here if node.name == name)
        text = f"{name} has no master: nothing can be sent to it"
        remedy = f"start the master, or make a slave one: orbitmq broker promote --address {slave.address} --dry-run"
        yield Finding(Severity.CRITICAL, "masters", name, text, remedy)


def _inactive(seen: Seen) -> Iterator[Finding]:
    for node, runtime in seen.runtimes.items():
        if runtime.active is False:
            text = f"{node} takes no messages: its disk has failed"
            yield Finding(Severity.CRITICAL, "store", str(node), text, "repair the disk, then restart the broker")


def _disks(seen: Seen) -> Iterator[Finding]:
    for node, runtime in seen.runtimes.items():
        ratio = max(filter(None, (runtime.log_disk_ratio, runtime.queue_disk_ratio)), default=0.0)
        refuses = runtime.disk_refuses_messages is True
        if runtime.disk_held_for is None and not refuses and ratio < DISK_WARNING:
            continue
        text = f"the disk of {node} is {ratio:.0%} full" + (" and takes no messages" if refuses else "")
        remedy = "keep messages shorter: orbitmq broker config set fileReservedTime=<hours>; or give it more disk"
        if runtime.disk_held_for is not None:
            text = f"{text}; old files stay, for {runtime.disk_held_for}"
            remedy = (
                "let the group read on, delete one that is gone (orbitmq group delete), give it more disk, or give the "
                "messages up: orbitmq broker config set cleanUnreadFileForciblyEnable=true"
            )
        is_critical = refuses or runtime.disk_held_for is not None or ratio >= DISK_CRITICAL
        yield Finding(Severity.CRITICAL if is_critical else Severity.WARNING, "disk", str(node), text, remedy)


def _damages(seen: Seen) -> Iterator[Finding]:
    for node, runtime in seen.runtimes.items():
        if runtime.damaged_state is not None:
            text = f"{node} has found state files damaged: {runtime.damaged_state}"
            remedy = "compare its topics, groups and offsets with what you expect, then remove the *.damaged-* files"
            yield Finding(Severity.CRITICAL, "state", str(node), text, remedy)


def _waits(seen: Seen) -> Iterator[Finding]:
    for node, runtime in seen.runtimes.items():
        waited = max(filter(None, (runtime.send_queue.oldest_ms, runtime.page_cache_lock_ms)), default=0)
        if waited >= WAIT_WARNING_MS:
            severity = Severity.CRITICAL if waited >= WAIT_CRITICAL_MS else Severity.WARNING
            yield Finding(
                severity, "writes", str(node), f"sends to {node} wait {waited} ms", "look at its disk and load"
            )


def _undispatched(seen: Seen) -> Iterator[Finding]:
    for node, runtime in seen.runtimes.items():
        behind = runtime.undispatched_bytes or 0
        if behind >= UNDISPATCHED_CRITICAL:
            text = f"{behind} bytes of the log of {node} are not in its queues: consumers do not see them"
            yield Finding(Severity.CRITICAL, "dispatch", str(node), text, "look at its disk and load")


def _two_masters(seen: Seen) -> Iterator[Finding]:
    for node, runtime in seen.runtimes.items():
        told = runtime.replication
        if told.superseded_by is not None:
            yield Finding(Severity.CRITICAL, "one master", str(node), f"{node} has stopped: {told.superseded_by}")
        if told.other_masters is not None:
            severity = Severity.CRITICAL if told.other_masters_serving else Severity.WARNING
            text = f"{node} is not the only master of {node.name}: {told.other_masters}"
            yield Finding(severity, "one master", str(node), text, "stop the other one, and start it as a slave")
    for name, addresses in seen.masters_listed.items():
        if len(addresses) > 1:
            text = f"name servers have different masters of {name}: {', '.join(sorted(addresses))}"
            yield Finding(Severity.CRITICAL, "one master", name, text, "stop all but the one that was promoted last")


def _refused_slaves(seen: Seen) -> Iterator[Finding]:
    """Those that are in no route: their master knows of them."""
    for node, runtime in seen.runtimes.items():
        if (told := runtime.replication.refused_slaves) is not None:
            text = f"a slave of {node} does not follow and serves nothing: {told}"
            remedy = "look at what only it has, then move its store directory away and start it empty"
            yield Finding(Severity.CRITICAL, "slaves", str(node), text, remedy)


def _slaves(seen: Seen) -> Iterator[Finding]:
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
        if behind >= BEHIND_WARNING:
            severity = Severity.CRITICAL if behind >= BEHIND_CRITICAL else Severity.WARNING
            text = f"slave {node} is {behind} bytes behind its master"
            yield Finding(severity, "slaves", str(node), text, "orbitmq cluster ha --watch 2")


def bytes_behind(master: Runtime | None, slave: Runtime | None) -> int | None:
    """What a slave lacks of its master's log; None while one of them does not tell."""
    if master is None or slave is None or master.log_end_offset is None or slave.log_end_offset is None:
        return None
    return max(0, master.log_end_offset - slave.log_end_offset)


def _versions(seen: Seen) -> Iterator[Finding]:
    versions = sorted({runtime.version for runtime in seen.runtimes.values() if runtime.version is not None})
    if len(versions) > 1:
        text = f"brokers have different versions: {', '.join(versions)}"
        yield Finding(Severity.WARNING, "versions", seen.nodes[0].cluster, text, "bring them to the same one")


def _registrations(seen: Seen) -> Iterator[Finding]:
    everybody = frozenset[str]().union(*seen.registered.values())
    for server, known in seen.registered.items():
        for missing in sorted(everybody - known):
            text = f"broker {missing} is not registered at name server {server}"
            remedy = "give the broker every name server: namesrvAddr"
            yield Finding(Severity.WARNING, "registrations", missing, text, remedy)


def _clocks(seen: Seen) -> Iterator[Finding]:
    for node, runtime in seen.runtimes.items():
        skew = skew_of(runtime, seen.now_ms)
        if skew is not None and abs(skew) >= SKEW_WARNING_MS:
            text = f"the clock of {node} is {abs(skew) / 1000:.0f} s {'ahead' if skew > 0 else 'behind'} of this one"
            yield Finding(Severity.WARNING, "clocks", str(node), text, "synchronise the clocks")


def skew_of(runtime: Runtime, now_ms: int) -> int | None:
    """How much later it is at the broker, give or take a second; None when it does not tell."""
    if runtime.booted_at_ms is None or runtime.uptime_ms is None:
        return None
    return runtime.booted_at_ms + runtime.uptime_ms - now_ms


_RULES: tuple[Callable[[Seen], Iterator[Finding]], ...] = (
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
    _refused_slaves,
    _silent_name_servers,
    _registrations,
    _versions,
    _clocks,
)
"""In the order of their weight: of two findings as bad as each other the first counts."""
