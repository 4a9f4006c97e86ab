"""The Spark session of a job: started when it is asked for, stopped with the job. Knows no job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from orbitmq.errors import ConfigurationError
from orbitmq.pipeline.archive_stream import ArchiveSource
from orbitmq.pipeline.job import JobOptions
from orbitmq.pipeline.lake_sink import LakeSink
from orbitmq.spark import register, ship

SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",  # tasks cost less than half of what they do over TCP
    "spark.speculation": "false",  # a second copy of a task that sends would send twice
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
LOCAL_MASTER = "local"
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}  # nobody but this process needs to reach it
DATA_SOURCES = (ArchiveSource, LakeSink)  # of the jobs alone
SUBMITTED = "SPARK_ENV_LOADED"  # spark-submit's scripts set it


@contextmanager
def session_of(name: str, options: JobOptions) -> Iterator[Callable[[], SparkSession]]:
    """What starts the session of the job `name`, once, and is stopped at the end; one that was running goes on."""
    made: list[SparkSession] = []
    running = SparkSession.getActiveSession()

    def start() -> SparkSession:
        if not made:
            made.append(_start(f"orbitmq {name}", options))
        return made[0]

    try:
        yield start
    finally:
        for session in made:
            if running is None:
                session.stop()


def _start(name: str, options: JobOptions) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    is_submitted = SUBMITTED in os.environ
    master = options.master or ("" if is_submitted else "local[*]")
    if master:
        builder = builder.master(master)
    settings = SETTINGS | (LOCAL if master.startswith(LOCAL_MASTER) else {}) | _given(options.spark_conf)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if not (is_submitted or master.startswith(LOCAL_MASTER)):
        ship(session)  # executors may have no orbitmq, or another one; spark-submit brings what it was told to
    register(session)
    for kind in DATA_SOURCES:
        session.dataSource.register(kind)
    return session


def _given(text: str) -> dict[str, str]:
    pairs = [part.strip().partition("=") for part in text.split(";") if part.strip()]
    for key, separator, _ in pairs:
        if not separator:
            raise ConfigurationError(f"option sparkConf: {key} has no value; give key=value, separated by `;`")
    return {key.strip(): value.strip() for key, _, value in pairs}
