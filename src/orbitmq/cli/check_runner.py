"""Runs a check: prints one line and exits as a Nagios plugin does, also after an error."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import msgspec

from orbitmq.admin import checks
from orbitmq.admin.checks import Check, CheckResult, CheckState
from orbitmq.admin.verdict import Limits
from orbitmq.cli.contexts import choose
from orbitmq.cli.execution import error_line, opened
from orbitmq.errors import ConfigurationError, OrbitMQError
from orbitmq.runtime.printable import printable, printable_json

FORMATS: dict[str, Callable[[CheckResult], str]] = {
    "nagios": checks.nagios,
    "json": lambda checked: msgspec.json.format(msgspec.json.encode(checked), indent=2).decode(),
    "prometheus": checks.prometheus,
}


@dataclass(frozen=True, slots=True)
class CheckTarget:
    """The cluster to check, and the timeout of each request."""

    name_servers: Sequence[str]
    context: str | None
    cluster: str | None
    mapped: Sequence[str]
    timeout_ms: float


def run(
    check: str, query: Check, limits: tuple[float | None, float | None], form: str, target: CheckTarget
) -> NoReturn:
    """End the process with 0, 1, 2 or 3. A check that cannot be done, or has wrong limits, is unknown (3). `limits` are
    the warning and the critical limit; None stands for the check's default."""
    usual = checks.DEFAULT_LIMITS[check]
    chosen = Limits(*(default if given is None else given for default, given in zip(usual, limits, strict=True)))
    try:
        if form not in FORMATS:
            raise ConfigurationError(f"--format {form}: use one of {', '.join(FORMATS)}")
        if chosen.warning > chosen.critical:
            raise ConfigurationError(
                f"the warning limit {chosen.warning:g} is above the critical limit {chosen.critical:g}"
            )
        checked = asyncio.run(_check(query, chosen, target))
    except OrbitMQError as error:
        checked = checks.unknown(check, error_line(error))
    except Exception as error:  # Python's own exit code for it, 1, would be a warning
        checked = checks.unknown(check, f"{type(error).__name__}: {error}")
    text = FORMATS.get(form, checks.nagios)(checked)
    print(printable_json(text) if form == "json" else printable(text, lines=True))
    sys.stdout.flush()
    raise SystemExit(CheckState[checked.state].value)


async def _check(query: Check, limits: Limits, target: CheckTarget) -> CheckResult:
    context = choose(target.name_servers, target.context, target.cluster, target.mapped)
    async with opened(context, target.timeout_ms) as session:
        return await query(session, limits)
