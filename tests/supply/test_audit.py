"""An audit says plainly whether somebody has answered, and which version has a known vulnerability."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from supply.audit import FOUND, NONE_KNOWN, UNKNOWN, Answer, answer, audit
from supply.locks import Locked

ONE, OTHER = Locked("one", "1.0", ("00",), ()), Locked("other", "2.1", ("11",), ())
WELL: dict[str, Any] = {"name": "one", "version": "1.0", "vulns": []}
HOLED = {
    "name": "other",
    "version": "2.1",
    "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-2026-1"], "fix_versions": ["2.2"], "description": "bad"}],
}
SKIPPED = {"name": "one", "skip_reason": "Dependency not found on PyPI and could not be audited: one (1.0)"}


def printed(*rows: dict[str, Any]) -> str:
    return json.dumps({"dependencies": rows, "fixes": []})


class Service:
    """Answers each question from its list, and keeps what it was asked."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = iter(answers)
        self.asked: list[list[str]] = []

    def __call__(self, locked: Sequence[Locked]) -> Answer:
        self.asked.append([one.name for one in locked])
        return next(self._answers)


def test_a_vulnerability_is_named_with_the_version_that_mends_it() -> None:
    found = answer(["one", "other"], printed(WELL, HOLED), "")
    assert found == Answer(("other 2.1: PYSEC-1 CVE-2026-1, mended in 2.2",))
    code, lines = audit([ONE, OTHER], Service(Answer(), found), "pypi")
    assert (code, lines) == (FOUND, ["VULNERABLE other 2.1: PYSEC-1 CVE-2026-1, mended in 2.2"])


def test_all_known_and_none_vulnerable_is_well() -> None:
    code, lines = audit([ONE, OTHER], Service(Answer(), answer(["one"], printed(WELL), "")), "pypi")
    assert code == NONE_KNOWN
    assert lines == ["2 packages: pypi knows of no vulnerability in the versions that are locked"]


def test_a_package_the_service_does_not_know_is_not_called_well() -> None:
    found = answer(["one", "other"], printed(SKIPPED, HOLED), "No known vulnerabilities found")
    assert found.without == ("one",)
    code, lines = audit([ONE, OTHER], Service(Answer(), found), "pypi")
    assert code == FOUND, "what was found goes before what was not looked at"
    assert lines[1:] == [
        "NOT AUDITED: 1 of 2 packages; pypi has no answer, for one:",
        "  Dependency not found on PyPI and could not be audited: one (1.0)",
    ]


def test_a_package_that_is_missing_from_the_answer_has_none() -> None:
    assert answer(["one", "other"], printed(WELL), "").without == ("other",)


def test_a_service_that_is_not_there_is_asked_once() -> None:
    silent = answer(["one"], "", "Traceback\nConnectionError: Failed to resolve 'api.osv.dev'\n")
    service = Service(silent)
    code, lines = audit([ONE, OTHER], service, "osv")
    assert (code, service.asked) == (UNKNOWN, [["one"]])
    assert lines == [
        "NOT AUDITED: 2 of 2 packages; osv has no answer, for one:",
        "  ConnectionError: Failed to resolve 'api.osv.dev'",
    ]
