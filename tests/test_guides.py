"""The client's guide tells nothing that is not so: its programs run and print what stands below them, and the names of
its tables exist.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq import client
from orbitmq.client import ConsumeConcurrentlyStatus, SendStatus, sync
from orbitmq.testing import Cluster
from tests.support.markdown import Program, programs

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "client.md"
SETTINGS = (
    client.PushSettings,
    client.LitePullSettings,
    client.PullSettings,
    client.SimpleSettings,
    client.TransactionSettings,
)


@pytest.fixture(scope="module")
def namesrv_address() -> Iterator[str]:
    with Cluster() as cluster:
        yield cluster.namesrv_address


@pytest.fixture
def collector() -> Iterator[None]:
    """Python's collector is as it was, whatever a program does to it."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("program", programs(GUIDE), ids=str)
def test_a_program_of_the_guide_prints_what_the_guide_says(
    namesrv_address: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", namesrv_address)
    printed = io.StringIO()
    code = compile(program.source, str(program), "exec", dont_inherit=True)
    with contextlib.redirect_stdout(printed):
        exec(code, {"__name__": "__main__"})
    assert program.output is not None, "say what it prints"
    assert printed.getvalue() == program.output


def _tables(title: str) -> list[list[str]]:
    """The cells of every row between this title and the next one."""
    section = GUIDE.read_text(encoding="utf-8").split(f"# {title}\n")[1].split("\n#")[0]
    return [re.split(r"(?<!\\) \| ", row)[0:] for row in re.findall(r"^\| (`.*) \|$", section, re.MULTILINE)]


def test_names_java_programmers_are_told_exist() -> None:
    rows = _tables("Coming from Java")
    assert len(rows) > 25
    settings = set().union(*(kind.__annotations__ for kind in SETTINGS))
    for _, ours in rows:
        for name in re.findall(r"`([^`]+)`", ours):
            if name.endswith("="):
                assert name[:-1] in settings | {"timeout", "queue", "selector", "arg", "sharding_key"}, name
            elif "=" not in name:
                where = sync if name.startswith("sync.") else client
                functools.reduce(getattr, name.removeprefix("sync.").split("."), where)


def test_the_guide_tells_every_status_and_the_errors_that_exist() -> None:
    assert {row[0].strip("`") for row in _tables("Send results")} == set(SendStatus.__members__)
    errors = [row[0].strip("`") for row in _tables("Errors")]
    assert all(issubclass(getattr(client, name), client.OrbitMQError) for name in errors)
    assert set(ConsumeConcurrentlyStatus.__members__) == {"CONSUME_SUCCESS", "RECONSUME_LATER"}


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "examples" / "README.md"], ids=str
)
def test_links_of_a_page_lead_to_a_page_and_a_title(page: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
        target = page.parent.joinpath(path) if path else page
        assert target.exists(), path
        assert not anchor or anchor in _anchors(target), f"{path}#{anchor}"
