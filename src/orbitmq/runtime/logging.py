"""The destination and format of the daemons' log lines: one line per event.

Rooms log with the standard library, `logging.getLogger(__name__)`, and write an event as `event=topic_created topic=%s
queues=%d`; an application that embeds orbitmq keeps its own handlers. This module knows no event and no room.

A handler may block: on a lock, a pipe without a reader, a network. An event loop must not, so records of the loops of
daemons and of synchronous clients reach their handlers on a thread of their own.
"""

from __future__ import annotations

import atexit
import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, Literal, TextIO

from orbitmq.runtime.call_thread import CallThread
from orbitmq.runtime.printable import printable

Level = Literal["debug", "info", "warning", "error"]

WAITING_MAX = 10_000  # records that handlers have not taken, some MiB; further ones are dropped and counted
# for handlers to process queued records when the process ends; one that hangs must not keep it from ending
FLUSH_S = 2.0
FOREIGN = ("asyncio", "concurrent.futures")  # these write records of their own on a loop

_log = logging.getLogger(__name__)


class LineFormat(logging.Formatter):
    """`2026-01-31T09:30:00.123Z INFO    broker.topics event=topic_created topic=orders queues=8`"""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(room)s %(line)s")

    def format(self, record: logging.LogRecord) -> str:
        own = copy(record)  # other handlers format the record as well, and leave their text of the stack in it
        if own.exc_info:
            own.exc_text = None
        return super().format(own)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        record.room = record.name.removeprefix("orbitmq.")
        # Peers choose some of the values; a line end in one must not start a forged line.
        record.line = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the standard library's name
        return printable(super().formatException(ei), lines=True)


class _LogThread:
    """Passes records on, in order, and counts those that it drops."""

    def __init__(self) -> None:
        self._calls = CallThread("orbitmq-log")
        self._dropped = 0
        self.flush = self._calls.flush

    def take(self, hand_on: Callable[[logging.LogRecord], object], record: logging.LogRecord) -> None:
        """Schedule a call of `hand_on` with the record; never blocks."""
        if self._calls.waiting < WAITING_MAX:
            context = contextvars.copy_context()  # a handler may write context of the thread, such as a trace id
            self._calls.put(partial(context.run, self._hand_on, hand_on, record))
        else:
            self._dropped += 1

    def _hand_on(self, hand_on: Callable[[logging.LogRecord], object], record: logging.LogRecord) -> None:
        hand_on(record)
        if self._dropped and self._calls.waiting < WAITING_MAX:  # else this would be dropped as well
            dropped, self._dropped = self._dropped, 0
            _log.error("event=log_records_dropped count=%d; a handler was too slow for them", dropped)


_thread = _LogThread()
_spared: set[int] = set()
"""The threads that must not wait for a handler."""


class _Aside(logging.Filter):
    """On a logger: records of a protected thread reach the logger's handlers on the log thread."""

    def filter(self, record: logging.LogRecord) -> bool:
        if threading.get_ident() not in _spared:
            return True
        _thread.take(logging.getLogger(record.name).handle, record)
        return False


_ASIDE = _Aside()


def spare_this_thread() -> None:
    """No record that this thread writes to a logger of orbitmq makes it wait for a handler any more."""
    _spared.add(threading.get_ident())
    watch_loggers()


def watch_loggers() -> None:
    """Have `spare_this_thread` hold for loggers that have been made since."""
    for name in FOREIGN:
        logging.getLogger(name).addFilter(_ASIDE)
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and (name == "orbitmq" or name.startswith("orbitmq.")):
            logger.addFilter(_ASIDE)


def flush(seconds: float = FLUSH_S) -> bool:
    """Wait until handlers have all records that were written so far; whether they had them in time."""
    return _thread.flush(seconds)


def _after_fork() -> None:
    """What waits is the parent's to write, and its threads are not here."""
    global _thread
    _thread = _LogThread()
    _spared.clear()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(flush)


class _Lines(logging.Handler):
    """Lines on a stream, written by the log thread, so that logging never blocks on a slow reader of the stream."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self.setFormatter(LineFormat())

    def emit(self, record: logging.LogRecord) -> None:
        _thread.take(self._write, record)

    def _write(self, record: logging.LogRecord) -> None:
        try:
            self._stream.write(f"{self.format(record)}\n")
            self._stream.flush()
        except Exception:  # the standard library's rule: a failing log must not end the program
            self.handleError(record)


def configure(stream: TextIO, level: Level = "info") -> None:
    """Send the log lines of orbitmq at `level` and above to `stream`, and nowhere else; `flush` waits for them."""
    root = logging.getLogger("orbitmq")
    root.handlers = [_Lines(stream)]
    root.setLevel(level.upper())
    root.propagate = False
