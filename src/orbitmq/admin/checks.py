"""Checks for a monitoring system that asks one question at a time: a state, a line, figures with their limits.

States and the form of figures are those of Nagios plugins. What is not known is unknown, never well.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum

import msgspec
from msgspec import Struct

from orbitmq.admin.answers import Failure
from orbitmq.admin.cluster import each_runtime
from orbitmq.admin.evidence import WATCH_SECONDS, why
from orbitmq.admin.group_verdicts import RULE, findings_of, group_verdicts
from orbitmq.admin.progress import progress
from orbitmq.admin.session import Node, Session
from orbitmq.admin.topics import status
from orbitmq.admin.verdict import (
    BEHIND_CRITICAL,
    BEHIND_WARNING,
    DISK_CRITICAL,
    DISK_WARNING,
    WAIT_CRITICAL_MS,
    WAIT_WARNING_MS,
    Finding,
    Severity,
    bytes_behind,
    sentence,
    worst_first,
)
from orbitmq.errors import NotFound, OrbitMQError
from orbitmq.message.topics import dlq_topic
from orbitmq.operations.routes import cluster_info

CONNECTION_WARNING_MS, CONNECTION_CRITICAL_MS = 500.0, 2000.0
"""A name server answers from memory: half a second is a network or a machine in trouble."""
LAG_WARNING, LAG_CRITICAL = 10_000.0, 100_000.0
DLQ_WARNING, DLQ_CRITICAL = 1.0, 100.0
"""A dead letter is a message nobody has processed: the first one is worth a look."""


GROUPS_WARNING, GROUPS_CRITICAL = 1.0, 1.0
"""A group that is critical processes nothing, or fails with everything."""


class State(IntEnum):
    """The exit codes of a Nagios plugin."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class Figure(Struct, frozen=True, rename="camel"):
    """One measured value and what it is held against."""

    label: str
    value: float
    unit: str
    """`ms`, `B` for bytes, `%`, or nothing for a count."""
    warning: float
    critical: float


class Checked(Struct, frozen=True, rename="camel"):
    """The outcome of one check."""

    check: str
    state: str
    """OK, WARNING, CRITICAL or UNKNOWN."""
    message: str
    figures: list[Figure]


Question = Callable[[Session, float, float], Awaitable[Checked]]


def state_of(figures: Sequence[Figure]) -> State:
    """The worst of them; a limit is reached by the value that equals it."""
    if any(one.value >= one.critical for one in figures):
        return State.CRITICAL
    return State.WARNING if any(one.value >= one.warning for one in figures) else State.OK


def judged(check: str, figures: Sequence[Figure], failures: Sequence[Failure], text: str) -> Checked:
    """What figures say, and what is not known: a limit that is reached without the missing part stays reached, else the
    check knows nothing.
    """
    state = state_of(figures)
    if failures:
        names = ", ".join(failure.target for failure in failures)
        text = f"{text}; without {names}: {failures[0].message}" if text else f"{names}: {failures[0].message}"
        state = state if state is State.CRITICAL else State.UNKNOWN
    return Checked(check, state.name, text, list(figures))


def unknown(check: str, error: OrbitMQError) -> Checked:
    return Checked(check, State.UNKNOWN.name, str(error), [])


async def connection(session: Session, warning: float, critical: float) -> Checked:
    """How long each name server takes to answer; one that does not is critical."""

    async def one(server: str) -> float:
        began = time.perf_counter()
        await cluster_info(session.remoting, server, timeout_ms=session.timeout_ms)
        return (time.perf_counter() - began) * 1000

    gathered = await session.every_name_server(one)
    figures = [Figure(server, round(ms, 1), "ms", warning, critical) for server, ms in gathered.answers.items()]
    if gathered.failures:
        silent = ", ".join(failure.target for failure in gathered.failures)
        text = f"name server {silent} does not answer"
        return Checked("connection", State.CRITICAL.name, text, figures)
    return judged("connection", figures, (), f"{len(figures)} name servers answer")


async def broker(session: Session, warning: float, critical: float, name: str | None = None) -> Checked:
    """Whether brokers answer and take messages, and how long sends wait there; limits in ms."""
    nodes = await session.nodes() if name is None else [await session.node(name)]
    runtimes = await each_runtime(session, nodes)
    dead = [str(node) for node in nodes if node not in runtimes.answers]
    poisoned = [str(node) for node, runtime in runtimes.answers.items() if runtime.active is False]
    figures = [
        Figure(_label(node), float(wait), "ms", warning, critical)
        for node, runtime in runtimes.answers.items()
        if (wait := runtime.send_queue.oldest_ms) is not None
    ]
    if dead or poisoned or not nodes:
        told = [f"{one} does not answer" for one in dead] + [f"the disk of {one} has failed" for one in poisoned]
        text = "; ".join(told) or "no broker is registered"
        return Checked("broker", State.CRITICAL.name, text, figures)
    return judged("broker", figures, (), f"{len(nodes)} brokers answer")


async def disk(session: Session, warning: float, critical: float, name: str | None = None) -> Checked:
    """How full the disks of brokers are; limits in percent."""
    nodes = await session.nodes() if name is None else [await session.node(name)]
    runtimes = await each_runtime(session, nodes)
    ratios = {node: runtime.log_disk_ratio for node, runtime in runtimes.answers.items()}
    figures = [
        Figure(_label(node), round(ratio * 100, 1), "%", warning, critical)
        for node, ratio in ratios.items()
        if ratio is not None
    ]
    if not figures and not runtimes.failures:
        return Checked("disk", State.UNKNOWN.name, "no broker tells how full its disk is", [])
    fullest = max(figures, key=lambda figure: figure.value, default=None)
    text = "" if fullest is None else f"the fullest disk is {fullest.label}'s with {fullest.value:g} %"
    return judged("disk", figures, runtimes.failures, text)


