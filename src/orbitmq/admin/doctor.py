"""A look at everything that keeps a client from working: from the name servers to the permission to write.

Each thing that was looked at is a row, well or not, in the order somebody would look: where an early one fails, later
ones are left out.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterable

from msgspec import Struct

from orbitmq.admin import brokers
from orbitmq.admin.answers import Failure, Found, failure_of
from orbitmq.admin.cluster import look
from orbitmq.admin.group_verdicts import RULE, Verdicts, findings_of, group_verdicts
from orbitmq.admin.session import Node, Session
from orbitmq.admin.verdict import Seen, Severity, findings, worst_first
from orbitmq.errors import BrokerError, OrbitMQError
from orbitmq.message.topics import TRACE_TOPIC
from orbitmq.operations.routes import cluster_info, route
from orbitmq.operations.settings import broker_settings


class Examined(Struct, frozen=True, rename="camel"):
    """One thing that was looked at."""

    check: str
    severity: Severity
    message: str
    remedy: str | None = None


# Rules of the verdict -> what is said when they find nothing.
_WELL = {
    "masters": "every broker name has a master",
    "one master": "no broker name has two",
    "reachable": "every broker answers at the address it registers",
    "store": "no broker tells of a failed disk",
    "disk": "there is room on the disks",
    "state": "no broker has found a state file damaged",
    "writes": "sends do not wait",
    "dispatch": "consumers see what is stored",
    "slaves": "slaves follow",
    "registrations": "name servers know the same brokers",
    "versions": "brokers have the same version",
    "clocks": "clocks agree",
}


async def examine(session: Session) -> Found[Examined]:
    """Everything, in order. The check fails for what is critical."""
    found = Found(await _name_servers(session))
    if any(row.severity is not Severity.CRITICAL for row in found.items):
        seen, runtimes, _ = await look(session)
        found.items += _cluster(seen, runtimes.failures)
        if seen.here:
            found.items += _groups(await group_verdicts(session))
        alive = [node for node in seen.nodes if node in seen.runtimes]
        found.items += await _permissions(session, alive)
        found.items.append(await _trace_topic(session))
    found.check_failed = any(row.severity is Severity.CRITICAL for row in found.items)
    return found


async def _name_servers(session: Session) -> list[Examined]:
    async def one(server: str) -> float:
        began = time.perf_counter()
        await cluster_info(session.remoting, server, timeout_ms=session.timeout_ms)
        return (time.perf_counter() - began) * 1000

    gathered = await session.every_name_server(one)
    rows = [
        Examined("name server", Severity.WELL, f"{server} answers in {ms:.0f} ms")
        for server, ms in gathered.answers.items()
    ]
    severity = Severity.WARNING if rows else Severity.CRITICAL
    remedy = "is it running? orbitmq namesrv; another address: -n host:port or NAMESRV_ADDR"
    silent = [
        Examined("name server", severity, f"{failure.target} does not answer: {failure.message}", remedy)
        for failure in gathered.failures
    ]
    return rows + silent


def _cluster(seen: Seen, failures: Iterable[Failure]) -> list[Examined]:
    """What the rules of the verdict find in all clusters, and what is well by them."""
    parts = [seen.of(name) for name in sorted({node.cluster for node in seen.nodes})] or [seen]
    found = [one for part in parts for one in findings(part)]
    reasons = {failure.target: failure.message for failure in failures}
    rows = [
        Examined(
            one.rule,
            one.severity,
            _reason(one.message, reasons.get(one.subject)),
            _remedy(seen, one.subject, one.remedy),
        )
        for one in found
        if one.rule != "name servers"
    ]
    if not seen.nodes:
        return rows
    bad = {one.rule for one in found}
    return [Examined(rule, Severity.WELL, text) for rule, text in _WELL.items() if rule not in bad] + rows


def _groups(verdicts: Verdicts) -> list[Examined]:
    """Consumer groups that are not well, the worst first."""
    rows = [Examined(one.rule, one.severity, one.message, one.remedy) for one in worst_first(findings_of(verdicts))]
    return rows or [Examined(RULE, Severity.WELL, f"{len(verdicts.items)} consumer groups are well")]


def _reason(message: str, reason: str | None) -> str:
    return message if reason is None else f"{message}: {reason}"


def _remedy(seen: Seen, subject: str, usual: str | None) -> str | None:
    """For an address of a container or of another network, how it can be reached all the same."""
    silent = (node for node in seen.nodes if node not in seen.runtimes and not node.is_away)
    node = next((node for node in silent if str(node) == subject), None)
    host, _, port = ("", "", "") if node is None else node.address.rpartition(":")
    if node is None or not is_private(host):
        return usual
    return f"{host} is an address of a private network: --map-addr {node.address}=127.0.0.1:{port}, or set brokerIP1"


def is_private(host: str) -> bool:
    """An address that means something else on another machine; this machine's own does not count."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_private and not address.is_loopback


async def _permissions(session: Session, nodes: list[Node]) -> list[Examined]:
    """Whether this account may ask for settings, and brokers may be written, by themselves and by the routes."""
    rows = []
    for node in nodes:
        try:
            settings = await broker_settings(session.remoting, node.address, timeout_ms=session.timeout_ms)
        except BrokerError as error:
            failure = failure_of(str(node), error)
            text = f"this account may not administer {node}: {failure.message}"
            rows.append(Examined("permission", Severity.WARNING, text, failure.hint))
            continue
        except OrbitMQError:
            continue  # it has been told that it does not answer
        if node.is_master and settings.values.get("brokerPermission", "6").strip() not in ("6", "7"):
            text = f"{node} is not readable and writable: brokerPermission={settings.values['brokerPermission']}"
            remedy = f"orbitmq broker config set brokerPermission=6 --broker {node.name}"
            rows.append(Examined("permission", Severity.WARNING, text, remedy))
    rows += await _wiped(session, sorted({node.name for node in nodes if node.is_master}))
    return rows or [Examined("permission", Severity.WELL, "brokers may be read, written and administered")]


async def _wiped(session: Session, names: list[str]) -> list[Examined]:
    rows = []
    for name in names:
        told = await session.every_name_server(lambda server, name=name: brokers.writable(session, server, name))  # type: ignore[misc]
        for server, allowed in told.answers.items():
            if allowed is False:
                text = f"name server {server} tells producers not to write to {name}"
                rows.append(Examined("permission", Severity.WARNING, text, f"orbitmq broker allow-writing {name}"))
    return rows


async def _trace_topic(session: Session) -> Examined:
    """Without it, traces of clients are lost without a word."""
    found = await session.any_name_server(
        lambda server: route(session.remoting, server, TRACE_TOPIC, timeout_ms=session.timeout_ms)
    )
    if found is None:
        text = f"there is no {TRACE_TOPIC}: messages cannot be traced, unless to a topic of one's own"
        return Examined("trace", Severity.WELL, text, "traceTopicEnable=true in a broker's configuration, for traces")
    return Examined("trace", Severity.WELL, f"{TRACE_TOPIC} takes traces")
