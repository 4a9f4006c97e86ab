"""The guide names every error a read can end with."""

from __future__ import annotations

import re
from pathlib import Path

import orbitmq.errors

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"ORBITMQ_[A-Z_]+")


def test_every_error_is_explained() -> None:
    sources = (ROOT / "src" / "orbitmq" / "spark").rglob("*.py")
    raised = {name for source in sources for name in NAME.findall(source.read_text())}
    table = (ROOT / "docs" / "spark.md").read_text().split("## Errors")[1]
    assert set(NAME.findall(table)) == raised == set(NAME.findall(orbitmq.errors.SourceError.__doc__ or ""))
