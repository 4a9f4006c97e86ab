"""The audit of live brokers: what groups, traces, half and delayed messages make of it; the same on RocketMQ and
orbitmq."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    MessageExt,
    SimpleConsumer,
)
from orbitmq.client.sync import Producer, PushConsumer
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import HALF_TOPIC, REVIVE_PREFIX, SCHEDULE_TOPIC, TRACE_TOPIC, TRANSACTION_GROUP
from orbitmq.pipeline.audit import job
from orbitmq.pipeline.audit.in_flight import MARK
from orbitmq.spark.cluster_client import ClusterClient, Retries
from orbitmq.spark.group_offsets import OffsetReporter, stored_offsets
from tests.spark import sinks
from tests.spark.conftest import System, create_topic
from tests.support.java_rocketmq import JavaSystem
from tests.support.jobs import run_job
from tests.support.process import wait_until
from tests.support.transactions import COMMIT, RawProducer

TOPIC, SHOP, BILLING, LAZY = "audited", "audited-shop", "audited-billing", "audited-lazy"
POPPING = "audited-popping"
COUNT = 40
HOURS_LATER = 3
LEVEL_2H = 18


def has_timers(system: System) -> bool:
    return not isinstance(system, JavaSystem)


class Later:
    """The audit's clock, some hours on: what waits is overdue then."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + HOURS_LATER * 3_600_000


