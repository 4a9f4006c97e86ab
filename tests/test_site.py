"""The site is built as a developer builds it, without a warning; its links, diagrams and search lead somewhere, and a
reader's browser asks no other host for anything.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LEADS = {"a": "href"}
LOADS = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
PICTURES = re.compile(r"^```\{graphviz\}", re.MULTILINE)


@dataclass
class Page(HTMLParser):
    """What a page leads to, loads, and can be led to."""

    path: Path
    leads: set[str] = field(default_factory=set)
    loads: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)
    language: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attributes}
        self.places |= {told["id"]} if "id" in told else set()
        self.leads |= {told[LEADS[tag]]} if told.get(LEADS.get(tag, "")) else set()
        self.loads |= {told[LOADS[tag]]} if told.get(LOADS.get(tag, "")) else set()
        self.language = told.get("lang", "") if tag == "html" else self.language


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("built") / "site"
    is_there = [f"--assume-old={target}" for target in ("setup", "diagrams")]
    built = subprocess.run(
        ["make", "--silent", *is_there, "site", f"SITE={place}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return place


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_page_of_the_documentation_is_in_the_site(site: Path) -> None:
    written = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    assert written - {path.relative_to(site) for path in site.rglob("*.html")} == set()


def test_every_link_leads_to_a_place_of_the_site(pages: dict[Path, Page]) -> None:
    lost = {(str(page.path), link) for page in pages.values() for link in page.leads if not _exists(page, link, pages)}
    assert lost == set()


def _exists(page: Page, link: str, pages: dict[Path, Page]) -> bool:
    if link.startswith(("https:", "http:", "mailto:")):
        return True
    path, _, place = link.partition("#")
    target = Path(os.path.normpath(page.path.parent / path)) if path else page.path
    return target.is_file() and (not place or target not in pages or place in pages[target].places)


def test_a_browser_is_told_to_load_from_nowhere_else(site: Path, pages: dict[Path, Page]) -> None:
    for page in pages.values():
        assert [load for load in page.loads if "//" in load] == []
        assert [load for load in page.loads if not _exists(page, load.partition("?")[0], pages)] == []
    for style in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import\s*)[\"']?(?:https?:)?//[^)]*", style.read_text(encoding="utf-8")) == []


def test_diagrams_are_drawn(pages: dict[Path, Page], site: Path) -> None:
    assert PICTURES.search(DOCS.joinpath("concepts.md").read_text(encoding="utf-8"))
    for path in DOCS.rglob("*.md"):
        count = len(PICTURES.findall(path.read_text(encoding="utf-8")))
        page = pages[site / path.relative_to(DOCS).with_suffix(".html")]
        drawn = [load for load in page.loads if "_images/graphviz" in load]
        assert len(drawn) == count, path
        assert all("<svg" in page.path.parent.joinpath(name).read_text(encoding="utf-8") for name in drawn)


def test_the_chinese_pages_say_so_and_are_found_by_what_is_in_them(site: Path, pages: dict[Path, Page]) -> None:
    assert pages[site / "zh" / "tutorial.html"].language == "zh-CN"
    assert pages[site / "tutorial.html"].language == "en"
    index = site.joinpath("zh", "searchindex.js").read_text(encoding="utf-8")
    terms = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))["terms"]
    assert {"消费", "位点", "堆积", "费", "组"} <= terms.keys()
    assert "splitQuery" in site.joinpath("zh", "_static", "language_data.js").read_text(encoding="utf-8")
