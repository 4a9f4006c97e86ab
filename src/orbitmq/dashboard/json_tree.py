"""A JSON text as markup in which objects and lists fold. Everything in it is escaped, as in all of a page."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from markupsafe import Markup

from orbitmq.runtime.languages import ngettext
from orbitmq.runtime.printable import printable

NODES_MAX = 3000  # a page with more elements takes a phone seconds; larger bodies are shown as text
DEPTH_MAX = 40  # deeper ones as well
OPEN_DEPTH = 2  # levels that are unfolded at first


def json_tree(text: str) -> Markup | None:
    """The markup of an object or a list; None for other texts, and for those that are too large or too deep."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        return None
    return _node(value, 0) if _is_small(value) else None


class _Number(str):
    """As written: neither digits nor zeros are lost."""

    __slots__ = ()


def _is_small(value: Any) -> bool:
    level, count = [value], 0
    for _ in range(DEPTH_MAX):
        count += len(level)
        if count > NODES_MAX:
            return False
        level = [child for one in level for child in _children(one)]
        if not level:
            return True
    return False


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _node(value: Any, depth: int) -> Markup:
    if isinstance(value, dict) and value:
        size = ngettext("%(num)s field", "%(num)s fields", len(value)) % {"num": len(value)}
        row = Markup('<span class="key">{}</span>: {}')
        rows = [row.format(_quoted(key), _node(one, depth + 1)) for key, one in value.items()]
        return _fold("{", "}", size, rows, depth)
    if isinstance(value, list) and value:
        size = ngettext("%(num)s element", "%(num)s elements", len(value)) % {"num": len(value)}
        return _fold("[", "]", size, [_node(one, depth + 1) for one in value], depth)
    if isinstance(value, _Number):
        return Markup('<span class="number">{}</span>').format(str(value))
    if isinstance(value, str):
        return Markup('<span class="text">{}</span>').format(_quoted(value))
    return Markup('<span class="word">{}</span>').format(json.dumps(value))


def _fold(begin: str, end: str, size: str, rows: list[Markup], depth: int) -> Markup:
    items = Markup("").join(Markup("<li>{}</li>").format(row) for row in rows)
    state = Markup(" open") if depth < OPEN_DEPTH else ""
    return Markup('<details{}><summary>{} <span class="soft">{}</span> {}</summary><ul>{}</ul></details>').format(
        state, begin, size, end, items
    )


def _quoted(text: str) -> str:
    """As JSON writes it, with invisible characters as marks."""
    return printable(json.dumps(text, ensure_ascii=False))
