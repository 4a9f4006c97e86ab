"""Checks for a monitoring system: the part of the verdict that one covers, with its measurements.

States and the form of values are those of Nagios plugins. What is not known is UNKNOWN, never OK.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct, field
from msgspec.structs import replace

from orbitmq.admin.cluster import each_runtime
from orbitmq.admin.doctor import name_servers, response_times
from orbitmq.admin.evidence import WATCH_SECONDS, why
from orbitmq.admin.group_verdicts import findings_of, group_verdicts
from orbitmq.admin.progress import progress
from orbitmq.admin.results import Failure
from orbitmq.admin.runtime import Runtime
from orbitmq.admin.session import Node, Session
from orbitmq.admin.topics import status
from orbitmq.admin.verdict import (
    LIMITS,
    ORDER,
    ClusterEvidence,
    Finding,
    Limits,
    Severity,
    bytes_behind,
    disk_ratio,
    findings,
    send_wait_ms,
    summary,
    worst,
    worst_first,
)
from orbitmq.errors import NotFound
from orbitmq.message.topics import dlq_topic


class CheckState(IntEnum):
    """The exit codes of a Nagios plugin."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


STATES = {
    Severity.WELL: CheckState.OK,
    Severity.WARNING: CheckState.WARNING,
    Severity.CRITICAL: CheckState.CRITICAL,
    Severity.UNKNOWN: CheckState.UNKNOWN,
}


class Measurement(Struct, frozen=True, rename="camel"):
    """One measured value and its limits."""

    label: str
    value: float
    unit: str
    """`ms`, `B` for bytes, `%`, or nothing for a count."""
    warning: float
    critical: float


class CheckResult(Struct, frozen=True, rename="camel"):
    """The result of one check."""

    check: str
    state: str
    """OK, WARNING, CRITICAL or UNKNOWN."""
    message: str
    measured: list[Measurement] = field(name="figures")


Check = Callable[[Session, Limits], Awaitable[CheckResult]]

DEFAULT_LIMITS: dict[str, Limits] = {
    # ms. A name server responds from memory: half a second means that the network or the machine is in trouble.
    "connection": Limits(500, 2000),
    "broker": LIMITS["writes"],
    "disk": Limits(*(100 * ratio for ratio in LIMITS["disk"])),
    "lag": Limits(10_000, 100_000),
    "group": Limits(1, 1),  # a group that is critical processes nothing, or fails with everything
    "dlq": Limits(1, 100),  # nothing consumes dead letters: report the first one
    "replica": LIMITS["slaves"],
}
"""Check -> the default thresholds of warning and critical."""


def result(
    check: str,
    measured: Sequence[Measurement],
    text: str,
    *,
    found: Iterable[Finding] = (),
    failures: Sequence[Failure] = (),
) -> CheckResult:
    """The worst result. With `failures` a part is missing: critical stays critical, any other becomes unknown."""
    bad = worst_first(one for one in found if one.severity is not Severity.WELL)
    by_limits = [Limits(one.warning, one.critical).severity(one.value) for one in measured]
    state = STATES[min([worst(bad), *by_limits], key=ORDER.index)]
    text = summary(bad) if bad else text
    if failures:
        names = ", ".join(failure.target for failure in failures)
        text = f"{text}; without {names}: {failures[0].message}" if text else f"{names}: {failures[0].message}"
        state = state if state is CheckState.CRITICAL else CheckState.UNKNOWN
    return CheckResult(check, state.name, text, list(measured))


def unknown(check: str, text: str) -> CheckResult:
    return CheckResult(check, CheckState.UNKNOWN.name, text, [])


async def connection(session: Session, limits: Limits) -> CheckResult:
    """How fast each name server responds; one that does not is critical."""
    gathered = await response_times(session)
    measured = [Measurement(server, round(ms, 1), "ms", *limits) for server, ms in gathered.responses.items()]
    found = _critical(name_servers(gathered))
    return result("connection", measured, _count(len(measured), "name server", "responds"), found=found)


async def broker(session: Session, limits: Limits, name: str | None = None) -> CheckResult:
    """Whether brokers, slaves too, respond and take messages, and how long sends wait there; limits in ms."""
    seen, _ = await _brokers(session, name, {**LIMITS, "writes": limits})
    measured = _measured(seen, "ms", limits, send_wait_ms)
    rules = {"brokers", "masters", "reachable", "store"}
    if name is not None and any(name != node.name and not node.is_master for node in seen.nodes):
        rules.remove("masters")  # a slave by its id or address: whether it has a master was not looked up
    found = _critical(_of_rules(seen, rules)) + _of_rules(seen, {"writes"})
    return result("broker", measured, _count(len(seen.nodes), "broker", "responds"), found=found)


async def disk(session: Session, limits: Limits, name: str | None = None) -> CheckResult:
    """The disk usage of brokers; thresholds in percent alone decide."""
    seen, failures = await _brokers(session, name, LIMITS)
    measured = _measured(seen, "%", limits, _disk_percent)
    if not measured and not failures:
        return unknown("disk", "no broker reports how full its disk is")
    fullest = max(measured, key=lambda one: one.value, default=None)
    text = "" if fullest is None else f"the fullest disk is {fullest.label}'s with {fullest.value:g} %"
    return result("disk", measured, text, failures=failures)


async def lag(session: Session, limits: Limits, group: str) -> CheckResult:
    """The lag of a group without retries; thresholds in messages alone decide."""
    found = await progress(session, group, clients=False)
    (row,) = found.items
    if row.lag_messages is None and not found.failures:
        text = f"the lag of {group} is not known"
        return unknown("lag", f"{text}: it broadcasts" if row.model == "BROADCASTING" else text)
    behind = row.known_lag_messages if row.lag_messages is None else row.lag_messages
    measured = [Measurement(group, float(behind), "", *limits)]
    return result("lag", measured, f"{group} is {behind} messages behind", failures=found.failures)


