"""The Spark session that all tests with Spark share, told about the jobs' own data sources."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from orbitmq.pipeline.session import DATA_SOURCES
from orbitmq.spark.versions import register_sources
from tests.spark.conftest import spark as session
from tests.spark.conftest import system

__all__ = ["session", "system"]


@pytest.fixture(scope="session")
def spark(session: SparkSession) -> SparkSession:
    register_sources(session, *DATA_SOURCES)
    return session
