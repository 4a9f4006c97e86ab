"""Search in Chinese, for Sphinx: text is found by the characters in it and their pairs, so no dictionary is needed.

Sphinx's own way takes a dictionary of 19 MB to cut sentences into words, and cuts what a reader types by none, so that
a phrase is not found. Cutting both into pairs finds every phrase that is there. Must not know what a page says.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx
from sphinx.search import SearchLanguage, languages

_WORDS = re.compile(r"[\u4e00-\u9fff]+|[a-zA-Z0-9_]+")


class Bigrams(SearchLanguage):
    """Chinese by characters and their pairs, everything else by words as they are."""

    lang = "zh"
    language_name = "Chinese"
    # In a reader's browser: pairs where there are some, as a single character is on every page.
    js_splitter_code = r"""
var splitQuery = (query) => (query.match(/[\u4e00-\u9fff]+|[a-zA-Z0-9_]+/g) || []).flatMap((word) =>
  /[\u4e00-\u9fff]/.test(word) && word.length > 2
    ? Array.from({length: word.length - 1}, (_, i) => word.slice(i, i + 2))
    : [word]);
"""

    def split(self, input: str) -> list[str]:  # noqa: A002 - Sphinx's name
        return [part for word in _WORDS.findall(input) for part in parts(word)]

    def stem(self, word: str) -> str:
        return word.lower()


def parts(word: str) -> list[str]:
    """What a run of characters is found by: "abc" of Chinese by "ab" and "bc", and by "a", "b" and "c" alone."""
    if not "\u4e00" <= word[0] <= "\u9fff" or len(word) < 2:
        return [word]
    return [word[at : at + 2] for at in range(len(word) - 1)] + list(word)


def setup(_app: Sphinx) -> dict[str, bool]:
    languages["zh"] = Bigrams
    return {"parallel_read_safe": True}
