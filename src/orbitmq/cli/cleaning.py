"""Text that came out of messages, names and remarks must not steer the terminal: colours, titles, the clipboard.

Light: the commands' errors pass through here, too.
"""

from __future__ import annotations

import io
from typing import TextIO, cast

_KEPT = "\n\t"


def clean(text: str) -> str:
    """Every sign that is no print, line end or tab as the replacement character."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in _KEPT else "\N{REPLACEMENT CHARACTER}" for sign in text)


def safe(stream: TextIO) -> TextIO:
    """`stream` itself, cleaned where it is a terminal; files and pipes get what there is."""
    return cast("TextIO", _Cleaned(stream)) if stream.isatty() else stream


class _Cleaned(io.TextIOBase):
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(clean(text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return True
