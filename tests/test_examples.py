"""Every example runs to its end and prints the facts its text promises."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from orbitmq.testing import Cluster
from tests.support.examples import EXAMPLES, FACTS, run_example


def test_every_example_is_run_and_listed() -> None:
    files = {path.name for path in EXAMPLES.glob("*.py")}
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\w+\.py)\]\(\1\)(?: \*)? \| \S.*\|$", text, re.MULTILINE)
    assert files == set(FACTS)
    assert sorted(files) == sorted(listed)
    others = {path.name for path in EXAMPLES.iterdir() if path.is_file()} - files - {"README.md"}
    assert not [name for name in others if f"]({name})" not in text]


@pytest.fixture(scope="module")
def namesrv_address() -> Iterator[str]:
    with Cluster(enablePropertyFilter=True) as cluster:
        yield cluster.namesrv_address


@pytest.mark.parametrize("name", FACTS)
def test_an_example_does_what_it_says(namesrv_address: str, name: str) -> None:
    run_example(name, namesrv_address)
