"""Files of cluster configuration: read, completed with secrets, and written completely or not at all."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from orbitmq.admin import config_as_code
from orbitmq.admin.declared import Document, SecretReference, dump, parse
from orbitmq.admin.plans import Plan, Step, StepOutcome
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.cli.contexts import Context, choose
from orbitmq.cli.execution import error_line, opened
from orbitmq.cli.exit_codes import EXIT_FAILED, EXIT_UNREACHABLE, exit_code, fail
from orbitmq.cli.safe_output import safe
from orbitmq.cli.secrets import secret_of
from orbitmq.errors import ConfigurationError, OrbitMQError
from orbitmq.runtime.files import save_with_backup

COMMAND = "config export"


async def plan(session: Session, file: Path, *, prune: bool) -> Plan:
    """The plan that makes the cluster match the file."""
    return await config_as_code.plan_apply(session, read(file), _fetched, prune=prune)


async def differences(session: Session, file: Path, *, prune: bool) -> Result[Step]:
    """The steps that would change something; the check fails if there are any."""
    found = (await plan(session, file, prune=prune)).preview()
    found.items = [step for step in found.items if step.outcome is not StepOutcome.UNCHANGED]
    found.check_failed = bool(found.items)
    return found


def read(file: Path) -> Document:
    """ConfigurationError names the file and the position."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        return parse(text)
    except (OSError, UnicodeError, ConfigurationError) as error:
        raise ConfigurationError(f"{file}: {error}") from error


def _fetched(reference: SecretReference) -> str | None:
    return secret_of(reference.env, None if reference.file is None else Path(reference.file))


def export(
    sections: Sequence[str],
    file: Path | None,
    name_servers: Sequence[str],
    context_name: str | None,
    cluster: str | None,
    mapped: Sequence[str],
    timeout_ms: float,
) -> None:
    """Ends the process unless every broker responded."""
    try:
        if wrong := sorted(set(sections) - set(config_as_code.SECTIONS)):
            raise ConfigurationError(f"{wrong[0]}: the sections are {', '.join(config_as_code.SECTIONS)}")
        context = choose(name_servers, context_name, cluster, mapped)
        found = asyncio.run(_exported(context, sections or ("topics", "groups"), timeout_ms))
        if found.failures:
            lines = "; ".join(f"{failure.target}: {failure.message}" for failure in found.failures)
            fail(COMMAND, f"nothing is written: {lines}", EXIT_UNREACHABLE)
        text = dump(found.items[0])
        if file is None:
            safe(sys.stdout).write(text)
        else:
            save_with_backup(file, text)
    except (OrbitMQError, OSError) as error:
        text = error_line(error) if isinstance(error, OrbitMQError) else str(error)
        fail(COMMAND, text, exit_code(error) or EXIT_FAILED)


async def _exported(context: Context, sections: Sequence[str], timeout_ms: float) -> Result[Document]:
    async with opened(context, timeout_ms) as session:
        return await config_as_code.export(session, sections)
