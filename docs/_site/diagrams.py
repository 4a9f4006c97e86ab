"""Diagrams as pictures, for Sphinx: an `img` shrinks with the page and tells its text to who cannot see it. The
`object` that Sphinx makes of an SVG keeps its size, and is cut off on a phone. Must not know what a diagram shows.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.graphviz import graphviz, render_dot
from sphinx.writers.html5 import HTML5Translator


def picture(self: HTML5Translator, node: graphviz) -> None:
    """Draw it, and write its picture."""
    name, _ = render_dot(self, node["code"], node["options"], "svg")
    text = self.encode(node.get("alt", ""))
    self.body.append(f'<p class="diagram"><img src="{name}" alt="{text}"></p>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinx.ext.graphviz")
    app.add_node(graphviz, override=True, html=(picture, None))
    return {"parallel_read_safe": True}
