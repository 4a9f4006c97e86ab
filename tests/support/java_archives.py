"""Class archives for the Java processes of the tests, RocketMQ's and Spark's: a JVM that finds its classes there starts
at less cost.

Made once a build by running everything with the option that writes them: `python -m tests.support.java_archives`. Tests
run without them just the same.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.support.java_rocketmq import (
    ROCKETMQ_4,
    ROCKETMQ_5,
    SMALL_JVM,
    Driver,
    JavaBroker,
    JavaNameServer,
    archive_path,
    class_path,
)
from tests.support.spark_jvm import EXIT_SECONDS, make_archive


def make(version: str) -> None:
    """Archives of drivers and daemons of one version, unless they are there."""
    made: list[tuple[Path, Path]] = []

    def writing(kind: str) -> tuple[str, ...]:
        path = archive_path(version, kind)
        made.append((path.with_suffix(".new"), path))
        return (*SMALL_JVM, f"-XX:ArchiveClassesAtExit={made[-1][0]}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")

    with JavaNameServer(version) as names, JavaBroker(names.address, version, jvm=writing("daemon")) as broker:
        client = ("--namesrv", names.address, "--topic", "archived")
        with Driver("send", *client, "--run", "a", "--mode", "sync", "--count", 10, version=version) as driver:
            driver.finish(EXIT_SECONDS)
        consume = ("consume", *client, "--group", "archivers", "--expect", 10)
        with Driver(*consume, version=version, jvm=writing("driver")) as driver:
            driver.finish(EXIT_SECONDS)
        assert broker.process is not None
        broker.process.signal(signal.SIGTERM)  # and not killed as long as it writes
        broker.process.wait(EXIT_SECONDS)
    for new, path in made:
        new.rename(path)


def main() -> None:
    for version in (ROCKETMQ_4, ROCKETMQ_5):
        class_path(version)  # a new build begins without archives
        if not all(archive_path(version, kind).exists() for kind in ("daemon", "driver")):
            make(version)
    make_archive()


if __name__ == "__main__":
    sys.exit(main())
