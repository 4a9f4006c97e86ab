"""Pieces of work on all cores of a Spark cluster. Knows no job."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

from orbitmq.errors import OrbitMQError

PIECES_A_CORE = 4  # given to Spark together: enough that no core waits for the last one long, few enough for progress
A = TypeVar("A")
B = TypeVar("B")
_ERROR = re.compile(r"^(?:orbitmq\.errors\.\w+|OSError|\w*Error): [^\n]+", re.MULTILINE)


class Executors:
    """Runs pieces of work on the executors of a session, some at a time, and gives what came of them in order. What
    goes wrong there is raised as `error`."""

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
