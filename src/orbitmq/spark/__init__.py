"""Topics as DataFrames: the Spark data source `orbitmq`. Knows the wire, not the client or the broker.

    import orbitmq.spark

    orbitmq.spark.register(spark)
    spark.read.format("orbitmq").option("nameServer", "localhost:9876").load("orders").show()

Programs import the names of this room; its modules may change without notice.
"""

from __future__ import annotations

from orbitmq.spark.session import create_view, register, ship

__all__ = ["create_view", "register", "ship"]
