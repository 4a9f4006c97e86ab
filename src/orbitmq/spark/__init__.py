"""Topics as DataFrames: the Spark data source `orbitmq`.

    import orbitmq.spark

    orbitmq.spark.register(spark)
    spark.read.format("orbitmq").option("nameServer", "localhost:9876").load("orders").show()

Import the names of this package only: its modules may change without notice.
"""

from __future__ import annotations

from orbitmq.spark.lag_listener import LagListener, QueryLag, listen
from orbitmq.spark.lake.history import SplitHistory, history, split_history
from orbitmq.spark.session import create_view, read_store, read_topics, register, ship, tables, write_topics
from orbitmq.spark.stream_lag import Spread, TopicLag

__all__ = [
    "LagListener",
    "QueryLag",
    "SplitHistory",
    "Spread",
    "TopicLag",
    "create_view",
    "history",
    "listen",
    "read_store",
    "read_topics",
    "register",
    "ship",
    "split_history",
    "tables",
    "write_topics",
]
