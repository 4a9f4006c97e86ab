"""Starts Spark's JVM so that a job has the terminal to itself. Knows no job.

The JVM and its Python workers write a great deal to standard error: a page at the start, and a stack trace for every
task that is repeated. What orbitmq logs there (`event=...`) is passed on; the rest is kept for the case that Spark does
not start.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from orbitmq.errors import ConfigurationError

LINES_MAX = 200  # kept: a stack trace of Spark's, or a page of a JVM that may not start
OF_ORBITMQ = re.compile(r"^event=\w+")
NOT_SAID = "it says nothing"


class Voice(threading.Thread):
    """Reads what is written into a pipe until all its writers have ended; `tell` gets the lines that are passed on."""

    def __init__(self, pipe: int, tell: Callable[[str], object], *, is_verbose: bool) -> None:
        super().__init__(name="spark-voice", daemon=True)
        self._pipe = pipe
        self._tell = tell
        self._is_wanted = re.compile("") if is_verbose else OF_ORBITMQ
        self.last: deque[str] = deque(maxlen=LINES_MAX)

    def run(self) -> None:
        with os.fdopen(self._pipe, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self.last.append(line.rstrip())
                if self._is_wanted.match(line):
                    self._tell(line.rstrip())


def launch(settings: Mapping[str, str], *, is_verbose: bool) -> None:
    """Start the JVM with these settings of Spark; a session that is made next is made in it. With `is_verbose` all that
    it says is passed on. ConfigurationError where it does not start."""
    conf = SparkConf()
    conf.setAll(list(settings.items()))
    ear, mouth = os.pipe()
    voice = Voice(ear, _on_stderr, is_verbose=is_verbose)
    voice.start()
    try:
        gateway = launch_gateway(conf, {"stderr": mouth})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        os.close(mouth)
        voice.join()
        said = " ".join(voice.last) or NOT_SAID
        raise ConfigurationError(f"Spark does not start, which needs Java 17 or later: {said}") from error
    os.close(mouth)
    SparkContext(conf=conf, gateway=gateway)


def _on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - the error stream is what a job talks on
