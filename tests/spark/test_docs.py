"""The guide names every error that Spark can pass on."""

from __future__ import annotations

import re
from pathlib import Path

import orbitmq.errors

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"ORBITMQ_[A-Z_]+")
RAISED = re.compile(r'SourceError\(\s*"(ORBITMQ_[A-Z_]+)"')


def test_every_error_is_explained() -> None:
    sources = (ROOT / "src" / "orbitmq" / "spark").rglob("*.py")
    raised = {name for source in sources for name in NAME.findall(source.read_text())}
    jobs = (ROOT / "src" / "orbitmq" / "pipeline").rglob("*.py")
    raised |= {name for job in jobs for name in RAISED.findall(job.read_text())}
    table = (ROOT / "docs" / "spark.md").read_text().split("## Errors")[1]
    assert set(NAME.findall(table)) == raised == set(NAME.findall(orbitmq.errors.SourceError.__doc__ or ""))
