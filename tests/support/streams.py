"""Streams that read what there is and end, on a machine too busy for Spark's patience."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.streaming import StreamingQuery

T = TypeVar("T")

# Spark gives a Python process ten seconds to come up, however busy the machine is; then the work has to be begun again.
LATE = "Python worker failed to connect back"
STARTS_MAX = 8
PATIENCE_S = 240


def patiently(work: Callable[[], T]) -> T:
    """What `work` gives, which is begun again when a Python process came up too late for it."""
    for _ in range(STARTS_MAX - 1):
        try:
            return work()
        except (PySparkException, Py4JError) as error:
            if LATE not in str(error):
                raise
    return work()


def finished(begin: Callable[[], StreamingQuery], patience_s: float = PATIENCE_S) -> StreamingQuery:
    """The query that `begin` starts, once it has ended by itself."""

    def ended() -> StreamingQuery:
        query = begin()
        assert query.awaitTermination(patience_s), "the stream goes on"
        return query

    return patiently(ended)
