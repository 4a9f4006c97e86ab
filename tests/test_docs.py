"""The documentation says what exists: generated pages are up to date, hand-written ones are complete."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from orbitmq.broker.broker import Broker
from orbitmq.broker.options import BrokerOptions
from orbitmq.cli.lazy_commands import NOUNS
from orbitmq.namesrv.server import NameServer
from orbitmq.net.routing import Router
from orbitmq.store.options import StoreOptions
from orbitmq.wire.requests import RequestCode
from reference.pages import PAGES

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
DESIGN = sorted((ROOT / "docs" / "design").glob("*.md"))
ROOMS = sorted(path.name for path in (ROOT / "src" / "orbitmq").iterdir() if (path / "__init__.py").exists())


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_up_to_date(page: str) -> None:
    assert (REFERENCE / page).read_text(encoding="utf-8") == PAGES[page](), "run make reference"


def _documented(title: str) -> set[tuple[int, str]]:
    """Code and name of every row in one section of requests.md."""
    section = (REFERENCE / "requests.md").read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    return {(int(code), name) for code, name in re.findall(r"^\| (\d+) \| `(\w+)` \| \S.*\|$", section, re.MULTILINE)}


def _served(router: Router) -> set[tuple[int, str]]:
    return {(code, RequestCode(code).name) for code in router.handlers}


def test_every_request_of_the_name_server_is_documented() -> None:
    assert _documented("Name server") == _served(NameServer().router)


def test_every_request_of_the_broker_is_documented(tmp_path: Path) -> None:
    broker = Broker(BrokerOptions(), StoreOptions(store_path_root_dir=str(tmp_path)))
    assert _documented("Broker") == _served(broker.router)


@pytest.mark.parametrize("page", ["README.md", *(f"docs/reference/{path.name}" for path in REFERENCE.glob("*.md"))])
def test_links_between_pages_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", (ROOT / page).read_text(encoding="utf-8"))
    assert not [link for link in links if not (ROOT / page).parent.joinpath(link).exists()]


def test_the_architecture_page_names_every_room() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert not [room for room in ROOMS if f"`{room}/`" not in page]


@pytest.mark.parametrize(
    "page", ["ARCHITECTURE.md", *(f"docs/design/{path.name}" for path in DESIGN if path.stem != "index")]
)
def test_a_page_of_design_names_modules_that_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(rf"`((?:{'|'.join(ROOMS)})(?:\.(?!py`)\w+)+)`", text)
    assert named
    package = ROOT / "src" / "orbitmq"
    places = [package.joinpath(*name.split(".")) for name in named]
    assert not [place for place in places if not place.is_dir() and not place.with_suffix(".py").exists()]


def test_every_room_says_what_it_is() -> None:
    empty = [
        room for room in ROOMS if not (ROOT / "src" / "orbitmq" / room / "__init__.py").read_text().startswith('"""')
    ]
    assert not empty


COMMANDS = [
    path
    for place, ending in (("docs", "*.md"), ("deploy/monitoring", "*.yml"), ("src/orbitmq/admin", "*.py"))
    for path in sorted((ROOT / place).rglob(ending))
]


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_that_are_named_exist(path: Path) -> None:
    """Remedies, alerts and pages name commands of nouns in backquotes, alone or with what they are given."""
    text = path.read_text(encoding="utf-8")
    named = re.findall(r"[`:;] ?orbitmq ([a-z]+) ([a-z][a-z-]*)(?: ([a-z-]+))?", text)
    assert not [words for words in named if words[0] in NOUNS and not _is_command(*words)]


def _is_command(*words: str) -> bool:
    """What follows a command is given to it."""
    noun, *verbs = words
    place = get_command(import_module(f"orbitmq.cli.nouns.{noun}").app)
    for verb in verbs:
        if isinstance(place, TyperGroup):
            if verb not in place.commands:
                return False
            place = place.commands[verb]
    return True
