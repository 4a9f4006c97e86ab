"""Errors and remedies in the language of the reader. Knows no error, only texts.

An error has its English text wherever it is raised, sent, logged and compared: programs and RocketMQ's clients rely on
it. Only what shows it to a person translates it, so remarks of brokers are translated as well. A text of the catalogue
is a template with names in braces for what varies, `there is no topic {topic}`, and is recognised by its fixed parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from string import Formatter
from typing import Final

from orbitmq.runtime.languages import ENGLISH, catalogue, in_language, language

CONTEXT: Final = "error"
"""The context of these texts in the catalogue."""
LISTED: Final = ("; ", "；")
JOINED: Final = ((". ", "。"), LISTED, (": ", "："), (", ", "、"))
"""What parts of a text are joined with: a reason and its remedy, a place and what happened there."""
_REMARK: Final = re.compile(r"(.+) (\([^()]+\))", re.DOTALL)
"""A text with a remark in brackets at its end."""
_DEPTH_MAX: Final = 8  # of errors within errors
_LENGTH_MAX: Final = 2000  # characters: of a longer text, a template of many values may take seconds to find them
_VALUES: Final = {1: "[^,;]*?", 2: "[^,;]*?", 3: "[^;]*?"}
"""Words of a template -> its values: a short one must not take a whole list, or a remedy, for a value."""
_NEEDLESS: Final = re.compile("(?<=[，。；：、）]) +| +(?=[，。；：、（])")
"""Blanks beside wide punctuation, which has its own room: templates have them between Chinese and values."""
_NUMBER: Final = "n"
"""The name of a value that is a number, as in `{n} messages`."""
_BEGINS: Final = 10  # characters that a fixed beginning counts for
_BEFORE_ANOTHER: Final = r"[^\s,;(]*"  # of a value that is followed by another one: that begins with a mark or a blank

Known = dict[tuple[str, int], str]
"""Parts of a text, each at its depth, with their translations: there are many ways to take a text apart, which lead to
the same parts.
"""


class Template:
    """A text of the catalogue with its translation."""

    def __init__(self, text: str, translation: str) -> None:
        text, translation = text.removeprefix(LISTED[0]), translation.removeprefix(LISTED[1])
        self._parts = [(literal, name) for literal, name, _, _ in Formatter().parse(text)]
        self._translation = translation
        literals = [literal for literal, _ in self._parts]
        self.is_list = LISTED[0] in text
        self.weight = sum(map(len, literals)) + (_BEGINS if literals[0] else 0)
        """Characters that do not vary: the template with most of them is the right one, and more so if it begins so."""
        self.mark = max(literals, key=len, default="")
        """A part that every text has which this template is of; found faster than a pattern is."""

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        seen, pattern = set[str](), ""
        words = sum(len(re.findall("[A-Za-z']+", literal)) for literal, _ in self._parts)
        value_pattern = _VALUES.get(words, ".*?")
        for (literal, name), (after, _) in zip(self._parts, [*self._parts[1:], (None, None)], strict=True):
            pattern += re.escape(literal)
            if name is not None:
                follows_another = not literal and bool(seen)
                value = _BEFORE_ANOTHER if after == "" else ".*?" if follows_another else value_pattern
                value = "[0-9,]+" if name == _NUMBER else value
                pattern += f"(?P={name})" if name in seen else f"(?P<{name}>{value})"
                seen.add(name)
        return re.compile(pattern, re.DOTALL)

    def translate(self, text: str, depth: int, known: Known) -> str | None:
        """None if the text is not of this template."""
        found = self._pattern.fullmatch(text) if self.mark in text else None
        if found is None or any(value.count("(") != value.count(")") for value in found.groupdict().values()):
            return None  # a value that ends within brackets belongs to another template, which has this one in it
        values = {name: _translated(value, depth + 1, known) for name, value in found.groupdict().items()}
        return self._translation.format_map(values)


def translated(text: str) -> str:
    """The text in the language of the context, with its indentation; what no template fits stays as it is."""
    if language() == ENGLISH or len(text) > _LENGTH_MAX:
        return text
    return text[: len(text) - len(text.lstrip())] + _NEEDLESS.sub("", _translated(text, 0, {}))


def translator(name: str) -> Callable[[str], str] | None:
    """Translates texts to a language, whatever that of the context is; None for English."""

    def translate(text: str) -> str:
        with in_language(name):
            return translated(text)

    return None if name == ENGLISH else translate


def _translated(text: str, depth: int, known: Known) -> str:
    text = text.strip()  # Chinese has no blanks between parts
    if not re.search("[a-z]", text) or depth > _DEPTH_MAX:
        return text
    if (text, depth) not in known:
        known[text, depth] = _made(text, depth, known)
    return known[text, depth]


def _made(text: str, depth: int, known: Known) -> str:
    is_ended = text.endswith(".") and not text.endswith("..")
    if LISTED[0] in text:
        made = _of_template(text, depth, known, are_lists=True)
        made = made or _of_list(text.removesuffix("." if is_ended else ""), depth, known)
        if made is not None:
            return made + ("。" if is_ended and not made.endswith("。") else "")
    made = _of_template(text, depth, known)
    if made is not None:
        return made
    if (remark := _REMARK.fullmatch(text)) and (inner := _translated(remark[2], depth + 1, known)) != remark[2]:
        return _translated(remark[1], depth + 1, known) + inner
    for mark, chinese in JOINED:
        first, found, rest = text.partition(mark)
        if found:
            parts = _translated(first, depth + 1, known), _translated(rest, depth + 1, known)
            if parts != (first, rest):
                return chinese.join(parts)
    if is_ended:
        return text if (made := _translated(text[:-1], depth + 1, known)) == text[:-1] else f"{made}。"
    return text


def _of_template(text: str, depth: int, known: Known, *, are_lists: bool = False) -> str | None:
    candidates = (one for one in templates(language()) if one.is_list or not are_lists)
    return next((made for one in candidates if (made := one.translate(text, depth, known)) is not None), None)


def _of_list(text: str, depth: int, known: Known) -> str | None:
    """Each sentence for itself, or the value of a template would take in the others; None if the first has no
    translation. One without belongs to the one before: an error is quoted as it is."""
    first, *others = text.split(LISTED[0])
    made = _translated(first, depth + 1, known)
    if made == first:
        return None
    for other in others:
        chinese = _translated(other, depth + 1, known)
        made += (LISTED[0] if chinese == other else LISTED[1]) + chinese
    return made


@cache
def templates(name: str) -> list[Template]:
    """Of a language, in the order in which they are tried."""
    return sorted(_templates(name), key=lambda one: -one.weight)


def _templates(name: str) -> Iterator[Template]:
    """GNUTranslations has no public way to its texts."""
    texts: dict[str | tuple[str, int], str] = getattr(catalogue(name), "_catalog", {})
    for key, translation in texts.items():
        context, found, text = key.partition("\x04") if isinstance(key, str) else ("", "", "")
        if found and context == CONTEXT:
            yield Template(text, translation)
