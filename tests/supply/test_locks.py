"""What runs with orbitmq is known by name, licence and hash; each exception of the security lint has its reason."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import metadata

import pytest

from supply import sparks
from supply.locks import LOCKS, OURSELVES, PAGE, ROOT, Locked, described, path, read

WELCOME = {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0"}
"""None asks more of who distributes orbitmq than to keep its text, and MPL-2.0 no more than to show its own sources."""
OF_CLASSIFIERS = {
    "Apache Software License": {"Apache-2.0"},
    "BSD License": {"BSD-2-Clause", "BSD-3-Clause"},
    "ISC License (ISCL)": {"ISC"},
    "MIT License": {"MIT"},
}
OF_TEXTS = {"3-Clause BSD License": {"BSD-3-Clause"}}
"""Of the field License, which some packages have and no classifier."""
REASON = re.compile(r"#\s*noqa:\s*[A-Z0-9, ]*\bS\d{3}\b[A-Z0-9, ]*(?:-+)\s*\w+ \w+")


def locked(lock: str) -> list[Locked]:
    return read(path(lock).read_text(encoding="utf-8"))


def words(licence: str) -> set[str]:
    return set(re.split(r"[ ()]+", licence)) - {"AND", "OR", ""}


@pytest.mark.parametrize("lock", [*LOCKS, *(sparks.lock(version).stem for version in sparks.OTHERS)])
def test_every_version_is_locked_with_its_hashes(lock: str) -> None:
    text = path(lock).read_text(encoding="utf-8")
    packages = locked(lock)
    assert packages
    assert not [one.name for one in packages if not one.hashes]
    assert {one.name for one in packages if not one.wanted_by} <= _asked_for(lock)
    assert sum(len(one.hashes) for one in packages) == text.count("--hash="), "none of another kind, none of nobody"
    assert "://" not in re.sub(r"(?m)^#.*$", "", text), "nothing comes from a place of its own"


def _asked_for(lock: str) -> set[str]:
    """By a list of requirements, not by another package."""
    source = path(lock).with_suffix(".in")
    text = source.read_text(encoding="utf-8") if source.exists() else ""
    return set(re.findall(r"^([a-z][a-z0-9-]*)", text, re.MULTILINE))


def test_what_runs_is_what_was_tested() -> None:
    tested = {one.name: one for one in locked("dev")}
    for one in locked("runtime"):
        assert (one.version, one.hashes) == (tested[one.name].version, tested[one.name].hashes)


def test_the_dependencies_that_pyproject_names_are_those_we_ask_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {re.match(r"[a-z0-9-]+", line)[0] for line in project["dependencies"]}  # type: ignore[index]
    assert {one.name for one in locked("runtime") if OURSELVES in one.wanted_by} == named


def test_airflow_is_in_its_own_lock_only() -> None:
    """It pins more than a hundred packages: those of `make check` are not to follow it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["airflow"]]
    named = {re.match(r"[a-z0-9-]+", line)[0] for line in asked}  # type: ignore[index]
    assert {one.name for one in locked("airflow") if OURSELVES in one.wanted_by} == named
    assert "apache-airflow" not in {one.name for one in locked("dev")}


def test_the_page_names_each_dependency_with_its_licence() -> None:
    texts = described(PAGE.read_text(encoding="utf-8"))
    assert list(texts) == [one.name for one in locked("runtime")], "one row each, in the order of the lock"
    assert not {name for name, one in texts.items() if not words(one.licence) <= WELCOME}


@pytest.mark.parametrize("name", [one.name for one in locked("runtime")])
def test_a_licence_is_the_one_the_package_says_it_has(name: str) -> None:
    said, package = described(PAGE.read_text(encoding="utf-8"))[name].licence, metadata(name)
    if expression := package.get("License-Expression"):
        assert said == expression
        return
    classifiers = [
        line.split(" :: ")[-1] for line in package.get_all("Classifier") or () if line.startswith("License ::")
    ]
    meant = [OF_CLASSIFIERS[one] for one in classifiers] or [OF_TEXTS[package["License"]]]
    assert all(words(said) & one for one in meant)


def test_each_exception_of_the_security_lint_says_why() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    assert "S" in project["select"]
    assert [rule for rule in project["ignore"] if re.fullmatch(r"S\d*", rule)] == ["S101"], (
        "an assert is no check of input"
    )
    free = {
        place
        for place, rules in project["per-file-ignores"].items()
        if any(re.fullmatch(r"S\d*", one) for one in rules)
    }
    assert not {place for place in free if place.startswith(("src", "*"))}, "what a wheel holds is looked at"
    lines = [
        f"{file.relative_to(ROOT)}:{number} {line.strip()}"
        for file in sorted((ROOT / "src").rglob("*.py"))
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"noqa:.*\bS\d{3}\b", line)
    ]
    assert lines
    assert not [line for line in lines if not REASON.search(line)]