async def lag(session: Session, warning: float, critical: float, group: str) -> Checked:
    """How many messages a group is behind, its retries apart; limits in messages."""
    found = await progress(session, group, clients=False)
    (row,) = found.items
    if row.lag_messages is None and not found.failures:
        text = f"how far {group} is cannot be told"
        return Checked("lag", State.UNKNOWN.name, f"{text}: it broadcasts" if row.model == "BROADCASTING" else text, [])
    behind = row.known_lag_messages if row.lag_messages is None else row.lag_messages
    figures = [Figure(group, float(behind), "", warning, critical)]
    return judged("lag", figures, found.failures, f"{group} is {behind} messages behind")


async def dlq(session: Session, warning: float, critical: float, group: str) -> Checked:
    """How many dead letters of a group are kept; limits in messages. No topic is no letter."""
    try:
        found = await status(session, dlq_topic(group))
    except NotFound:
        return judged("dlq", [Figure(group, 0.0, "", warning, critical)], (), f"{group} has no dead letters")
    letters = sum(row.messages for row in found.items)
    figures = [Figure(group, float(letters), "", warning, critical)]
    return judged("dlq", figures, found.failures, f"{group} has {letters} dead letters")


async def group(session: Session, warning: float, critical: float, group: str | None = None) -> Checked:
    """Whether a group is well, or every group, as `group why` judges; limits in groups that are critical. One with a
    warning makes it a warning, one of which it is too early to tell makes it unknown.
    """
    if group is None:
        verdicts = await group_verdicts(session)
        found, failures, in_all = worst_first(findings_of(verdicts)), verdicts.failures, len(verdicts.items)
    else:
        told = await why(session, group, watch_seconds=WATCH_SECONDS)
        worst, failures, in_all = told.items[0], told.failures, 1
        found = [Finding(worst.severity, RULE, group, worst.sentence)] if worst.severity is not Severity.WELL else []
    bad = sum(one.severity is Severity.CRITICAL for one in found)
    figures = [Figure("critical groups", float(bad), "", warning, critical)]
    state = state_of(figures)
    if state is State.OK and found:
        state = State.UNKNOWN if found[0].severity is Severity.UNKNOWN else State.WARNING
    text = sentence(found) if found else f"{in_all} group{' is' if in_all == 1 else 's are'} well"
    checked = judged("group", figures, failures, text)
    return checked if failures else msgspec.structs.replace(checked, state=state.name)


async def replica(session: Session, warning: float, critical: float) -> Checked:
    """How far slaves are behind their masters; limits in bytes. A name without a master is critical."""
    nodes = await session.nodes()
    runtimes = await each_runtime(session, nodes)
    masters = {node.name: runtimes.answers.get(node) for node in nodes if node.is_master}
    slaves = [node for node in nodes if not node.is_master]
    figures = [
        Figure(_label(node), float(behind), "B", warning, critical)
        for node in slaves
        if (behind := bytes_behind(masters.get(node.name), runtimes.answers.get(node))) is not None
    ]
    if headless := await session.headless():
        return Checked("replica", State.CRITICAL.name, f"{', '.join(headless)} has no master", figures)
    return judged("replica", figures, runtimes.failures, f"{len(slaves)} slaves")


def _label(node: Node) -> str:
    return node.name if node.is_master else f"{node.name}:{node.id}"


LIMITS = {
    "connection": (CONNECTION_WARNING_MS, CONNECTION_CRITICAL_MS),
    "broker": (float(WAIT_WARNING_MS), float(WAIT_CRITICAL_MS)),
    "disk": (DISK_WARNING * 100, DISK_CRITICAL * 100),
    "lag": (LAG_WARNING, LAG_CRITICAL),
    "group": (GROUPS_WARNING, GROUPS_CRITICAL),
    "dlq": (DLQ_WARNING, DLQ_CRITICAL),
    "replica": (float(BEHIND_WARNING), float(BEHIND_CRITICAL)),
}
"""Check -> where it warns and where it is critical, unless told otherwise."""


def nagios(checked: Checked) -> str:
    """`ORBITMQ LAG WARNING - billing is 12000 messages behind | 'billing'=12000;10000;100000;0`."""
    figures = " ".join(
        f"'{one.label}'={_plain(one.value)}{one.unit};{_plain(one.warning)};{_plain(one.critical)};0"
        for one in checked.figures
    )
    text = " ".join(checked.message.replace("|", "/").split())
    return f"ORBITMQ {checked.check.upper()} {checked.state} - {text}" + (f" | {figures}" if figures else "")


def _plain(value: float) -> str:
    """Without an exponent, which not every reader takes."""
    return str(int(value)) if value == int(value) else f"{value:.3f}".rstrip("0")


def prometheus(checked: Checked) -> str:
    """The text format, for a collector of files."""
    lines = [
        "# HELP orbitmq_check_state 0 well, 1 warning, 2 critical, 3 unknown.",
        "# TYPE orbitmq_check_state gauge",
        f'orbitmq_check_state{{check="{checked.check}"}} {State[checked.state].value}',
    ]
    if checked.figures:
        lines += ["# HELP orbitmq_check_value What was measured.", "# TYPE orbitmq_check_value gauge"]
    for one in checked.figures:
        subject = one.label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        lines.append(
            f'orbitmq_check_value{{check="{checked.check}",subject="{subject}",unit="{one.unit}"}} {_plain(one.value)}'
        )
    return "\n".join(lines)
