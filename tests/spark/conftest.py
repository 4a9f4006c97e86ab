"""One Spark session for all tests of this room, and the two systems it reads from: RocketMQ 4.9.7 and orbitmq.

What is promised of the pipeline, and where it is proven (`both`: live against the two systems; `golden`: stores that
RocketMQ wrote; `cluster`: brokers of orbitmq in this process; `model`: no broker):

| promise | where | against |
|---|---|---|
| one decoder, equal to the plain one | test_units, stores/test_batches | golden, model |
| a topic of 200,000 messages read whole by batch, stream and from disk | test_volume | both |
| splits of any size have each message once | stores/test_log, stores/test_splits | golden, model |
| the schema of every choice of columns; empty results | test_columns, test_source | model, both |
| brokers that left the route, topics without permission | test_read_brokers, test_stream | cluster, model |
| offsets by name, time, group, JSON, and their traps | test_offsets, test_read_plan, test_live_stream | model, both |
| short queues share a task, in order, through a restart | test_read_partitions, test_source, test_dead_broker | both |
| streams: first batch, limits, new and lost queues, brokers down, 2,000 queues | test_stream, test_next_batch | model |
| the same live; lag for tools, driver and page; killed workers | test_live_stream, test_stream_lag | both |
| silent name servers and brokers | test_address_order, test_stream, test_sink_task, test_dead_broker | model, cluster |
| messages that retention takes meanwhile | test_retention, stores/test_stream | cluster, model |
| killed drivers: Parquet, lake, topic | pipeline/test_killed_streams; bench/spark_kills | cluster; both |
| the sink: acks, copies, lost answers, oversize, order, killed brokers | test_sink_task, test_sink | cluster, both |
| the sink on two brokers: dead ones, marks on each, rows in other partitions | test_sink_brokers | cluster |
| accounts and TLS for source, stream, sink and archive | test_protected, test_channel | both, model |
| bodies as columns and columns as bodies, in every format | bodies, test_live_bodies, test_body_columns | model, both |
| bodies by the schema that is kept with the topic | test_live_topic_schema, bodies/test_json_schema | both |
| filters and conditions change no row | test_live_filters, test_pushdown, test_row_filters | both, model |
| registration, shipping, hints, a cluster's workers | test_session, test_cluster, test_source | model, both |
| archive, compaction, orphans, commits repeated | pipeline/test_archive, lake | both, cluster |
| rows of a lake; a topic and its lake as one table, each message once | lake, pipeline/test_history | model, cluster |
| versions of a lake, an object store, writers that meet | lake, pipeline/test_object_store | model, moto |
| the guard, what a full disk takes, replay of what is gone | pipeline/test_guard, test_replay | orbitmq, cluster |
| dead letters, migration, rebuilt queues | pipeline/test_dlq, test_migrate, test_rebuild | both, golden |
| rows a CPU second | bench/spark_reads | orbitmq |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
from pyspark.sql import DataFrameReader, SparkSession

from orbitmq.spark import address_order, cluster_client
from orbitmq.spark.channel import Channel
from tests.support import delivery
from tests.support.java_rocketmq import JavaSystem, run_driver
from tests.support.orbit_process import OrbitUp
from tests.support.spark_jvm import quick
from tests.support.sparks import reading

# A RocketMQ broker makes the topic of half messages in its first round of questions, which is soon then; and it never
# gives up asking about one.
_CHECKS = {"transactionCheckInterval": 3000, "transactionCheckMax": 1_000_000}

System: TypeAlias = JavaSystem | OrbitUp
SYSTEMS: dict[str, Callable[[], System]] = {
    "java": lambda: JavaSystem(enablePropertyFilter="true", **_CHECKS),
    "orbitmq": lambda: OrbitUp(enablePropertyFilter="true", **_CHECKS),
}

RUN = "spark"
BRIEF_MS = 100
Limits: TypeAlias = list[tuple[str, int]]
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
        "spark.driver.extraJavaOptions": quick(),
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
    made: DataFrameReader = reading(spark).option("nameServer", system.namesrv_address).options(**texts)
    return made


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


def create_topic(system: System, name: str, queues: int = QUEUES) -> None:
    arguments = ("--do", "create", "--topic", name, "--queues", queues, "--broker", system.address)
    run_driver("admin", "--namesrv", system.namesrv_address, *arguments)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Limits:
    """The address and the limit of each connection of the driver's client; the brief limit is BRIEF_MS."""
    seen: Limits = []

    class Noted(Channel):
        def __init__(self, address: str, timeout_ms: int, *more: object) -> None:
            seen.append((address, timeout_ms))
            super().__init__(address, timeout_ms, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(cluster_client, "Channel", Noted)
    monkeypatch.setattr(cluster_client, "BRIEF_MS", BRIEF_MS)
    monkeypatch.setattr(address_order, "BRIEF_MS", BRIEF_MS)
    return seen
