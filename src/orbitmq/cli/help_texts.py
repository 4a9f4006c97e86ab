"""Help of commands in the language of the user. Knows no command, and nothing of how help looks but its paragraphs.

A text of the catalogue is a paragraph of help, the help of a flag, or the title of a section. Examples are not
translated.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

Translate = Callable[[str], str]

VERBATIM = "\b\n"
"""Before a paragraph whose lines stay as they are."""
EXAMPLES = "Examples:"


def localize(command: Any, translate: Translate) -> None:
    """Translate the help of a command, of its flags, and of what is below it, in place; once for each command."""
    if command.help:
        command.help = translated_help(command.help, translate)
        command.short_help = first_sentence(command.help)
    for parameter in command.params:
        if getattr(parameter, "help", None):
            parameter.help = translate(_unwrapped(parameter.help))
        if " " in str(getattr(parameter, "show_default", "")):  # not a value
            parameter.show_default = translate(parameter.show_default)
    for name, below in getattr(command, "commands", {}).items():
        assert name
        localize(below, translate)


def translated_help(text: str, translate: Translate) -> str:
    """Paragraph by paragraph."""
    return "\n\n".join(_paragraph(one, translate) for one in inspect.cleandoc(text).split("\n\n"))


def first_sentence(text: str) -> str:
    """What a list of commands shows."""
    first = _unwrapped(text.split("\n\n")[0])
    end = first.find("。")
    return first[: end + 1] if end >= 0 else first


def _paragraph(text: str, translate: Translate) -> str:
    if not text.startswith(VERBATIM):
        return translate(_unwrapped(text))
    lines = text.removeprefix(VERBATIM)
    title, _, commands = lines.partition("\n")
    if title == EXAMPLES:
        return f"{VERBATIM}{translate(title)}\n{commands}"
    return VERBATIM + translate(lines)


def _unwrapped(text: str) -> str:
    return " ".join(text.split())
