"""Streams that read what there is and end, on a machine too busy for Spark's patience."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

# Spark gives a Python process ten seconds to come up, however busy the machine is; then the query has to be started
# again.
LATE = "Python worker failed to connect back"
STARTS_MAX = 8
PATIENCE_S = 240


def finished(begin: Callable[[], StreamingQuery]) -> StreamingQuery:
    """The query that `begin` starts, once it has ended by itself; one that came up too late is started again."""
    for attempt in range(STARTS_MAX):
        query = begin()
        try:
            assert query.awaitTermination(PATIENCE_S), "the stream goes on"
            break
        except StreamingQueryException as error:
            if LATE not in str(error) or attempt == STARTS_MAX - 1:
                raise
    return query
