"""Log lines: one line a fact, its fields as key=value behind it, over the standard library's logging.

A room writes `log = Log(__name__)` and `log.info("topic created", topic=name, queues=8)`; an application that
embeds orbitmq keeps its own handlers, the daemons call `configure`. This module knows no fact and no room.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")


class Fact:
    """What was logged: a sentence without figures, and the fields. It becomes text only if a handler asks."""

    __slots__ = ("fields", "sentence")

    def __init__(self, sentence: str, fields: Mapping[str, object]) -> None:
        self.sentence = sentence
        self.fields = fields

    def __str__(self) -> str:
        return " ".join((self.sentence, *(f"{key}={_text(value)}" for key, value in self.fields.items())))


class Log:
    """The log of one module."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, sentence: str, **fields: object) -> None:
        self._write(logging.DEBUG, sentence, fields)

    def info(self, sentence: str, **fields: object) -> None:
        self._write(logging.INFO, sentence, fields)

    def warning(self, sentence: str, **fields: object) -> None:
        self._write(logging.WARNING, sentence, fields)

    def error(self, sentence: str, **fields: object) -> None:
        self._write(logging.ERROR, sentence, fields)

    def bug(self, sentence: str, **fields: object) -> None:
        """An error that only our own code can cause: inside an `except` block, with its stack."""
        self._write(logging.ERROR, sentence, fields, with_stack=True)

    def _write(self, level: int, sentence: str, fields: Mapping[str, object], *, with_stack: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, Fact(sentence, fields), exc_info=with_stack, stacklevel=3)


class LineFormat(logging.Formatter):
    """`2026-01-31T09:30:00.123Z INFO  broker.topics: topic created topic=orders queues=8`"""

    converter = time.gmtime
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(room)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.room = record.name.removeprefix("orbitmq.")
        return super().format(record)


def configure(stream: TextIO, level: str = "info") -> None:
    """Send the log lines of orbitmq at `level` (one of LEVELS) and above to `stream`, and nowhere else."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormat())
    root = logging.getLogger("orbitmq")
    root.handlers = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def _text(value: object) -> str:
    """A value as one word: quoted when it has blanks, quotes or line ends, so that a line stays a line."""
    if isinstance(value, BaseException):
        value = f"{type(value).__name__}: {value}"
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], int):
        value = f"{value[0]}:{value[1]}"  # a socket address
    text = str(value)
    plain = text.isprintable() and text and not any(character in text for character in ' "=')
    return text if plain else json.dumps(text, ensure_ascii=False)
