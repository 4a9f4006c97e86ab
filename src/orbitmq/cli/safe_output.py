"""A stream for text that others have chosen: what is written into it is shown by `printable`."""

from __future__ import annotations

import io
from typing import TextIO, cast

from orbitmq.runtime.printable import printable


def safe(stream: TextIO) -> TextIO:
    """`stream` itself, with marks where it is a terminal; files and pipes get what there is."""
    return shown(stream) if stream.isatty() else stream


def shown(stream: TextIO) -> TextIO:
    """The same whatever `stream` is, for texts that people read."""
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
