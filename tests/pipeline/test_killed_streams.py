"""Streams whose driver is killed while they write have written each message once: Parquet, the lake and a topic that is
written effectively once. `make spark-kills` does it twenty times, to brokers and at-least-once writes, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orbitmq.client import Message
from orbitmq.client.sync import Producer
from orbitmq.testing import Cluster
from tests.support import killed_streams
from tests.support.killed_streams import BATCH_ROWS, COPIES, TOPIC, Driver

COUNT = 4 * BATCH_ROWS
ONCE = "effectively-once"
SINKS = (ONCE, "lake", "parquet")


@pytest.mark.timeout(600)  # a second session, and Spark's patience with late workers
def test_a_driver_that_is_killed_costs_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with Cluster() as cluster:
        server = cluster.namesrv_address
        for topic in (TOPIC, COPIES[ONCE]):
            cluster.create_topic(topic, queues=4)
        with Producer("senders", server) as producer:
            for start in range(0, COUNT, BATCH_ROWS):
                producer.send_batch([Message(TOPIC, b"%d" % number) for number in range(start, start + BATCH_ROWS)])
        driver = Driver(server, tmp_path, sinks=SINKS)
        driver.tell("go", "begun")
        assert driver.kill() >= len(SINKS), "each stream had done a batch"
        counts = killed_streams.finish(spark, server, tmp_path, SINKS)
        print(f"the killed driver had done {driver.batches} batches; rows, missing, too many: {counts}")
        assert not killed_streams.broken(counts)
        assert [rows for rows, _missing, _more in counts.values()] == [COUNT] * len(SINKS)
