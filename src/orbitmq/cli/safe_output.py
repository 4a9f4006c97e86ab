"""A stream for text from outside: `printable` escapes what is written to it."""

from __future__ import annotations

import io
from typing import TextIO, cast

from orbitmq.runtime.printable import printable


def safe(stream: TextIO) -> TextIO:
    """`stream` itself, escaping text if it is a terminal; files and pipes get the original text."""
    return shown(stream) if stream.isatty() else stream


def shown(stream: TextIO) -> TextIO:
    """Escapes text also in files and pipes, for texts that people read."""
    return cast("TextIO", _Shown(stream))


class _Shown(io.TextIOBase):
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text, lines=True))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()
