"""One Spark session for all tests of this room, and the two systems it reads from: RocketMQ 4.9.7 and orbitmq."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
from pyspark.sql import DataFrameReader, SparkSession

from tests.support import delivery
from tests.support.java_rocketmq import JavaSystem, run_driver
from tests.support.orbit_process import OrbitUp

System: TypeAlias = JavaSystem | OrbitUp
SYSTEMS: dict[str, Callable[[], System]] = {
    "java": lambda: JavaSystem(enablePropertyFilter="true"),
    "orbitmq": lambda: OrbitUp(enablePropertyFilter="true"),
}

RUN = "spark"
QUEUES = 4
COUNT = 6000


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session that was told nothing about orbitmq: its workers find `pyspark_orbitmq` themselves."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # the queries are short
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("orbitmq tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@dataclass(frozen=True)
class Topic:
    """Messages [0, COUNT) of `RUN`, sent by the Java client; `sent` is what its producer was told."""

    system: System
    name: str
    sent: list[dict[str, Any]]

    def reader(self, spark: SparkSession, **options: object) -> DataFrameReader:
        return reader(spark, self.system, **options)


def reader(spark: SparkSession, system: System, **options: object) -> DataFrameReader:
    texts = {name.replace("__", "."): str(value) for name, value in options.items()}
    return spark.read.format("orbitmq").option("nameServer", system.namesrv_address).options(**texts)


@pytest.fixture(scope="session", params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    with SYSTEMS[request.param]() as running:
        yield running


@pytest.fixture(scope="session")
def topic(system: System) -> Topic:
    name = "orders"
    create_topic(system, name)
    arguments = ("--namesrv", system.namesrv_address, "--topic", name, "--mode", "async", "--run", RUN)
    sent = delivery.results(run_driver("send", *arguments, "--count", COUNT))
    assert len(sent) == COUNT
    return Topic(system, name, sent)


def create_topic(system: System, name: str) -> None:
    arguments = ("--do", "create", "--topic", name, "--queues", QUEUES, "--broker", system.address)
    run_driver("admin", "--namesrv", system.namesrv_address, *arguments)
