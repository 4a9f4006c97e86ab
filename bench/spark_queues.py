"""Many small queues, for the rows of `bench/spark_reads.py` that plan and count them."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from orbitmq.message.hosts import encode_host
from orbitmq.runtime.clock import SystemClock
from orbitmq.spark.source import TopicSource
from orbitmq.store.dispatch import TAGS_ONLY
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import StoreOptions
from orbitmq.store.records import PutRecord

QUEUE_FILE_SIZE = 20_000  # bytes, of 1,000 entries: with RocketMQ's 6 MB the files would be 66 GB, though sparse
TOPICS: Mapping[str, tuple[int, int]] = {"many": (1000, 20), "most": (10_000, 2)}  # queues, messages of each
ROUNDS = 5


def fill_queues(root: Path) -> None:
    """A store with TOPICS, of messages of 1 KiB, as a broker would have written it."""
    options = StoreOptions(
        store_path_root_dir=str(root), message_index_enable=False, mapped_file_size_consume_queue=QUEUE_FILE_SIZE
    )
    store = MessageStore(options, clock=SystemClock(), entry_codes=TAGS_ONLY)
    store.open()
    host, body, born = encode_host("127.0.0.1", 10911), bytes(1024), 1_700_000_000_000
    for topic, (queues, size) in TOPICS.items():
        for number in range(queues * size):
            properties = b"KEYS\x01order-%d\x02UNIQ_KEY\x017F0000010A2B18B4AAC2%012X\x02WAIT\x01true" % (number, number)
            store.put(PutRecord(topic, number % queues, body, properties, born, host, host))
    store.close()
    config = {"perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}
    table = {
        topic: {"topicName": topic, "readQueueNums": queues, "writeQueueNums": queues, **config}
        for topic, (queues, _) in TOPICS.items()
    }
    (root / "config").mkdir(exist_ok=True)
    text = json.dumps({"dataVersion": {"counter": 1, "timestamp": 0}, "topicConfigTable": table})
    (root / "config" / "topics.json").write_text(text)


def _median_ms(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


def plan_ms(_spark: SparkSession, name_server: str) -> float:
    """The tasks for 10,000 queues."""
    return _planned_ms(name_server, "most")


def times_ms(spark: SparkSession, name_server: str) -> float:
    """The same for 1,000 queues from a time on, in the middle of each."""
    columns = spark.read.format("orbitmq").options(nameServer=name_server, columns="storeTimestamp").load("many")
    middle = columns.selectExpr("percentile_approx(unix_millis(storeTimestamp), 0.5) AS at").first()
    assert middle is not None
    return _planned_ms(name_server, "many", startingTimestamp=str(middle["at"]))


def _planned_ms(name_server: str, topic: str, **options: str) -> float:
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    source = TopicSource({"nameServer": name_server, "subscribe": topic, **late, **options})
    reader = source.reader(source.schema())
    return _median_ms(lambda: reader.partitions())


def count_ms(spark: SparkSession, name_server: str) -> float:
    """`count()` of 1,000 queues of 20 messages."""
    frame = spark.read.format("orbitmq").options(nameServer=name_server).load("many")

    def count() -> None:
        queues, size = TOPICS["many"]
        assert frame.count() == queues * size

    return _median_ms(count)
