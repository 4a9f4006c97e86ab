"""A broker that is silent while a batch is planned, and one that dies while a task reads: both errors have a name, and
the task, repeated as Spark repeats it, reads everything. One that is back in time costs nothing, in whichever of the
queues of a task it was. A name server that is silent is passed over."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from orbitmq.client.sync import Producer
from orbitmq.errors import SourceError
from orbitmq.message.model import Message, MessageQueue
from orbitmq.spark import batches
from orbitmq.spark.source import TopicReader, TopicSource
from tests.spark.conftest import BRIEF_MS, Limits
from tests.support.orbit_process import OrbitBroker, OrbitNameServer

COUNT = 2000
QUEUES = 300
OPTIONS = {
    "columns": "queueOffset,body",
    "pullBatchSize": "32",
    "pullPipeline": "1",
    "pullTimeoutMs": "300",
    "fetchOffset.retryIntervalMs": "10",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OrbitBroker]:
    """With `COUNT` messages in the one queue of topic `orders`."""
    with OrbitNameServer() as names, OrbitBroker(names.address, home=tmp_path, flushDiskType="SYNC_FLUSH") as running:
        with Producer("dead-broker-senders", names.address) as producer:
            producer.create_topic("orders", queues=1)
            for start in range(0, COUNT, 100):
                producer.send_batch([Message("orders", b"%d" % (start + number)) for number in range(100)])
        yield running


def reader(broker: OrbitBroker, topic: str = "orders", **options: str) -> TopicReader:
    source = TopicSource({"nameServer": broker.namesrv_address, "subscribe": topic, **OPTIONS, **options})
    made = source.reader(source.schema())
    assert isinstance(made, TopicReader)
    return made


def bodies(found: Iterator[pa.RecordBatch]) -> list[bytes]:
    return [body for batch in found for body in batch["body"].to_pylist()]


def test_silence_and_death_of_a_broker_are_named_and_survived(
    broker: OrbitBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "DECODE_SIZE", 8 << 10)  # so that a task gives many batches
    (task,) = reader(broker).partitions()
    assert broker.process is not None
    broker.process.signal(signal.SIGSTOP)
    try:
        with pytest.raises(SourceError, match=r"^ORBITMQ_BROKER_UNAVAILABLE: .*broker-a"):
            reader(broker).partitions()
    finally:
        broker.process.signal(signal.SIGCONT)
    reading = reader(broker).read(task)
    next(reading)
    broker.kill()
    with pytest.raises(SourceError, match=r"^ORBITMQ_BROKER_UNAVAILABLE: queue 0 of topic orders on broker-a"):
        bodies(reading)
    broker.start()
    assert bodies(reader(broker, pullTimeoutMs="30000").read(task)) == [b"%d" % number for number in range(COUNT)]


def test_one_task_reads_many_queues_through_a_restart(broker: OrbitBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "DECODE_SIZE", 8 << 10)
    columns = {"columns": "queueId,queueOffset", "pullTimeoutMs": "30000"}
    with Producer("dead-broker-senders", broker.namesrv_address) as producer:
        producer.create_topic("many", queues=QUEUES)
        for number in range(QUEUES):
            queue = MessageQueue("many", broker.name, number)
            producer.send_batch([Message("many", bytes(100))] * (number % 7), queue=queue) if number % 7 else None
    (task,) = reader(broker, "many", **columns).partitions()
    found: list[tuple[int, int]] = []
    reading = reader(broker, "many", **columns).read(task)
    for number, batch in enumerate(reading):
        found += zip(batch["queueId"].to_pylist(), batch["queueOffset"].to_pylist(), strict=True)
        if number in {0, 5}:
            broker.kill()
            broker.start()
    assert found == [(number, offset) for number in range(QUEUES) for offset in range(number % 7)]


def test_a_frozen_name_server_is_passed_over(broker: OrbitBroker, limits: Limits) -> None:
    with OrbitNameServer() as frozen:
        assert frozen.process is not None
        frozen.process.signal(signal.SIGSTOP)
        try:
            names = f"{frozen.address};{broker.namesrv_address}"
            for _ in range(3):
                (task,) = reader(broker, nameServer=names, pullTimeoutMs="30000").partitions()
        finally:
            frozen.process.signal(signal.SIGCONT)
    assert [limit for address, limit in limits if address == frozen.address] == [BRIEF_MS]
    assert len(bodies(reader(broker).read(task))) == COUNT
