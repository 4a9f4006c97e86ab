"""What Spark's virtual machines are started with: compiled as little as short queries want, with a class archive.

Run as a program, `python -m tests.support.spark_jvm ARCHIVE`, this is what a machine does that writes the archive: a
bit of everything tests do with Spark, so that its classes are found there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from orbitmq.spark.versions import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

ROOT = Path(__file__).parents[2]
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"  # another machine's archive is passed over without a word
EXIT_SECONDS = 240  # writing an archive takes some seconds, on a busy machine far more
ROWS = 200


def archive_path() -> Path:
    """Where the class archive lies, if it was made."""
    return ROOT / "tests" / "java" / "target" / f"spark-{pyspark.__version__}.jsa"


def quick() -> str:
    """The options of a driver, an executor or a daemon."""
    archive = archive_path()
    return f"{QUICK} -XX:SharedArchiveFile={archive} {_SILENT}" if archive.exists() else QUICK


def make_archive() -> None:
    """Write the archive, unless it is there."""
    archive = archive_path()
    if not archive.exists():
        new = archive.with_suffix(".new")
        command = [sys.executable, "-m", __name__, str(new)]
        subprocess.run(command, cwd=ROOT, check=True, timeout=EXIT_SECONDS, stderr=subprocess.DEVNULL)
        new.rename(archive)


class Reader(DataSourceReader, DataSourceStreamReader):
    """Numbers from 0 on: one partition of a batch, one step of a stream."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's names
        return {"end": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
        return {"end": ROWS}

    def partitions(self, *_: Any) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        return ((number, f"row {number}") for number in range(ROWS))

    def commit(self, *_: Any) -> None: ...


class Writer(DataSourceWriter, DataSourceStreamWriter):
    """Forgets what it gets."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _row in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, *_: Any) -> None: ...

    def abort(self, *_: Any) -> None: ...


class Numbers(DataSource):
    """A source and sink in Python, as orbitmq's are."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "number INT, text STRING"

    def reader(self, schema: object) -> Reader:
        return Reader()

    def streamReader(self, schema: object) -> Reader:  # noqa: N802
        return Reader()

    def writer(self, schema: object, overwrite: bool) -> Writer:
        return Writer()

    def streamWriter(self, schema: object, overwrite: bool) -> Writer:  # noqa: N802
        return Writer()


def work(spark: SparkSession, folder: Path) -> None:
    """Queries, files and streams of the kinds that tests have."""
    spark.dataSource.register(Numbers)
    frame = spark.read.format("numbers").load()
    frame.groupBy("text").count().orderBy("count").collect()
    frame.createOrReplaceTempView("numbers")
    spark.sql(
        "SELECT text, sum(number) FROM numbers JOIN range(9) ON number = id WHERE text <> '' GROUP BY 1"
    ).collect()
    frame.write.mode("overwrite").parquet(f"{folder}/rows")
    spark.read.parquet(f"{folder}/rows").where("number > 3").toArrow()
    frame.write.format("numbers").mode("append").save()
    spark.createDataFrame([(1, b"one", {"a": "b"})], "id INT, body BINARY, map MAP<STRING, STRING>").collect()
    spark.sparkContext.parallelize(range(8), 2).map(str).collect()
    sinks: dict[str, dict[str, str]] = {"parquet": {"path": f"{folder}/copied"}, "numbers": {}}
    for kind, options in sinks.items():
        writer = spark.readStream.format("numbers").load().writeStream.format(kind).options(**options)
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint-{kind}")
        writer.trigger(availableNow=True).start().awaitTermination()


def main(archive: str) -> None:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{QUICK} -XX:ArchiveClassesAtExit={archive} {_SILENT}",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.unix.domain.socket.enabled": "true",
    }
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    with tempfile.TemporaryDirectory(prefix="spark-archive-") as folder:
        work(spark, Path(folder))
        machine = spark.sparkContext._gateway.proc
        spark.stop()
        machine.stdin.close()  # its end
        machine.wait()


if __name__ == "__main__":
    main(sys.argv[1])
