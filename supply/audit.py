"""Whether a locked version has a known vulnerability (`make audit`). Ends with 0: none has; 1: one has; 2: unknown.

pip-audit asks, PyPI unless AUDIT_SERVICE=osv. It says that nothing is known, and ends with 0, also where the service
knows none of the packages, as behind a mirror that serves files alone. Here, no answer is no good answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from supply.locks import LOCKS, Locked, path, read

NONE_KNOWN, FOUND, UNKNOWN = 0, 1, 2
TIMEOUT_S = 900  # the service is asked for each package, one after the other

Ask = Callable[[Sequence[Locked]], "Answer"]


@dataclass(frozen=True)
class Answer:
    """`found` is a line each; `without` are names the service said nothing about, for `reason`."""

    found: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    reason: str = ""


def answer(asked: Iterable[str], printed: str, errors: str) -> Answer:
    """What pip-audit has said of the packages it was `asked` about."""
    names = tuple(asked)
    try:
        rows = {row["name"]: row for row in json.loads(printed)["dependencies"]}
    except ValueError:  # it ended before it had anything to print
        last = errors.strip().splitlines()[-1:] or ["pip-audit printed nothing"]
        return Answer(without=names, reason=last[0])
    found = [_line(row, one) for row in rows.values() for one in row.get("vulns", ())]
    without = [name for name in names if "vulns" not in rows.get(name, {})]
    reasons = [rows[name]["skip_reason"] for name in without if name in rows]
    return Answer(tuple(found), tuple(without), reasons[0] if reasons else "it was left out" if without else "")


def _line(row: dict[str, str], vulnerability: dict[str, list[str]]) -> str:
    fixed = ", ".join(vulnerability["fix_versions"]) or "no version yet"
    names = " ".join([str(vulnerability["id"]), *vulnerability.get("aliases", ())])
    return f"{row['name']} {row['version']}: {names}, mended in {fixed}"


def audit(locked: Sequence[Locked], ask: Ask, service: str) -> tuple[int, list[str]]:
    """Exit code and lines. One package is asked about first: a service that is not there is not asked for more."""
    told = ask(locked[:1])
    missing = len(locked)
    if not told.without:
        told = ask(locked)
        missing = len(told.without)
    lines = [f"VULNERABLE {line}" for line in told.found]
    if told.without:
        lines.append(
            f"NOT AUDITED: {missing} of {len(locked)} packages; {service} has no answer, for {told.without[0]}:"
        )
        lines.append(f"  {told.reason}")
    if not lines:
        lines.append(f"{len(locked)} packages: {service} knows of no vulnerability in the versions that are locked")
    return (FOUND if told.found else UNKNOWN if told.without else NONE_KNOWN), lines


def _pip_audit(service: str) -> Ask:
    def ask(locked: Sequence[Locked]) -> Answer:
        with tempfile.TemporaryDirectory() as place:
            wanted = Path(place) / "asked.txt"
            wanted.write_text("".join(f"{one.name}=={one.version}\n" for one in locked), encoding="utf-8")
            how = ("--no-deps", "--disable-pip", "--progress-spinner", "off", "-f", "json")
            ended = subprocess.run(
                [sys.executable, "-m", "pip_audit", "-s", service, "-r", str(wanted), *how],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        return answer([one.name for one in locked], ended.stdout, ended.stderr)

    return ask


def main() -> int:
    service = os.environ.get("AUDIT_SERVICE", "pypi")
    every = {(one.name, one.version): one for lock in LOCKS for one in read(path(lock).read_text(encoding="utf-8"))}
    code, lines = audit([*every.values()], _pip_audit(service), service)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
