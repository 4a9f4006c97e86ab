"""Lines of text of narrow and wide characters: a wide one takes two columns of a terminal, and a line may end between
any two of them.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_WIDE: Final = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
_CLOSING: Final = re.escape("、。，；：？！）」』”’》】…")
_OPENING: Final = re.escape("（「『“‘《【")
# Text in backquotes, a wide character or a word, with the punctuation that belongs to it.
_PIECE: Final = re.compile(
    rf"[{_OPENING}[(]*(?:`[^`]*`|[{_WIDE}]|[^\s`{_WIDE}{_OPENING}{_CLOSING}]+)[{_CLOSING})\]%.,;:]*|\s+|\S"
)


def width(text: str) -> int:
    """In columns. Quotation marks, which are as wide as the font has them, count as wide."""
    return sum(2 if unicodedata.east_asian_width(one) in "WFA" else 1 for one in text)


def wrapped(text: str, columns: int) -> list[str]:
    """Lines of at most so many columns. Punctuation never begins a line; only a word, or text in
    backquotes, that is longer is too long.
    """
    lines, line = list[str](), ""
    for piece in _PIECE.findall(text):
        if line and width(line + piece.rstrip()) > columns:
            lines.append(line.rstrip())
            line = ""
        line += piece if line else piece.lstrip()
    return [*lines, line.rstrip()] if line.strip() else lines or [""]
