"""The Spark session of a job, started on first use and stopped with the job. Knows no job."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from orbitmq.errors import ConfigurationError
from orbitmq.pipeline.archive_stream import ArchiveSource
from orbitmq.pipeline.job import JobOptions
from orbitmq.pipeline.lake_sink import LakeSink
from orbitmq.pipeline.progress import waiting
from orbitmq.pipeline.spark_process import launch
from orbitmq.spark import ship
from orbitmq.spark.session import SOURCES, check_worker_python, prepare

LOG_LEVEL = "spark.log.level"
API_MODE = "spark.api.mode"
CLASSIC = "classic"
SETTINGS = {
    API_MODE: CLASSIC,  # whatever the environment's default is
    "spark.python.unix.domain.socket.enabled": "true",  # tasks cost less than half as much as over TCP
    "spark.speculation": "false",  # a second copy of a task that sends would send twice
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    LOG_LEVEL: "ERROR",
}
LOCAL_MASTER = "local"
TASK_ATTEMPTS = 4  # as on a cluster; with `local[*]` Spark makes one, and a broker that restarts would end the job
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}  # only this process needs to reach it
# The temporary folder of a container of YARN has a path that is too long for a socket.
CLUSTER = {"spark.python.unix.domain.socket.dir": "/tmp"}  # noqa: S108 - where Spark has them without YARN
DATA_SOURCES = (ArchiveSource, LakeSink)  # of the jobs alone
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # where a JVM listens that has started this driver, also on another machine
CONNECT = "sc://"
REMOTE = "SPARK_REMOTE"  # environment variable: the Spark Connect server of sessions that name none


@contextmanager
def session_of(name: str, options: JobOptions) -> Iterator[Callable[[], SparkSession]]:
    """Yields a function that starts the session of the job `name` once. The session is stopped at the end, unless it
    was running before. ConfigurationError before anything else if the session would be one of Spark Connect."""
    refuse_connect(options)
    made: list[SparkSession] = []
    running = SparkSession.getActiveSession()

    def start() -> SparkSession:
        if not made:
            with waiting("starting Spark"):
                made.append(_start(f"orbitmq {name}", options))
        return made[0]

    try:
        yield start
    except Py4JError as error:
        if _was_interrupted(error):
            raise KeyboardInterrupt from None
        raise
    finally:
        for session in made:
            if running is None:
                with suppress(Py4JError):  # an interruption may break the connection; the JVM ends with this process
                    session.stop()


def refuse_connect(options: JobOptions) -> None:
    """ConfigurationError if a session for these options would be one of Spark Connect. Jobs use RDDs and the
    counts of finished tasks, which only classic sessions have. The address is not repeated: it may contain a token."""
    given = _given(options.spark_conf)
    causes = {
        "option master": options.master.startswith(CONNECT),
        "option sparkConf": "spark.remote" in given or given.get(API_MODE, CLASSIC) != CLASSIC,
        f"the environment variable {REMOTE}": REMOTE in os.environ,
        "this process": is_remote(),
    }
    if found := [cause for cause, is_there in causes.items() if is_there]:
        raise ConfigurationError(
            f"{found[0]} selects Spark Connect, and jobs do not run there; run the job in a process of its own, with "
            "--master spark://HOST:7077 for example, or with spark-submit (see `orbitmq pipeline pack`)"
        )


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether an interruption caused the error: on its way out Spark's Python calls the JVM again, and may fail."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _start(name: str, options: JobOptions) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_submitted = SUBMITTED in os.environ
    master = options.master or ("" if is_submitted else f"local[*,{TASK_ATTEMPTS}]")
    given = _given(options.spark_conf)
    is_local = master.startswith(LOCAL_MASTER)
    settings = SETTINGS | (LOCAL if is_local else CLUSTER) | given | {"spark.app.name": name}
    if master:
        settings["spark.master"] = master
    if not is_submitted and SparkContext._active_spark_context is None:  # noqa: SLF001 - nothing public tells it
        check_worker_python(os.environ["PYSPARK_PYTHON"])
        launch(settings, is_verbose=LOG_LEVEL in given)
        _be_interrupted_quietly()
        _log_no_failed_query()
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if not (is_submitted or is_local):
        ship(session)  # executors may have no orbitmq, or another version; spark-submit ships its own files
    prepare(session, *SOURCES, *DATA_SOURCES)
    return session


def _be_interrupted_quietly() -> None:
    """Make SIGINT and SIGTERM raise KeyboardInterrupt and nothing else. Spark's own handler calls the JVM in the
    middle of another call, and py4j logs the failure, partly on the root logger. The end of the session cancels
    running tasks."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        logging.getLogger().addFilter(lambda _record: False)
        logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _log_no_failed_query() -> None:
    """Spark 4 writes a query that fails to standard error as well, as JSON with its stack; the error of the job says it
    in one line."""
    with suppress(ImportError):  # Spark 3.5
        from pyspark.logger import PySparkLogger

        for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _given(text: str) -> dict[str, str]:
    pairs = [part.strip().partition("=") for part in text.split(";") if part.strip()]
    for key, separator, _ in pairs:
        if not separator:
            raise ConfigurationError(f"option sparkConf: {key} has no value; use key=value, separated by `;`")
    return {key.strip(): value.strip() for key, _, value in pairs}
