"""Streams to be killed: a topic into Parquet, into a lake and into two topics, in a driver of their own.

`Driver` is the process as its killer sees it; run as a program this is what happens inside. What a sink promises is
checked by `counts`: every message of the topic once, or at least once.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import signal
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery, StreamingQueryListener

from orbitmq.pipeline.archive_stream import ArchiveSource
from orbitmq.pipeline.lake_sink import LakeSink
from orbitmq.pipeline.session import DATA_SOURCES
from orbitmq.spark.versions import register_sources
from tests.support.process import ChildProcess, ProcessFailed, wait_until
from tests.support.spark_jvm import quick
from tests.support.streams import finished, patiently

TOPIC = "orders"
COPIES = {"effectively-once": "orders-once", "at-least-once": "orders-again"}  # guarantee -> topic
SINKS = (*COPIES, "lake", "parquet")
START_TIMEOUT_S = 600  # a session with warm streams; many times what it takes alone
BATCH_ROWS = 500
REST_ROWS = 100_000  # of a batch of those who read the rest
Counts = dict[str, list[int]]  # sink -> rows, messages that are missing, rows too many


class Driver:
    """A process with a Spark session that waits to be told what to do, so that the next one is warm when one dies."""

    def __init__(self, name_server: str, folder: Path, number: int = 0, sinks: Sequence[str] = SINKS) -> None:
        root = Path(__file__).parents[2]
        self.child = ChildProcess(
            [sys.executable, "-m", "tests.support.killed_streams", name_server, str(folder), *sinks],
            output=folder / f"driver-{number}.out",
            environment={
                "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
                # Compiled once, not in each of the many processes, which Spark gives ten seconds to come up.
                "PYTHONDONTWRITEBYTECODE": "",
            },
            cwd=root,
            listens=True,
        )

    def tell(self, word: str, answer: str) -> Any:
        """Have it begin; what it answers when it has."""
        self._line("ready", START_TIMEOUT_S)
        self.child.tell(word)
        return self._line(answer, START_TIMEOUT_S)

    def wait_for_batches(self, count: int) -> None:
        """Wait until so many batches are done, of all streams together."""
        self.child.wait_for(lambda: self.batches >= count, START_TIMEOUT_S, f"{count} batches")

    @property
    def batches(self) -> int:
        return self.child.output().count('{"batch"')

    @property
    def failures(self) -> int:
        """Streams that had to be started again."""
        return self.child.output().count('{"failed"')

    def workers(self) -> list[int]:
        """Its Python processes: those that plan, the daemons and what they forked."""
        jvm = self._line("ready", 0)["jvm"]
        parents = {int(path.name): _parent(path) for path in Path("/proc").glob("[0-9]*")}
        found = [pid for pid, parent in parents.items() if parent == jvm]
        return found + [pid for pid, parent in parents.items() if parent in found]

    def kill(self) -> int:
        """End the virtual machine and its Python without a word; the number of batches they made."""
        if self.child.exit_code is None:
            with contextlib.suppress(ProcessFailed):  # it has no machine yet
                os.kill(self._line("ready", 0)["jvm"], signal.SIGKILL)
        self.child.kill()
        return self.batches

    def _line(self, name: str, timeout_s: float) -> Any:
        def found() -> Any:
            lines = [line for line in self.child.output().splitlines() if line.startswith(f'{{"{name}"')]
            return json.loads(lines[0])[name] if lines else None

        return found() or self.child.wait_for(found, timeout_s, name)


def _parent(process: Path) -> int:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def begin(
    spark: SparkSession, name_server: str, folder: Path, sink: str, *, rows: int = BATCH_ROWS, **trigger: Any
) -> StreamingQuery:
    """Start the stream into one of SINKS, from where its checkpoint is; `rows` are those of a batch at most."""
    spark.createDataFrame([], "nothing INT")  # makes it this thread's session; a write looks for its sink there
    source = {"nameServer": name_server, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows)}
    reader = spark.readStream.format("orbitmq").options(**source)
    if sink == "parquet":
        frame = reader.option("columns", "queueId,queueOffset,body").load(TOPIC)
        writer = frame.writeStream.format("parquet").option("path", f"{folder}/rows")
    elif sink == "lake":
        archive = spark.readStream.format(ArchiveSource.name()).options(**source, subscribe=TOPIC)
        writer = archive.option("lake", f"{folder}/lake").load().writeStream.format(LakeSink.name())
        writer = writer.options(lake=f"{folder}/lake", nameServer=name_server)
    else:  # without columns that tell where a message was, its key is its place in the query
        writer = reader.option("columns", "body").load(TOPIC).writeStream.format("orbitmq")
        writer = writer.options(nameServer=name_server, topic=COPIES[sink], deliveryGuarantee=sink, batchBytes="4096")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint-{sink}")
    return writer.queryName(sink).trigger(**trigger).start()


def finish(spark: SparkSession, name_server: str, folder: Path, sinks: Sequence[str] = SINKS) -> Counts:
    """Have every stream read the rest; what each sink holds then."""
    for sink in sinks:
        finished(partial(begin, spark, name_server, folder, sink, rows=REST_ROWS, availableNow=True), START_TIMEOUT_S)
    return patiently(lambda: counts(spark, name_server, folder, sinks))


def counts(spark: SparkSession, name_server: str, folder: Path, sinks: Sequence[str]) -> Counts:
    """What each sink holds, compared with the topic."""

    def topic(name: str) -> DataFrame:
        return spark.read.format("orbitmq").options(nameServer=name_server, columns="body").load(name)

    sent = _bodies(topic(TOPIC))

    def held(sink: str) -> DataFrame:
        if sink == "parquet":
            return spark.read.parquet(f"{folder}/rows")
        if sink == "lake":
            return spark.read.format("orbitmq-lake").option("topics", TOPIC).load(f"{folder}/lake")
        return topic(COPIES[sink])

    return {sink: compared(_bodies(held(sink)), sent) for sink in sinks}


def _bodies(frame: DataFrame) -> collections.Counter[bytes]:
    return collections.Counter(bytes(row.body) for row in frame.select("body").collect())


def compared(found: collections.Counter[bytes], sent: collections.Counter[bytes]) -> list[int]:
    """Rows, messages that are missing, rows too many."""
    return [found.total(), (sent - found).total(), (found - sent).total()]


def broken(counts: Counts) -> Iterable[str]:
    """Sinks whose promise is not kept."""
    return [sink for sink, (_rows, missing, more) in counts.items() if missing or (more and sink != "at-least-once")]


class Batches(StreamingQueryListener):
    """Prints every batch that is done."""

    def onQueryStarted(self, event: object) -> None: ...  # noqa: N802 - Spark's names

    def onQueryTerminated(self, event: object) -> None: ...  # noqa: N802

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        if event.progress.numInputRows:
            tell("batch", event.progress.name)


def tell(name: str, value: object) -> None:
    print(json.dumps({name: value}), flush=True)


def session() -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": quick(),
        "spark.log.level": "ERROR",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master("local[2,4]")  # a task may fail three times, as on a cluster
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register_sources(spark, *DATA_SOURCES)
    return spark


def main(name_server: str, folder: Path, sinks: Sequence[str]) -> None:
    """`go` runs the streams until somebody ends them, `finish` reads the rest and counts."""
    spark = session()
    spark.streams.addListener(Batches())
    topic = spark.read.format("orbitmq").options(nameServer=name_server, columns="body")
    patiently(lambda: topic.load(TOPIC).limit(1).collect())
    tell("ready", {"jvm": spark.sparkContext._gateway.proc.pid})
    if sys.stdin.readline().strip() == "finish":
        tell("counts", finish(spark, name_server, folder, sinks))
        return
    running = [working(spark, name_server, folder, sink) for sink in random.sample(sinks, len(sinks))]
    tell("begun", {"pid": os.getpid()})
    while True:
        with contextlib.suppress(StreamingQueryException):
            spark.streams.awaitAnyTermination()
        spark.streams.resetTerminated()
        for query in [query for query in running if not query.isActive]:
            tell_failed(query)
            running.remove(query)
            running.append(working(spark, name_server, folder, query.name))


def working(spark: SparkSession, name_server: str, folder: Path, sink: str) -> StreamingQuery:
    """A stream that has planned for the first time: Spark gives the Python process for that ten seconds to come up, and
    on a busy machine four at once are late."""
    while True:
        query = patiently(partial(begin, spark, name_server, folder, sink, processingTime="4 seconds"))
        wait_until(lambda running=query: running.recentProgress or not running.isActive, START_TIMEOUT_S, "a batch")
        if query.isActive:
            return query
        tell_failed(query)


def tell_failed(query: StreamingQuery) -> None:
    tell("failed", {"sink": query.name, "error": str(query.exception())[-2000:]})


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
