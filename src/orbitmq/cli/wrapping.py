"""Sentences on a terminal: wrapped at words, with commands whole, so that they can be copied. Scripts get one line.

Light: error messages need it, and help must print without delay.
"""

from __future__ import annotations

import shutil
from typing import TextIO

from orbitmq.runtime.error_texts import translated
from orbitmq.runtime.languages import gettext
from orbitmq.runtime.wide_text import wrapped as lines_of

NARROW = 40
"""Columns below which nothing is wrapped: there are too few to read anything."""
COMMAND = "orbitmq "


def columns() -> int:
    """Of the terminal, or of COLUMNS."""
    return shutil.get_terminal_size().columns


def wrapped(text: str, width: int, indent: str = "") -> str:
    """Lines of at most `width` columns; a word or a command in backquotes that is longer has a line of its own."""
    if width < NARROW:
        return indent + text
    return "\n".join(indent + line for line in lines_of(text, width - len(indent)))


def remedy_lines(remedy: str, width: int, indent: str = "  ") -> str:
    """A remedy below the text it belongs to. One that is a command is not broken."""
    return indent + remedy if remedy.startswith(COMMAND) else wrapped(remedy, width, indent)


def with_remedy(text: str, remedy: str | None, stream: TextIO) -> str:
    """What went wrong and what to do, which it translates: two paragraphs on a terminal, one line elsewhere."""
    text, remedy = " ".join(text.split()), translated(" ".join(remedy.split())) if remedy else None
    if not stream.isatty():
        return text + gettext("; ") + remedy if remedy else text
    width = columns()
    return "\n".join([wrapped(text, width), *([remedy_lines(remedy, width)] if remedy else [])])
