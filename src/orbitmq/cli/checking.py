"""A check at work: one question, one line, and the exit code of a Nagios plugin, whatever happens."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import msgspec

from orbitmq.admin import checks
from orbitmq.admin.checks import Checked, State
from orbitmq.admin.session import Session
from orbitmq.cli.contexts import choose
from orbitmq.cli.performing import opened, told_error
from orbitmq.errors import ConfigurationError, OrbitMQError
from orbitmq.runtime.visible import visible, visible_json

FORMATS: dict[str, Callable[[Checked], str]] = {
    "nagios": checks.nagios,
    "json": lambda checked: msgspec.json.format(msgspec.json.encode(checked), indent=2).decode(),
    "prometheus": checks.prometheus,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Where the check warns and where it is critical; None is the check's own."""

    warning: float | None
    critical: float | None


@dataclass(frozen=True, slots=True)
class Reach:
    """Which cluster, and how long is waited for each answer."""

    name_servers: Sequence[str]
    context: str | None
    cluster: str | None
    mapped: Sequence[str]
    timeout_ms: float


def run(
    check: str, question: Callable[[Session, float, float], Awaitable[Checked]], limits: Limits, form: str, reach: Reach
) -> NoReturn:
    """Ends the process with 0, 1, 2 or 3; what cannot be asked is unknown (3), as is a wrong limit."""
    usual = checks.LIMITS[check]
    warning = usual[0] if limits.warning is None else limits.warning
    critical = usual[1] if limits.critical is None else limits.critical
    try:
        if form not in FORMATS:
            raise ConfigurationError(f"--format {form}: give one of {', '.join(FORMATS)}")
        if warning > critical:
            raise ConfigurationError(f"the warning limit {warning:g} is above the critical limit {critical:g}")
        checked = asyncio.run(_asked(question, warning, critical, reach))
    except OrbitMQError as error:
        checked = Checked(check, State.UNKNOWN.name, told_error(error), [])
    except Exception as error:  # Python's own exit code, 1, would be a warning
        checked = Checked(check, State.UNKNOWN.name, f"{type(error).__name__}: {error}", [])
    text = FORMATS.get(form, checks.nagios)(checked)
    print(visible_json(text) if form == "json" else visible(text, lines=True))
    sys.stdout.flush()
    raise SystemExit(State[checked.state].value)


async def _asked(
    question: Callable[[Session, float, float], Awaitable[Checked]], warning: float, critical: float, reach: Reach
) -> Checked:
    context = choose(reach.name_servers, reach.context, reach.cluster, reach.mapped)
    async with opened(context, reach.timeout_ms) as session:
        return await question(session, warning, critical)
