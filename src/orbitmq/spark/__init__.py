"""Topics as DataFrames: the Spark data source `orbitmq`.

    import orbitmq.spark

    orbitmq.spark.register(spark)
    spark.read.format("orbitmq").option("nameServer", "localhost:9876").load("orders").show()

Import the names of this package only: its modules may change without notice.
"""

from __future__ import annotations

from orbitmq.spark.lake.history import SplitHistory, history, split_history
from orbitmq.spark.session import create_view, register, ship, tables

__all__ = ["SplitHistory", "create_view", "history", "register", "ship", "split_history", "tables"]
