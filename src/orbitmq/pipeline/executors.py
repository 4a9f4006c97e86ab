"""Runs functions on all cores of a Spark cluster. Knows no job."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

from orbitmq.errors import OrbitMQError

PIECES_A_CORE = 4  # in one wave: enough to keep all cores busy, few enough to show progress
A = TypeVar("A")
B = TypeVar("B")
_ERROR = re.compile(r"^(?:orbitmq\.errors\.\w+|OSError|\w*Error): [^\n]+", re.MULTILINE)


class Executors:
    """Calls a function on the executors of a session, in waves; yields the results in order, or raises `error`."""

    def __init__(self, spark: SparkContext, error: type[OrbitMQError]) -> None:
        self._spark = spark
        self._error = error

    def __call__(self, function: Callable[[A], B], arguments: Sequence[A]) -> Iterator[B]:
        step = PIECES_A_CORE * self._spark.defaultParallelism
        for start in range(0, len(arguments), step):
            wave = list(arguments[start : start + step])
            try:
                yield from self._spark.parallelize(wave, len(wave)).map(function).collect()
            except (PySparkException, Py4JJavaError) as error:
                if found := _ERROR.findall(str(error)):
                    raise self._error(found[-1].partition(": ")[2]) from error
                raise
