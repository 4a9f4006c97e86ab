"""Lets Spark find the data source `orbitmq-lake` on its own, as `pyspark_orbitmq` does for topics."""

from __future__ import annotations

from orbitmq.spark.lake.source import LakeSource as DefaultSource

__all__ = ["DefaultSource"]
