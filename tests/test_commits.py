"""Commit messages have one form: `area: imperative summary`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FIRST = "e1d3e4f32f34b47babee967b571c0e671fa4dbbf"
"""The form is checked of the commits after this one; older messages stay as they are."""
LENGTH_MAX = 72
"""What `git log` shows on 80 columns."""
FORM = re.compile(r"[a-z][a-z0-9_/.-]*(, [a-z0-9_/.-]+)*: [A-Za-z]\S*( \S+)*")
NOT_IMPERATIVE = re.compile(r": (?!need\b|feed\b|embed\b|seed\b|speed\b|bring\b)\w+(ed|ing) ", re.IGNORECASE)


def _fault_of(subject: str) -> str | None:
    """What is wrong with the first line of a message; None where nothing is."""
    if len(subject) > LENGTH_MAX:
        return f"{len(subject)} characters, more than {LENGTH_MAX}"
    if not FORM.fullmatch(subject) or subject.endswith(".") or ";" in subject:
        return "not of the form `area: imperative summary`, without a full stop or a semicolon"
    return "begins with no imperative" if NOT_IMPERATIVE.search(subject) else None


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_commit_messages_have_the_form() -> None:
    known = _git("merge-base", "--is-ancestor", FIRST, "HEAD")
    if known.returncode:
        pytest.skip(f"no checkout with the history since {FIRST[:12]}: {known.stderr.strip()}")
    log = _git("log", "--no-merges", "--format=%h %s", f"{FIRST}..HEAD").stdout.splitlines()
    faults = [(line, _fault_of(line.split(" ", 1)[1])) for line in log]
    assert not [f"{line}: {fault}" for line, fault in faults if fault]


@pytest.mark.parametrize(
    "subject", ["broker: refuse an empty topic", "client, docs: need no loop", "cli/top: show the lag of queue 0"]
)
def test_a_message_of_the_form_is_taken(subject: str) -> None:
    assert _fault_of(subject) is None


@pytest.mark.parametrize(
    "subject",
    [
        "refuse an empty topic",
        "broker: refused an empty topic",
        "broker: refusing an empty topic",
        "broker: refuse an empty topic.",
        "broker: refuse an empty topic; count them",
        "broker:refuse an empty topic",
        "Merge: everything",
        f"broker: refuse {'very ' * 12}long topics",
    ],
)
def test_a_message_of_another_form_is_refused(subject: str) -> None:
    assert _fault_of(subject) is not None
