"""The command `doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.cli.verbs import noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.results import Result
    from orbitmq.admin.session import Session
    from orbitmq.admin.verdict import Finding

app = noun("doctor", "Find what could keep clients from working, and what to do.")


@reads(app, "doctor", "Examination", ("SEVERITY=severity", "CHECK=rule", "MESSAGE=message", "REMEDY=remedy"))
async def doctor(session: Session) -> Result[Finding]:
    """Find what could keep clients from working, and say what to do. Checks name servers, brokers and the addresses
    they register, disks, clocks, versions, permissions and the trace topic.

    \b
    Exit code: 0 nothing is critical, 8 something is.

    \b
    Examples:
      orbitmq doctor
      orbitmq doctor -n 10.0.0.1:9876 -o json
    """
    from orbitmq.admin import doctor as looking

    return await looking.examine(session)