async def dlq(session: Session, limits: Limits, group: str) -> CheckResult:
    """How many dead letters of a group are kept; limits in messages. No topic is no letter."""
    try:
        found = await status(session, dlq_topic(group))
    except NotFound:
        return result("dlq", [Measurement(group, 0.0, "", *limits)], f"{group} has no dead letters")
    letters = sum(row.messages for row in found.items)
    measured = [Measurement(group, float(letters), "", *limits)]
    return result("dlq", measured, f"{group} has {letters} dead letters", failures=found.failures)


async def group(session: Session, limits: Limits, group: str | None = None) -> CheckResult:
    """Whether one group, or every group, is healthy, as judged by `group why`. Critical findings fail the check,
    warnings make it a warning, and a group without enough observations makes it unknown."""
    if group is None:
        verdicts = await group_verdicts(session)
        found, failures, in_all = list(findings_of(verdicts)), verdicts.failures, len(verdicts.items)
    else:
        diagnosis = await why(session, group, watch_seconds=WATCH_SECONDS)
        found, failures, in_all = diagnosis.items[:1], diagnosis.failures, 1
    bad = sum(one.severity is Severity.CRITICAL for one in found)
    if limits.severity(bad) is not Severity.CRITICAL:
        found = [replace(one, severity=Severity.WARNING) if one.severity is Severity.CRITICAL else one for one in found]
    measured = [Measurement("critical groups", float(bad), "", *limits)]
    return result("group", measured, _count(in_all, "group", "is well"), found=found, failures=failures)


async def replica(session: Session, limits: Limits) -> CheckResult:
    """How far slaves are behind their masters; limits in bytes. A broker name without a master is critical."""
    seen, failures = await _brokers(session, None, {**LIMITS, "slaves": limits})
    masters = {node.name: seen.runtimes.get(node) for node in seen.nodes if node.is_master}
    measured = [
        Measurement(_label(node), float(behind), "B", *limits)
        for node in seen.nodes
        if not node.is_master and (behind := bytes_behind(masters.get(node.name), seen.runtimes.get(node))) is not None
    ]
    slaves = sum(not node.is_master for node in seen.nodes)
    found = _of_rules(seen, {"masters", "slaves"})
    return result("replica", measured, _count(slaves, "slave", "follows"), found=found, failures=failures)


async def _brokers(
    session: Session, name: str | None, limits: Mapping[str, Limits]
) -> tuple[ClusterEvidence, list[Failure]]:
    """All brokers, or the named one, with those that did not respond."""
    nodes = await session.nodes() if name is None else [await session.node(name)]
    runtimes = await each_runtime(session, nodes)
    evidence = ClusterEvidence(nodes, runtimes.responses, {}, [], limits=limits)
    return evidence, runtimes.failures


def _of_rules(evidence: ClusterEvidence, rules: Collection[str]) -> list[Finding]:
    return [one for one in findings(evidence) if one.rule in rules]


def _critical(found: Iterable[Finding]) -> list[Finding]:
    """A failure of a check's subject is critical for the check, even if the cluster still works."""
    return [replace(one, severity=Severity.CRITICAL) for one in found if one.severity is not Severity.WELL]


def _measured(
    seen: ClusterEvidence, unit: str, limits: Limits, value_of: Callable[[Runtime], float | None]
) -> list[Measurement]:
    return [
        Measurement(_label(node), float(value), unit, *limits)
        for node, runtime in seen.runtimes.items()
        if (value := value_of(runtime)) is not None
    ]


def _disk_percent(runtime: Runtime) -> float | None:
    ratio = disk_ratio(runtime)
    return None if ratio is None else round(ratio * 100, 1)


def _count(number: int, noun: str, verb: str) -> str:
    """`1 broker responds`, `2 brokers respond`."""
    plural = "are well" if verb == "is well" else verb.removesuffix("s")
    return f"1 {noun} {verb}" if number == 1 else f"{number} {noun}s {plural}"


def _label(node: Node) -> str:
    return node.name if node.is_master else f"{node.name}:{node.id}"


def nagios(checked: CheckResult) -> str:
    """`ORBITMQ LAG WARNING - billing is 12000 messages behind | 'billing'=12000;10000;100000;0`."""
    metrics = " ".join(
        f"'{one.label}'={_plain(one.value)}{one.unit};{_plain(one.warning)};{_plain(one.critical)};0"
        for one in checked.measured
    )
    text = " ".join(checked.message.replace("|", "/").split())
    return f"ORBITMQ {checked.check.upper()} {checked.state} - {text}" + (f" | {metrics}" if metrics else "")


def _plain(value: float) -> str:
    """Without an exponent, which not every reader takes."""
    return str(int(value)) if value == int(value) else f"{value:.3f}".rstrip("0")


def prometheus(checked: CheckResult) -> str:
    """The text format, for a collector of files."""
    lines = [
        "# HELP orbitmq_check_state 0 well, 1 warning, 2 critical, 3 unknown.",
        "# TYPE orbitmq_check_state gauge",
        f'orbitmq_check_state{{check="{checked.check}"}} {CheckState[checked.state].value}',
    ]
    if checked.measured:
        lines += ["# HELP orbitmq_check_value What was measured.", "# TYPE orbitmq_check_value gauge"]
    for one in checked.measured:
        subject = one.label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        lines.append(
            f'orbitmq_check_value{{check="{checked.check}",subject="{subject}",unit="{one.unit}"}} {_plain(one.value)}'
        )
    return "\n".join(lines)