@pytest.fixture(scope="module")
def busy(system: System) -> System:
    """Messages that are sent and consumed with traces, a group that stands still, a transaction left open, and a
    message that waits two hours."""
    create_topic(system, TOPIC)
    with Producer(SHOP, system.namesrv_address, enable_trace=True) as producer:
        for number in range(COUNT):
            producer.send(Message(TOPIC, b"%d" % number, keys=f"hot k{number}" if number % 2 else f"k{number}"))
        producer.send(Message(TOPIC, b"patient", delay_level=LEVEL_2H))
        if has_timers(system):
            for key, after_s in (("audited-timer", 7200.0), ("audited-delivered", 0.5)):
                producer.send(Message(TOPIC, b"patient", keys=key, deliver_after=after_s))
    seen: list[MessageExt] = []

    def work(messages: list[MessageExt], _context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        seen.extend(messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = PushConsumer(BILLING, system.namesrv_address, consume_from_where=first, enable_trace=True)
    consumer.subscribe(TOPIC)
    consumer.set_listener(work)
    with consumer:
        count = COUNT + has_timers(system)
        wait_until(lambda: len({message.msg_id for message in seen}) == count, 60, "the group has them all")
    cluster = ClusterClient([system.namesrv_address], 10_000, Retries(3, 200))
    places = cluster.queues(TOPIC)
    OffsetReporter(cluster, LAZY).report({queue: 2 for queue in places if queue.queue_id < 2}, places)
    asyncio.run(transactions(system))
    wait_until(lambda: passed(cluster), 60, "the broker to be done with the decided one")
    wait_until(lambda: traced(system) >= 2 * COUNT, 30, "traces are stored")
    return system


async def transactions(system: System) -> None:
    producer = RawProducer(system.address, SHOP)
    try:
        now_ms = time.time_ns() // 1_000_000  # older ones than a broker keeps are dropped
        decided = await producer.prepare(TOPIC, b"decided", "audited-decided", queue_id=3, born_ms=now_ms)
        await producer.prepare(TOPIC, b"open", "audited-open", queue_id=3, born_ms=now_ms)
        await producer.end(decided, COMMIT)
    finally:
        await producer.remoting.close()


def passed(cluster: ClusterClient) -> bool:
    """Whether the broker has noted the decision: nobody else can read it, its topic has no route."""
    places = cluster.look_up([HALF_TOPIC]).queues
    addresses = {queue: place.addresses for queue, place in places.items()}
    return any(offset >= 1 for offset in stored_offsets(cluster, TRANSACTION_GROUP, addresses).values())


def traced(system: System) -> int:
    found = sinks.stored(system.namesrv_address, TRACE_TOPIC).values()
    bodies = [message.body for queue in found for message in queue if TOPIC.encode() in message.body]
    return sum(body.count(b"Pub") + body.count(b"SubAfter") for body in bodies)


def table(out: Path, name: str) -> list[dict[str, Any]]:
    return [row for path in sorted((out / name).glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def test_a_cluster_is_looked_through(
    spark: SparkSession, busy: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "SystemClock", Later)
    options = {"nameServer": busy.namesrv_address, "topics": TOPIC, "hotKeyMessages": COUNT // 4}
    planned = run_job(job.JOB, spark, **options, dryRun="true")
    assert planned.counts == {"messages to read": COUNT + 1 + has_timers(busy)}  # the committed one, too

    outcome = run_job(job.JOB, spark, **options, out=tmp_path)
    stored = sinks.stored(busy.namesrv_address, TOPIC)
    rows = {(row["group"], row["queueId"]): row for row in table(tmp_path, "backlog")}
    for queue, messages in stored.items():
        size = sum(message.store_size for message in messages[2:])
        if queue.queue_id < 2:
            row = rows[LAZY, queue.queue_id]
            assert (row["messages"], row["bytes"]) == (len(messages) - 2, size)
            waits = row["seconds"] - HOURS_LATER * 3600
            assert 0 <= waits <= (time.time_ns() // 1_000_000 - messages[2].store_timestamp) // 1000 + 1
        if (BILLING, queue.queue_id) in rows:
            assert rows[BILLING, queue.queue_id]["messages"] <= 1  # at most the one of the transaction

    assert table(tmp_path, "gaps") == table(tmp_path, "damage") == []
    doubles = [row for row in table(tmp_path, "duplicates") if row["kind"] != "keys"]
    assert doubles == []
    (hot,) = [row for row in table(tmp_path, "hot_keys") if row["hot"]]
    assert (hot["topic"], hot["key"], hot["messages"]) == (TOPIC, "hot", COUNT // 2)

    (delivery,) = [row for row in table(tmp_path, "deliveries") if row["group"] == BILLING]
    count = COUNT + has_timers(busy)
    assert (delivery["topic"], delivery["messages"], delivery["done"]) == (TOPIC, count, count)
    assert 0 <= delivery["waitP50"] <= delivery["waitP99"] <= delivery["doneMax"]
    half = {row["msgId"]: row for row in table(tmp_path, "half") if row["group"] == SHOP}
    assert half.keys() == {"audited-open"}
    assert half["audited-open"]["topic"] == TOPIC
    delayed = [row for row in table(tmp_path, "delayed") if row["topic"] == TOPIC]
    waiting = [(LEVEL_2H, 0), (None, 0)] if has_timers(busy) else [(LEVEL_2H, 0)]
    assert {(row["level"], row["queueOffset"]) for row in delayed} == set(waiting)
    assert len(delayed) == len(waiting)
    assert all(3600 <= row["seconds"] <= 3600 + 300 for row in delayed)  # due after two of the three hours
    assert stored_in(busy, SCHEDULE_TOPIC, LEVEL_2H - 1) == 1

    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["missing"] == {}
    assert {finding["kind"] for finding in summary["findings"]} == {"keys", "half", "delayed"}
    assert len(outcome.failed) == 2


async def receive(system: System) -> set[tuple[int, int]]:
    async with SimpleConsumer(POPPING, system.namesrv_address) as consumer:
        consumer.subscribe(TOPIC)
        found = await consumer.receive(2, invisible=600.0, timeout=20)
        await consumer.ack(found[0])
        return {(one.queue_id, one.queue_offset) for one in found[1:]}


def are_marked(system: System) -> bool:
    """Whether the broker has marked its records."""
    records = sinks.stored(system.namesrv_address, f"{REVIVE_PREFIX}DefaultCluster").values()
    return any(record.tags == MARK for queue in records for record in queue)


def test_messages_in_flight_are_found(spark: SparkSession, busy: System, tmp_path: Path) -> None:
    expected = set()
    if has_timers(busy):
        expected = asyncio.run(receive(busy))
        wait_until(lambda: are_marked(busy), 40, "the broker to mark its records")
    run_job(job.JOB, spark, nameServer=busy.namesrv_address, checks="in-flight", out=tmp_path)
    rows = [row for row in table(tmp_path, "in_flight") if row["group"] == POPPING]
    assert {(row["queueId"], row["queueOffset"]) for row in rows} == expected


def stored_in(system: System, topic: str, queue_id: int) -> int:
    found = sinks.stored(system.namesrv_address, topic)
    return len(found[MessageQueue(topic, next(iter(found)).broker_name, queue_id)])
