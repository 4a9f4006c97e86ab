"""Everything that can keep a client from working, from the name servers to the permission to write.

Each check is a row, well or not, in the order in which you would look: without a name server the later ones are left
out.
"""

from __future__ import annotations

import ipaddress
import time

from msgspec.structs import replace

from orbitmq.admin import brokers
from orbitmq.admin.cluster import ClusterVerdict, judge
from orbitmq.admin.group_verdicts import RULE as GROUPS
from orbitmq.admin.results import Gathered, Result, failure_of
from orbitmq.admin.session import Node, Session
from orbitmq.admin.verdict import ClusterEvidence, Finding, Severity, worst
from orbitmq.errors import BrokerError, OrbitMQError
from orbitmq.message.topics import TRACE_TOPIC
from orbitmq.operations.routes import cluster_info, route
from orbitmq.operations.settings import broker_settings

NAME_SERVER = "name server"
"""The rule of a finding about one name server, by its response time."""
# Rule of the verdict -> the message when it finds nothing.
_WELL = {
    "masters": "every broker name has a master",
    "one master": "no broker name has two",
    "reachable": "every broker responds at the address it registers",
    "registrations": "name servers know the same brokers",
}
# The same for what brokers report.
_WELL_BY_REPORTS = {
    "store": "no broker reports a failed disk",
    "disk": "there is room on the disks",
    "state": "no broker has found a state file damaged",
    "writes": "sends do not wait",
    "dispatch": "consumers see what is stored",
    "slaves": "slaves follow",
    "versions": "brokers have the same version",
    "clocks": "clocks agree",
}


async def examine(session: Session) -> Result[Finding]:
    """All sections, in order. The check fails if a finding is critical."""
    found = Result(name_servers(await response_times(session)))
    if worst(found.items) is not Severity.CRITICAL:
        verdict = await judge(session)
        evidence = verdict.evidence
        found.items += _cluster(verdict)
        alive = [node for node in evidence.nodes if node in evidence.runtimes]
        found.items += await _permissions(session, alive)
        found.items.append(await _trace_topic(session))
    found.check_failed = worst(found.items) is Severity.CRITICAL
    return found


async def response_times(session: Session) -> Gathered[str, float]:
    """In how many ms each name server responds."""

    async def one(server: str) -> float:
        began = time.perf_counter()
        await session.request(cluster_info, server)
        return (time.perf_counter() - began) * 1000

    return await session.every_name_server(one)


def name_servers(gathered: Gathered[str, float]) -> list[Finding]:
    """Which name servers respond: one that does not is critical if no other does."""
    rows = [
        Finding(Severity.WELL, NAME_SERVER, server, f"{server} responds in {ms:.0f} ms")
        for server, ms in gathered.responses.items()
    ]
    severity = Severity.WARNING if rows else Severity.CRITICAL
    remedy = "is it running? orbitmq namesrv; another address: -n host:port or NAMESRV_ADDR"
    return rows + [
        Finding(severity, NAME_SERVER, one.target, f"{one.target} does not respond: {one.message}", remedy)
        for one in gathered.failures
    ]


def _cluster(verdict: ClusterVerdict) -> list[Finding]:
    """The verdict, and the rules that found no problem."""
    seen = verdict.evidence
    reasons = {failure.target: failure.message for failure in verdict.failures}
    rows = [
        replace(one, message=_reason(one.message, reasons.get(one.subject)), remedy=_remedy(seen, one))
        for one in verdict.findings
        if one.rule != "name servers"
    ]
    if not seen.nodes:
        return rows
    bad = {one.rule for one in verdict.findings}
    well, reports = dict(_WELL), len(seen.runtimes)
    if reports:
        of_some = "" if reports == len(seen.nodes) else f" ({reports} of {len(seen.nodes)} brokers)"
        reported = {**_WELL_BY_REPORTS, GROUPS: f"consumer groups are well ({len(verdict.groups.items)})"}
        well |= {rule: f"{text}{of_some}" for rule, text in reported.items()}
    subject = ", ".join(seen.clusters)
    return [Finding(Severity.WELL, rule, subject, text) for rule, text in well.items() if rule not in bad] + rows


def _reason(message: str, reason: str | None) -> str:
    return message if reason is None or reason in message else f"{message}: {reason}"


def _remedy(seen: ClusterEvidence, found: Finding) -> str | None:
    """For an address of a container or of another network, how you can reach it from here."""
    known = {*seen.runtimes, *(node for node in seen.nodes if node.is_away or str(node) in seen.refusals)}
    node = next((node for node in seen.nodes if node not in known and str(node) == found.subject), None)
    host, _, port = ("", "", "") if node is None else node.address.rpartition(":")
    if node is None or not is_private(host):
        return found.remedy
    return f"{host} is an address of a private network: --map-addr {node.address}=127.0.0.1:{port}, or set brokerIP1"


def is_private(host: str) -> bool:
    """An address that means something else on another machine; this machine's own does not count."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_private and not address.is_loopback


async def _permissions(session: Session, nodes: list[Node]) -> list[Finding]:
    """Whether this account may read settings, and whether brokers and routes allow writing."""
    rows = []
    for node in nodes:
        try:
            settings = await session.request(broker_settings, node)
        except BrokerError as error:
            failure = failure_of(str(node), error)
            text = f"this account may not administer {node}: {failure.message}"
            rows.append(Finding(Severity.WARNING, "permission", str(node), text, failure.hint))
            continue
        except OrbitMQError:
            continue  # the verdict has a finding about it
        if node.is_master and settings.values.get("brokerPermission", "6").strip() not in ("6", "7"):
            text = f"{node} is not readable and writable: brokerPermission={settings.values['brokerPermission']}"
            remedy = f"orbitmq broker config set brokerPermission=6 --broker {node.name}"
            rows.append(Finding(Severity.WARNING, "permission", str(node), text, remedy))
    rows += await _wiped(session, sorted({node.name for node in nodes if node.is_master}))
    if not nodes:
        return rows
    return rows or [Finding(Severity.WELL, "permission", "brokers", "brokers may be read, written and administered")]


async def _wiped(session: Session, names: list[str]) -> list[Finding]:
    rows = []
    for name in names:
        views = await session.every_name_server(lambda server, name=name: brokers.writable(session, server, name))  # type: ignore[misc]
        for server, allowed in views.responses.items():
            if allowed is False:
                text = f"name server {server} has {name} without write permission"
                rows.append(Finding(Severity.WARNING, "permission", name, text, f"orbitmq broker allow-writing {name}"))
    return rows


async def _trace_topic(session: Session) -> Finding:
    """Without this topic the traces of clients are lost silently."""
    found = await session.any_name_server(lambda server: session.request(route, server, TRACE_TOPIC))
    if found is None:
        text = f"there is no {TRACE_TOPIC}: clients cannot trace messages, except to a topic of their own"
        remedy = "traceTopicEnable=true in a broker's configuration, for traces"
        return Finding(Severity.WELL, "trace", TRACE_TOPIC, text, remedy)
    return Finding(Severity.WELL, "trace", TRACE_TOPIC, f"{TRACE_TOPIC} takes traces")
