"""A streaming write whose driver is killed and started again: each row is in the topic once."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from orbitmq.testing.cluster import Cluster
from tests.spark import sinks
from tests.support.process import ChildProcess

KILLS = int(os.environ.get("ORBITMQ_TEST_KILLS", "1"))  # more of them for a longer look
STREAMED = 3000  # rows
FILES = 10  # each is a batch of the stream
PATIENCE_S = 240  # a session starts in 6 s alone, and far later on a busy machine

STREAM = """
import sys
from pyspark.sql import SparkSession, functions as F
import orbitmq.spark
names, topic, folder = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.memory", "512m").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
orbitmq.spark.register(spark)
rows = spark.readStream.schema("body STRING, keys STRING").option("maxFilesPerTrigger", 1).json(folder + "/input")
query = rows.writeStream.format("orbitmq").option("nameServer", names).option("topic", topic)
query = query.option("deliveryGuarantee", "effectively-once").option("batchBytes", 4096)
query = query.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
print("DONE", flush=True)
"""


@pytest.mark.timeout(300 * (KILLS + 1))
def test_a_killed_stream_has_written_each_row_once(tmp_path: Path) -> None:
    """The whole driver with its workers is killed while it writes, as often as KILLS says, and started again."""
    (tmp_path / "input").mkdir()
    size = STREAMED // FILES
    for number in range(FILES):
        lines = (json.dumps({"body": str(row), "keys": f"k{row}"}) for row in range(number * size, (number + 1) * size))
        (tmp_path / "input" / f"{number:03}.json").write_text("\n".join(lines))
    with Cluster() as cluster:
        cluster.create_topic("out")
        stream_until_done(cluster, tmp_path)
        copies = sinks.copies(cluster.namesrv_address, "out")
        print(f"{KILLS} kills, {STREAMED} rows, {sum(copies.values())} messages, {len(copies)} keys")
        assert set(copies.values()) == {1}
        assert sinks.bodies(cluster.namesrv_address, "out") == list(range(STREAMED))


def stream_until_done(cluster: Cluster, folder: Path) -> None:
    program = [sys.executable, "-c", STREAM, cluster.namesrv_address, "out", str(folder)]
    environment = {"PYSPARK_PYTHON": sys.executable}
    for kill in range(KILLS):
        stream = ChildProcess(program, output=folder / f"stream{kill}.out", environment=environment)
        some = (kill + 1) * STREAMED // (KILLS + 1)
        stream.wait_for(partial(has_stored, cluster, some), PATIENCE_S, "some rows are written")
        stream.kill()
    stream = ChildProcess(program, output=folder / "stream.out", environment=environment)
    stream.wait_for(lambda: "DONE" in stream.output(), PATIENCE_S, "the stream ends")
    stream.stop()


def has_stored(cluster: Cluster, count: int) -> bool:
    return cluster.message_count("out") >= count
