"""A whole topic read once: all queues, up to their ends, as messages and as a table."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import polars as pl
import pyarrow as pa
import pytest

from orbitmq.client import ClientError, ConfigurationError, Message, MessageQueue, Producer, PullConsumer, sync
from orbitmq.client.core.model import PullResult, PullStatus
from orbitmq.client.message_table import COLUMNS, DEFAULT, MessageTable
from orbitmq.client.sync import PullConsumer as BlockingConsumer
from orbitmq.client.topic_read import QUEUES_AT_ONCE, WAITS_MAX, TopicRead
from orbitmq.message.model import MessageExt
from orbitmq.spark import columns as of_spark
from orbitmq.testing import Cluster
from tests.support.loops import JumpingLoop


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as cluster:
        yield cluster


async def filled(cluster: Cluster, topic: str, count: int, *, first: int = 0, queues: int = 4) -> None:
    async with Producer("p", cluster.namesrv_address) as producer:
        await producer.create_topic(topic, queues=queues)
        for number in range(first, first + count):
            await producer.send(
                Message(topic, b"%d" % number, tags="even" if number % 2 == 0 else "odd", keys=f"K{number}")
            )


# ------------------------------------------------------------------------------------------------------------- messages


async def test_every_message_is_read_once_and_each_queue_in_its_order(cluster: Cluster) -> None:
    await filled(cluster, "Whole", 500, queues=12)
    async with PullConsumer("whole", cluster.namesrv_address) as consumer:
        found = [message async for message in consumer.read_all("Whole")]
        assert Counter(int(message.body) for message in found) == Counter(range(500))
        queues = {message.queue for message in found}
        assert len(queues) == 24
        for queue in queues:
            offsets = [message.queue_offset for message in found if message.queue == queue]
            assert offsets == list(range(len(offsets)))
        odd = [message async for message in consumer.read_all("Whole", "odd")]
        assert len(odd) == 250


async def test_what_is_sent_after_the_beginning_is_not_read(cluster: Cluster) -> None:
    await filled(cluster, "Growing", 20)
    async with PullConsumer("growing", cluster.namesrv_address) as consumer:
        read, bodies = consumer.read_all("Growing"), []
        async for message in read:
            if not bodies:
                await filled(cluster, "Growing", 20, first=20)
            bodies.append(int(message.body))
        assert sorted(bodies) == list(range(20))
        again = [int(message.body) async for message in consumer.read_all("Growing", start=read.ends)]
        assert sorted(again) == list(range(20, 40))
        assert [message async for message in consumer.read_all("Growing", until=read.ends, start=read.ends)] == []


async def test_a_read_has_the_messages_between_two_times(cluster: Cluster) -> None:
    await filled(cluster, "Timed", 10)
    async with PullConsumer("timed", cluster.namesrv_address) as consumer:
        cluster.advance(3600)
        await filled(cluster, "Timed", 10, first=10)
        stored = {
            int(m.body): datetime.fromtimestamp(m.store_timestamp / 1000, UTC) async for m in consumer.read_all("Timed")
        }
        later = consumer.read_all("Timed", start=stored[10])
        assert sorted([int(message.body) async for message in later]) == list(range(10, 20))
        earlier = consumer.read_all("Timed", until=stored[9] + timedelta(minutes=1))
        assert sorted([int(message.body) async for message in earlier]) == list(range(10))
        with pytest.raises(ConfigurationError, match="no time zone"):
            consumer.read_all("Timed", start=datetime(2030, 1, 1))  # noqa: DTZ001 - what is refused


def test_threads_read_a_topic_with_for(cluster: Cluster) -> None:
    asyncio.run(filled(cluster, "Blocking", 100))
    with BlockingConsumer("blocking", cluster.namesrv_address) as consumer:
        read = consumer.read_all("Blocking")
        assert sorted(int(message.body) for message in read) == list(range(100))
        assert sum(read.ends.values()) == 100
        assert next(iter(read)).topic == "Blocking"
        assert read.to_arrow(["body"]).num_rows == 100


async def test_a_topic_of_a_namespace_is_read(cluster: Cluster) -> None:
    async with (
        Producer("p", cluster.namesrv_address, namespace="north") as producer,
        PullConsumer("spaced", cluster.namesrv_address, namespace="north") as consumer,
    ):
        await producer.create_topic("Spaced")
        await producer.send(Message("Spaced", b"one"))
        assert [(message.topic, message.body) async for message in consumer.read_all("Spaced")] == [("Spaced", b"one")]


# ----------------------------------------------------------------------------------------------------- without a broker


class Broker:
    """Queues of one message each, whose pulls are counted."""

    def __init__(self, queues: int, length: int = 1) -> None:
        self.queues = [MessageQueue("T", "b", number) for number in range(queues)]
        self.length = length
        self.lowest = 0
        self.is_behind = False
        self.pulls = self.most = 0

    async def fetch_queues(self, topic: str) -> list[MessageQueue]:
        return self.queues

    async def min_offset(self, queue: MessageQueue) -> int:
        return 0

    async def max_offset(self, queue: MessageQueue) -> int:
        return self.length

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        raise AssertionError("no time is given")

    async def pull(self, queue: MessageQueue, expression: object, offset: int, max_num: int) -> PullResult:
        self.pulls += 1
        self.most = max(self.most, self.pulls)
        await asyncio.sleep(1)
        self.pulls -= 1
        if self.is_behind:
            return PullResult(PullStatus.NO_NEW_MSG, offset, self.lowest, offset)
        message = MessageExt("T", b"x", broker_name="b", queue_id=queue.queue_id, queue_offset=offset)
        return PullResult(PullStatus.FOUND, offset + 1, self.lowest, self.length, [message])


def read(broker: Broker) -> list[MessageExt]:
    async def run() -> list[MessageExt]:
        return [message async for message in TopicRead(broker, "T", "*", None, None)]

    loop = JumpingLoop()
    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


def test_few_pulls_are_in_flight_however_many_queues_there_are() -> None:
    broker = Broker(100)
    assert len(read(broker)) == 100
    assert broker.most == QUEUES_AT_ONCE


@pytest.mark.parametrize(("lowest", "last"), [(4, 3), (10, 9), (12, 9)])
def test_a_read_whose_messages_were_deleted_meanwhile_fails(lowest: int, last: int) -> None:
    broker = Broker(1, length=10)
    broker.lowest = lowest
    with pytest.raises(ClientError, match=f"messages 0 to {last} of queue 0 of T at b were deleted"):
        read(broker)


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_a_read_that_is_interrupted_raises_what_the_handler_raises(error: type[BaseException]) -> None:
    def fail(*_: object) -> None:
        raise error

    class Slow(Broker):
        async def pull(self, queue: MessageQueue, expression: object, offset: int, max_num: int) -> PullResult:
            signal.pthread_kill(here, signal.SIGUSR1)
            return await super().pull(queue, expression, offset, max_num)

    here, before = threading.get_ident(), signal.signal(signal.SIGUSR1, fail)
    try:
        with pytest.raises(error):
            list(sync.TopicRead(TopicRead(Slow(1), "T", "*", None, None)))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_read_from_a_broker_that_stays_behind_fails() -> None:
    broker = Broker(1)
    broker.is_behind = True
    with pytest.raises(ClientError, match="has no message 0, and its end was 1"):
        read(broker)
    assert broker.most == 1
    assert WAITS_MAX > 1


# --------------------------------------------------------------------------------------------------------------- tables


async def test_a_topic_is_a_table_of_arrow_and_a_frame_of_polars(cluster: Cluster) -> None:
    await filled(cluster, "Table", 50)
    async with PullConsumer("table", cluster.namesrv_address) as consumer:
        table = await consumer.read_all("Table").to_arrow()
        assert table.column_names == list(DEFAULT)
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        assert sorted(frame["keys"]) == sorted(f"K{number}" for number in range(50))
        assert frame.filter(pl.col("tags") == "odd").height == 25
        assert sorted(frame["body"]) == sorted(b"%d" % number for number in range(50))
        (row,) = frame.filter(pl.col("keys") == "K7").to_dicts()
        message = next(iter([m async for m in consumer.read_all("Table") if m.keys == "K7"]))
        assert row["storeTimestamp"] == datetime.fromtimestamp(message.store_timestamp / 1000, UTC)
        assert (row["brokerName"], row["queueId"], row["queueOffset"], row["msgId"], row["bornHost"]) == (
            message.broker_name, message.queue_id, message.queue_offset, message.msg_id, message.born_host,
        )  # fmt: skip
        every = await consumer.read_all("Table").to_arrow(list(COLUMNS))
        assert every.column_names == list(COLUMNS)
        with pytest.raises(ConfigurationError, match="no column colour; use some of topic"):
            await consumer.read_all("Table").to_arrow(["colour"])


async def test_a_topic_without_messages_is_a_table_without_rows(cluster: Cluster) -> None:
    await filled(cluster, "Empty", 0)
    async with PullConsumer("empty", cluster.namesrv_address) as consumer:
        assert (await consumer.read_all("Empty").to_arrow(["keys", "body"])).num_rows == 0


def test_a_table_keeps_columns_and_not_messages() -> None:
    table = MessageTable(["body", "tags"], batch_bytes=100)
    for number in range(30):
        table.add([MessageExt("T", b"x" * 9 + b"%d" % (number % 10))])
        assert len(table._waiting) <= 10
    found = table.finished()
    assert (found.num_rows, found.column("body").num_chunks) == (30, 3)
    assert found.column("tags").null_count == 30


@pytest.mark.parametrize(("born_ms", "shown_us"), [(1_790_000_000_000_000_000, None), (-5, -5000)])
def test_a_time_that_a_producer_has_invented_leaves_the_table_readable(born_ms: int, shown_us: int | None) -> None:
    table = MessageTable(["bornTimestamp"], batch_bytes=100)
    table.add([MessageExt("T", b"", born_timestamp=born_ms)])
    assert table.finished().column(0).cast("int64").to_pylist() == [shown_us]


def test_the_columns_are_those_of_the_spark_source() -> None:
    from pyspark.sql.pandas.types import to_arrow_type

    assert list(COLUMNS) == list(of_spark.COLUMNS)
    assert DEFAULT == of_spark.DEFAULT_COLUMNS
    for name, column in COLUMNS.items():
        theirs = to_arrow_type(of_spark.COLUMNS[name].type, timezone="UTC")
        if pa.types.is_map(theirs):  # which names its entries
            assert (column.type.key_type, column.type.item_type) == (theirs.key_type, theirs.item_type)
        else:
            assert column.type == theirs, name
