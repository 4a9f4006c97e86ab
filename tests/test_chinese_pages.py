"""A page in Chinese has the structure of its English page, so that it cannot go stale unnoticed: the same headings,
code, table rows, list items and pictures in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {path: DOCS / path.name for path in sorted((DOCS / "zh").glob("*.md")) if path.stem != "index"}
PAGES[ROOT / "README.zh.md"] = ROOT / "README.md"
"""Page -> its English page. The index lists what there is in Chinese."""
GUIDES = {"tutorial", "producing", "consuming", "spark", "migration", "deployment", "dashboard"}
BLOCK = re.compile(
    r"^(?P<code> *```.*?^ *```)$|^(?P<heading>#+) |^ *(?P<row>\|)|^ *(?P<item>- )|^!\[[^\n]*\]\((?P<picture>[^\n]*)\)$",
    re.MULTILINE | re.DOTALL,
)


def structure(text: str) -> Iterator[str]:
    """Code and pictures as they are, of everything else only what it is."""
    for found in BLOCK.finditer(text):
        kind = found.lastgroup or ""
        yield {"row": "row", "item": "item", "picture": Path(found["picture"] or "").name}.get(kind, found[kind])


def test_every_guide_is_there() -> None:
    assert {path.stem for path in PAGES} == {*GUIDES, "README.zh"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_chinese_page_has_the_structure_of_its_english_page(page: Path) -> None:
    assert list(structure(page.read_text(encoding="utf-8"))) == list(structure(PAGES[page].read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", [*PAGES, DOCS / "zh" / "index.md"], ids=lambda page: page.name)
def test_links_of_a_chinese_page_lead_to_a_page_and_a_title(page: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
        target = page.parent.joinpath(path) if path else page
        assert target.exists(), path
        assert not anchor or anchor in _anchors(target), f"{path}#{anchor}"


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_chinese_page_links_to_chinese_pages_where_there_are_some(page: Path) -> None:
    english = re.findall(r"\]\((?:\.\./|docs/)([^)#/]+\.md)", page.read_text(encoding="utf-8"))
    assert not [name for name in english if (DOCS / "zh" / name).exists() and name != "index.md"]


def test_a_change_of_structure_is_found() -> None:
    text = "# A\n\n```sh\nls\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- one\n- two\n\n![x](images/a.png)\n"
    changes = (("# A", "## A"), ("ls", "ls -l"), ("| 1 | 2 |\n", ""), ("- two\n", ""), ("a.png", "b.png"))
    for old, new in changes:
        assert list(structure(text.replace(old, new))) != list(structure(text))
    assert list(structure(text.replace("one", "一").replace("images/", "../images/"))) == list(structure(text))
