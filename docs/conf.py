"""How Sphinx makes the site of these pages: `make site`. The pages themselves are plain Markdown, and their links lead
from file to file, so that they can be read in the repository as well; what has to be otherwise on a site is done here.

Nothing is loaded from another host, by the build or by a reader's browser.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent.resolve()
CHINESE = DOCS / "zh"
sys.path.insert(0, str(DOCS / "_site"))

project = "orbitmq"
author = "the authors of orbitmq"
copyright = author  # noqa: A001 - Sphinx's name
extensions = ["myst_parser", "sphinx.ext.graphviz", "sphinx_copybutton", "bigrams", "diagrams"]
exclude_patterns = ["_site", "zh"]  # `zh` is a site of its own, with a search of its own
templates_path = ["_site/templates"]
nitpicky = True

myst_heading_anchors = 4
# A page in Chinese stands in a site of its own below this one, whose pages it names so.
myst_url_schemes = {"http": None, "https": None, "english": "../{{path}}.html#{{fragment}}"}

graphviz_output_format = "svg"
graphviz_dot_args = [
    "-Gbgcolor=transparent", "-Gfontname=sans-serif", "-Gfontsize=12", "-Gcolor=#888888",
    "-Nfontname=sans-serif", "-Nfontsize=12", "-Nshape=box", "-Nstyle=rounded", "-Ncolor=#2962ff",
    "-Efontname=sans-serif", "-Efontsize=11", "-Ecolor=#555555", "-Earrowsize=0.7",
]  # fmt: skip

html_theme = "furo"
html_title = "orbitmq"
html_static_path = ["_site/static"]
html_favicon = "_site/static/icon.svg"
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"footer_icons": []}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "language.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}

# Pages of the repository that the site shows as well, from the root of it.
_SHOWN = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/README.md": "examples.md",
}
# A line that ends in Chinese goes on without a space, unless a Latin word follows.
_CHINESE_BREAK = re.compile(
    r"(?<=[\u4e00-\u9fff])\n {0,6}(?=[\u4e00-\u9fff])|(?<=[\u3000-\u303f\uff00-\uffef”])\n {0,6}(?![\s#|!-]|\d+\.|```)"
)
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def _prepared(app: Sphinx, name: str, source: list[str]) -> None:
    """Lead links to what the site has: pages it shows, files it carries along, the other language. Join lines of
    Chinese.
    """
    source[0] = linked(source[0], Path(app.srcdir).resolve() / f"{name}.md")
    if Path(app.srcdir).resolve() == CHINESE:
        source[0] = _CHINESE_BREAK.sub("", source[0])


def linked(text: str, page: Path) -> str:
    """The text of a page with links as the site needs them; those of a page that is shown are its own."""
    origins = {DOCS / shown: DOCS.parent / origin for origin, shown in _SHOWN.items()}
    origin = origins.get(page, page)
    text = origin.read_text(encoding="utf-8") if origin != page else text
    return _LINK.sub(lambda found: f"]({_target(found[1], found[2] or '', origin.parent, page.parent)})", text)


def _target(path: str, anchor: str, origin: Path, page: Path) -> str:
    """What a path in the folder `origin` is called by a page of the site in the folder `page`."""
    target = (origin / path).resolve()
    shown = _SHOWN.get(os.path.relpath(target, DOCS.parent))
    target = DOCS / shown if shown else target
    if page == CHINESE and target.parent != CHINESE and target.suffix == ".md":
        return f"english:{target.relative_to(DOCS).with_suffix('').as_posix()}{anchor}"
    return os.path.relpath(target, page) + anchor


def setup(app: Sphinx) -> None:
    app.connect("source-read", _prepared)
