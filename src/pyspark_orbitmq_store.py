"""Lets Spark find the data source `orbitmq-store` on its own, as `pyspark_orbitmq` does for topics."""

from __future__ import annotations

from orbitmq.spark.stores.source import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
