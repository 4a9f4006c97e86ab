"""Where the log lines of the daemons go and what they look like: one line a fact.

Rooms log with the standard library, `logging.getLogger(__name__)`, and write a fact as `event=topic_created
topic=%s queues=%d`; an application that embeds orbitmq keeps its own handlers. This module knows no fact and no room.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Literal, TextIO

from orbitmq.runtime.visible import visible

Level = Literal["debug", "info", "warning", "error"]


class LineFormat(logging.Formatter):
    """`2026-01-31T09:30:00.123Z INFO    broker.topics event=topic_created topic=orders queues=8`"""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(room)s %(line)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        record.room = record.name.removeprefix("orbitmq.")
        # A peer chooses some of the values; a line end among them must not make up a line of its own.
        record.line = visible(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the standard library's name
        return visible(super().formatException(ei), lines=True)


def configure(stream: TextIO, level: Level = "info") -> None:
    """Send the log lines of orbitmq at `level` and above to `stream`, and nowhere else."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormat())
    root = logging.getLogger("orbitmq")
    root.handlers = [handler]
    root.setLevel(level.upper())
    root.propagate = False
