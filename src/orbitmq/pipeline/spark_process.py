"""Starts Spark's JVM so that a job has the terminal to itself. Knows no job.

The JVM and its Python workers write a lot to standard error: a page at the start, and a stack trace for every repeated
task. Log lines of orbitmq (`event=...`) are passed on. The rest is kept for the error when Spark does not start.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from orbitmq.errors import ConfigurationError
from orbitmq.runtime.printable import printable

LINES_MAX = 200  # kept: a stack trace of Spark's, or a page of a JVM that may not start
OF_ORBITMQ = re.compile(r"^event=\w+")
FRAME = re.compile(r"\s+(at |\.\.\. \d+ more)")  # of a stack trace of Java's
NO_JVM = "[JAVA_GATEWAY_EXITED]"
NOT_SAID = "it says nothing"
END_SECONDS = 10.0  # for a JVM that failed to end by itself


class StderrReader(threading.Thread):
    """Reads a pipe until all its writers have ended, and passes log lines of orbitmq to `tell`."""

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
    """Start the JVM with these settings of Spark, for the next session. With `is_verbose` all its output is passed on.
    ConfigurationError with that output when it does not start."""
    conf = SparkConf()
    conf.setAll(list(settings.items()))
    ear, mouth = os.pipe()
    voice = StderrReader(ear, _on_stderr, is_verbose=is_verbose)
    voice.start()
    gateway = None
    try:
        try:
            gateway = launch_gateway(conf, {"stderr": mouth})  # type: ignore[no-untyped-call]
        finally:
            os.close(mouth)
        SparkContext(conf=conf, gateway=gateway)
    except Exception as error:  # of the system, of py4j, of Spark's Python and of its JVM: no common kind
        reason = _reason(error)  # before the JVM ends: py4j requests the texts from it
        if gateway is not None:
            _end(gateway)
        voice.join(END_SECONDS)
        raise ConfigurationError(f"Spark does not start{reason}: {_plain(tuple(voice.last)) or NOT_SAID}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, PySparkRuntimeError) and NO_JVM in str(error):
        return ", which needs Java 17 or later"  # its message says only that the JVM has ended
    return f" ({_plain(str(error).splitlines())})"


def _plain(lines: Iterable[str]) -> str:
    """On one line, without the frames of stack traces."""
    return " ".join(" ".join(line for line in lines if not FRAME.match(line)).split())


def _end(gateway: Any) -> None:
    """End the JVM by closing its input. A later session gets a new one."""
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - nothing public forgets them
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()


def _on_stderr(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)  # noqa: T201 - the error stream is what a job talks on
