"""What repairs a finding: a page that there is, with the fields its form takes."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from orbitmq.admin import consumption, diagnosis
from orbitmq.admin.verdict import Finding, Severity
from orbitmq.dashboard import pages
from orbitmq.dashboard.pages.remedies import OF, evidence_of, remedies
from orbitmq.dashboard.routes import PAGES
from orbitmq.dashboard.words import TITLES

for name in pages.MODULES:
    import_module(f"{pages.__name__}.{name}")

EVIDENCE: dict[str, diagnosis.Figure] = {"topic": "T/1", "broker": "broker-a", "clientId": "10.0.0.9@1/x"}


def finding(rule: str, **evidence: diagnosis.Figure) -> Finding:
    return Finding(Severity.CRITICAL, rule, "billing", "", None, evidence)


@pytest.mark.parametrize("rule", OF)
def test_a_remedy_leads_to_a_page_there_is(rule: str) -> None:
    found = remedies(finding(rule, **EVIDENCE), "g%1")
    assert len(found) == 1, "its page is in the table"
    (page,) = [page for page in PAGES if page.path == found[0].page and page.writes == bool(found[0].fields)]
    assert found[0].role == page.role
    parts = found[0].path.partition("?")[0].partition("#")[0].split("/")
    assert len(parts) == len(page.path.split("/")), "what is put into the path is escaped"


def test_what_is_found_about_a_member_has_a_title() -> None:
    sources = [Path(module.__file__ or "").read_text(encoding="utf-8") for module in (consumption, diagnosis)]
    rules = {rule for text in sources for rule in re.findall(r'(?:critical|warning|make)\(\s*e,\s*"([a-z-]+)"', text)}
    assert len(rules) > 10
    assert rules - TITLES.keys() == set()


def test_a_finding_without_a_page_has_no_button() -> None:
    assert remedies(finding("offline"), "g") == []


def test_figures_are_told_in_words() -> None:
    shown = evidence_of(finding("x", lastPullAtMs=5, lagMessages=7))
    assert shown == [("lastPullAtMs", "last pull at", 5), ("lagMessages", "lag messages", 7)]
