"""The same tests with each version of Spark (`make test-spark-versions`): how one reads and writes, and why one is left
out."""

from __future__ import annotations

from typing import Any, Self

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from orbitmq.errors import SourceError
from orbitmq.spark.session import SOURCES
from orbitmq.spark.versions import HAS_SOURCES, SPARK, read_batch, write_batch

FAILURES = (PySparkException, SourceError)  # without data sources ours is not wrapped when it is of the driver
KINDS = {kind.name(): kind for kind in SOURCES}


def since(version: tuple[int, int], why: str) -> pytest.MarkDecorator:
    """For a test that older versions cannot pass."""
    return pytest.mark.skipif(version > SPARK, reason=f"Spark {'.'.join(map(str, SPARK))} {why}")


with_sources = since((4, 0), "has no Python data sources, and read_topics and write_topics have no such form")


class Reading:
    """`spark.read.format(name)` without data sources."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._kind = KINDS[name]
        self._options: dict[str, str] = {}
        self._schema: StructType | None = None

    def options(self, **options: object) -> Self:
        self._options |= {name: str(value) for name, value in options.items()}
        return self

    def option(self, name: str, value: object) -> Self:
        return self.options(**{name: value})

    def schema(self, schema: StructType) -> Self:
        self._schema = schema
        return self

    def load(self, path: str = "") -> DataFrame:
        return read_batch(self._spark, self._kind, self._options | ({"path": path} if path else {}), self._schema)


class Writing:
    """`frame.write.format(name).mode("append")` without data sources."""

    def __init__(self, frame: DataFrame, name: str) -> None:
        self._frame = frame
        self._kind = KINDS[name]
        self._options: dict[str, str] = {}

    def options(self, **options: object) -> Self:
        self._options |= {name: str(value) for name, value in options.items()}
        return self

    def option(self, name: str, value: object) -> Self:
        return self.options(**{name: value})

    def save(self, path: str = "") -> None:
        write_batch(self._frame, self._kind, self._options | ({"path": path} if path else {}))


def reading(spark: SparkSession, name: str = "orbitmq") -> Any:
    """A reader of this source."""
    return spark.read.format(name) if HAS_SOURCES else Reading(spark, name)


def writing(frame: DataFrame, name: str = "orbitmq") -> Any:
    """A writer that appends."""
    return frame.write.format(name).mode("append") if HAS_SOURCES else Writing(frame, name)
