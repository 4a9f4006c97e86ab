"""Spark reads store directories: of RocketMQ, and of a broker that writes and removes files at the same time."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from pyspark.sql import DataFrame, Row, SparkSession, functions

from orbitmq.store.engine import MessageStore
from orbitmq.store.reader import StoreDirectory
from tests.spark.conftest import COUNT, Topic
from tests.support import golden
from tests.support.sparks import FAILURES, reading, with_sources
from tests.support.stores import open_store, record


def load(spark: SparkSession, path: Path | str, **options: object) -> DataFrame:
    texts = {name: str(value) for name, value in options.items()}
    frame: DataFrame = reading(spark, "orbitmq-store").options(**texts).load(str(path))
    return frame


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.physOffset for row in frame.select("physOffset").collect())


def in_log(case: str) -> list[int]:
    return [message["physicalOffset"] for message in golden.manifest(case)["messages"]]


def test_two_directories_are_read_by_several_tasks(spark: SparkSession, tmp_path: Path) -> None:
    plain, ipv6 = golden.unpack("plain", tmp_path / "a"), golden.unpack("ipv6", tmp_path / "b")
    paths = json.dumps({"broker-a": str(plain), "broker-b": str(ipv6)})
    frame = load(spark, paths, columns="brokerName,physOffset", splitBytes=1 << 20)
    assert frame.rdd.getNumPartitions() == 4
    expected = [("broker-a", place) for place in in_log("plain")] + [("broker-b", place) for place in in_log("ipv6")]
    assert sorted(map(tuple, frame.collect())) == expected


@with_sources
def test_a_users_schema_chooses_columns(spark: SparkSession, tmp_path: Path) -> None:
    root = golden.unpack("ipv6", tmp_path)
    frame = spark.read.schema("size INT, topic STRING").format("orbitmq-store").load(str(root))
    expected = [Row(size=m["size"], topic=m["topic"]) for m in golden.manifest("ipv6")["messages"]]
    assert frame.collect() == expected


def test_damage_reaches_the_user_with_its_coordinates(spark: SparkSession, tmp_path: Path) -> None:
    root = golden.unpack("crash_crc", tmp_path)
    place = golden.manifest("crash_crc")["damage"]["offset"]
    with pytest.raises(FAILURES, match=rf"ORBITMQ_CORRUPT_RECORD: .*00 at {place}, physical offset {place}"):
        load(spark, root).collect()
    rows = load(spark, root, onCorruptRecord="raw").where("corrupt IS NOT NULL").collect()
    assert [row.physOffset for row in rows if "physOffset" in row] == []  # not among the columns asked for
    assert len(rows) == 1


def test_an_empty_store_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    open_store(tmp_path).close()
    for scan in ("commitlog", "consumequeue", "index"):
        assert load(spark, tmp_path, scan=scan).collect() == []


class Writer:
    """A store that is written to until told to stop, and removes its oldest files when told to."""

    def __init__(self, root: Path) -> None:
        self.store: MessageStore = open_store(root, message_index_enable=True)
        self.sent = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def put(self, count: int) -> None:
        for _ in range(count):
            self.store.put(record(b"%06d" % self.sent * 20, "AB"[self.sent % 2], self.sent % 3))
            self.sent += 1

    def _run(self) -> None:
        while not self._stopped.wait(0.002):
            self.put(5)

    def __enter__(self) -> Self:
        self.put(500)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self.store.close()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with Writer(tmp_path / "store") as running:
        yield running


@pytest.mark.parametrize("options", [{}, {"topics": "A,B", "topicsBy": "queues"}])
def test_a_live_store_is_read_up_to_what_its_queues_hold(
    spark: SparkSession, tmp_path: Path, writer: Writer, options: dict[str, str]
) -> None:
    before = writer.sent
    rows = load(spark, tmp_path / "store", splitBytes=20_000, columns="body", **options).collect()
    numbers = sorted(int(row.body[:6]) for row in rows)
    assert numbers == list(range(len(numbers)))
    assert before <= len(numbers) <= writer.sent


def test_the_disk_of_a_running_broker_has_what_it_answers(spark: SparkSession, topic: Topic) -> None:
    """Of RocketMQ's broker and of orbitmq's."""
    columns = (
        "topic,queueId,queueOffset,msgId,tags,keys,body,properties,bornTimestamp,storeTimestamp,bornHost,physOffset"
    )
    directory = topic.system.store_dir
    assert StoreDirectory(directory).is_live
    pulled = content(topic.reader(spark, columns=columns).load(topic.name))
    assert len(pulled) == COUNT
    assert content(load(spark, directory, columns=columns, topics=topic.name, topicsBy="log")) == pulled
    entries = load(spark, directory, scan="consumequeue", topics=topic.name).orderBy("queueId", "queueOffset").collect()
    assert [row.physOffset for row in entries] == [row.physOffset for row in pulled]


def content(frame: DataFrame) -> list[Row]:
    """The rows in the order of the queues, with digests for what is long or has no order."""
    digests = {
        "body": functions.sha2("body", 256),
        "properties": functions.to_json(functions.array_sort(functions.map_entries("properties"))),
    }
    return frame.withColumns(digests).orderBy("queueId", "queueOffset").collect()
