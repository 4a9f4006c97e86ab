"""What repairs a finding: a page that there is, with the fields its form takes."""

from __future__ import annotations

from importlib import import_module

import pytest

from orbitmq.admin import diagnosis
from orbitmq.admin.verdict import Finding, Severity
from orbitmq.dashboard import pages
from orbitmq.dashboard.pages.remedies import OF, evidence_of, remedies
from orbitmq.dashboard.routes import PAGES

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


def test_a_finding_without_a_page_has_no_button() -> None:
    assert remedies(finding("offline"), "g") == []


def test_figures_are_told_in_words() -> None:
    shown = evidence_of(finding("x", lastPullAtMs=5, lagMessages=7))
    assert shown == [("lastPullAtMs", "last pull at", 5), ("lagMessages", "lag messages", 7)]
