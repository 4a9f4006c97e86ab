"""Lets Spark find the data source on its own: it imports every top-level module named `pyspark_*` of the worker's
Python and registers their `DefaultSource`."""

from __future__ import annotations

from orbitmq.spark.source import TopicSource as DefaultSource

__all__ = ["DefaultSource"]
