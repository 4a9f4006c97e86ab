"""How to print text that peers choose: client ids, names, properties, bodies, remarks, addresses.

Control characters steer a terminal, line ends make up lines of a log, and format characters hide text or turn its order
round. Logs, commands and pages show such a character as a mark, all of them by `printable`. Light: the errors of every
command pass through here.
"""

from __future__ import annotations

import json
import re
from typing import Final

_PICTURES: Final = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
# C1, soft hyphen, direction, zero width, line and paragraph separators, surrogates, tags. Joiners and variation
# selectors stay: scripts and emoji need them.
_UNSEEN: Final = (
    (0x80, 0xA0), (0xAD, 0xAE), (0x61C, 0x61D), (0x180E, 0x180F), (0x200B, 0x200C), (0x200E, 0x2010), (0x2028, 0x202F),
    (0x2060, 0x2070), (0xD800, 0xE000), (0xFEFF, 0xFF00), (0xFFF9, 0xFFFC), (0x1BCA0, 0x1BCA4), (0x1D173, 0x1D17B),
    (0xE0000, 0xE0080),
)  # fmt: skip
_MARKS: Final = _PICTURES | {code: f"⟨U+{code:04X}⟩" for begin, end in _UNSEEN for code in range(begin, end)}
_MARKS_IN_LINES: Final = {code: mark for code, mark in _MARKS.items() if chr(code) not in "\n\t"}
_HIDDEN: Final = re.compile(f"[\x7f{''.join(f'{chr(begin)}-{chr(end - 1)}' for begin, end in _UNSEEN)}]")


def printable(text: object, *, lines: bool = False) -> str:
    """The text with a visible mark for each invisible character: `␛` for an escape, `⟨U+202E⟩` for one that changes the
    direction. With `lines` line ends and tabs stay.
    """
    shown = str(text)
    return shown if shown.isprintable() else shown.translate(_MARKS_IN_LINES if lines else _MARKS)


_ESCAPES: Final = re.compile(r"((?:\\u[0-9a-fA-F]{4})+)|\\.", re.DOTALL)


def readable_json(text: str) -> str:
    """A JSON text with the printable characters that it has as `\\u4e66`: the same values. The text may be cut."""
    return _ESCAPES.sub(_unescaped, text) if "\\u" in text else text


def _unescaped(found: re.Match[str]) -> str:
    if found[1] is None:
        return found[0]
    signs = json.loads(f'"{found[1]}"')
    return "".join(one if one > "\x7f" and one.isprintable() else json.dumps(one)[1:-1] for one in signs)


def printable_json(text: str) -> str:
    """A JSON text with such characters as `\\u202e`: the same values, and nothing that steers a terminal."""
    return text if text.isprintable() else _HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], text)
