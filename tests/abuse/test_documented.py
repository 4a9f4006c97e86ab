"""The table of limits in docs/security.md is whole, and tells nothing that is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orbitmq.net.connection_options import ConnectionOptions
from orbitmq.runtime.refusals import Limit

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and line.count("|") == 7
]
SOURCES = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "orbitmq").rglob("*.py"))


def named(column: int) -> set[str]:
    return {name for row in ROWS[1:] for name in re.findall(r"`([a-z_]+)`", row[column])}


def test_each_limit_that_counts_has_a_row() -> None:
    assert named(5) == set(map(str, Limit))


@pytest.mark.parametrize("event", sorted(named(4)))
def test_each_line_of_the_log_that_it_names_is_written_somewhere(event: str) -> None:
    by_limit = event.removesuffix("_refused") in set(Limit) and "event=%s_refused " in SOURCES
    assert by_limit or f"event={event} " in SOURCES


def test_each_option_of_connections_is_told() -> None:
    for key in ConnectionOptions.table():
        assert f"`{key}`" in PAGE
