"""The wheel imports nothing that only developers install."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTING = ROOT / "src" / "orbitmq" / "testing"
"""Fixtures of pytest: who uses them has it."""


def _imported(path: Path) -> set[str]:
    """The top-level packages that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", line)[0].lower() for line in requirements}


def test_the_package_imports_no_development_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    run_time = _names(project["dependencies"]).union(*(_names(extras[name]) for name in extras if name != "dev"))
    owners = {name: {owner.lower() for owner in by} for name, by in packages_distributions().items()}
    packages = {name for name, by in owners.items() if by & _names(extras["dev"]) and not by & run_time}
    assert {"griffe", "pytest", "hypothesis"} <= packages
    files = [path for path in (ROOT / "src").rglob("*.py") if TESTING not in path.parents]
    assert not [(str(path), names) for path in files if (names := _imported(path) & packages)]
