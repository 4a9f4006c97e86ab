"""Support of the tests of writes: tasks without Spark, and what a topic holds afterwards."""

from __future__ import annotations

import asyncio
import collections
import itertools
from collections.abc import Iterable, Iterator

import pyarrow as pa

from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.unit import decode_units, message_of
from orbitmq.spark.bodies.writer import BodyWriter
from orbitmq.spark.cluster_client import ClusterClient, Retries
from orbitmq.spark.fetch import OffsetRange
from orbitmq.spark.pulls import FetchSettings, RangeReader
from orbitmq.spark.sink import SinkTask
from orbitmq.spark.sink_brokers import KnownBrokers, known_brokers
from orbitmq.spark.sink_columns import SinkColumns
from orbitmq.spark.sink_keys import IDEMPOTENCY_KEY, TaskIdentity
from orbitmq.spark.sink_options import WriteOptions, write_options
from orbitmq.spark.sink_report import WriteReport

TASK = TaskIdentity("job", "1", 0)
ONCE = {"deliveryGuarantee": "effectively-once"}


def options(**given: object) -> WriteOptions:
    return write_options({key: str(value) for key, value in given.items()})


def rows(numbers: Iterable[int], **more: pa.Array) -> pa.RecordBatch:
    """A batch of one row a number, with body and key that tell it."""
    texts = [str(number) for number in numbers]
    return pa.record_batch({"body": pa.array(texts), "keys": pa.array([f"k{text}" for text in texts]), **more})


def batches(*sizes: int, fails: bool = False) -> Iterator[pa.RecordBatch]:
    """Rows numbered on; with `fails` the input breaks off behind them, as that of a killed task does."""
    at = 0
    for size in sizes:
        yield rows(range(at, at + size))
        at += size
    if fails:
        raise ConnectionError("the input broke off")


def run_task(
    settings: WriteOptions,
    given: Iterable[pa.RecordBatch],
    task: TaskIdentity = TASK,
    known: KnownBrokers | None = None,
    bodies: BodyWriter | None = None,
) -> WriteReport:
    """What a Spark task does with its batches; `known` is what its driver saw, by default that of now."""
    known = known_brokers(settings) if known is None else known
    given = iter(given)
    first = next(given)
    columns = SinkColumns({name: place for place, name in enumerate(first.schema.names)}, bodies)
    return asyncio.run(SinkTask(settings, columns, task, known).run(itertools.chain([first], given)))


def stored(name_server: str, topic: str) -> dict[MessageQueue, list[MessageExt]]:
    """Every message of a topic, by queue and in its order."""
    cluster = ClusterClient([name_server], 10_000, Retries(3, 200))
    places = {queue: place.addresses for queue, place in cluster.queues(topic).items()}
    found: dict[MessageQueue, list[MessageExt]] = {}
    for queue, (low, high) in cluster.bounds(places).items():
        settings = FetchSettings("TOOLS_CONSUMER", "*", 1024, 4, 10_000, strict=True)
        runs = RangeReader([OffsetRange(queue, low, high)], places[queue], settings).pieces()
        found[queue] = [message_of(unit) for run in runs for _, body in run for unit in decode_units(bytes(body))]
    return found


def bounds(name_server: str, topic: str) -> dict[MessageQueue, tuple[int, int]]:
    """The first offset of each queue of a topic, and the one behind its last."""
    cluster = ClusterClient([name_server], 10_000, Retries(3, 200))
    return cluster.bounds({queue: place.addresses for queue, place in cluster.queues(topic).items()})


def length(name_server: str, topic: str) -> int:
    """How many messages the queues of a topic hold."""
    return sum(high - low for low, high in bounds(name_server, topic).values())


def bodies(name_server: str, topic: str) -> list[int]:
    """The numbers in the bodies of a topic, sorted."""
    return sorted(int(message.body) for queue in stored(name_server, topic).values() for message in queue)


def copies(name_server: str, topic: str) -> collections.Counter[str]:
    """How often each idempotency key is there."""
    messages = (message for queue in stored(name_server, topic).values() for message in queue)
    return collections.Counter(message.properties[IDEMPOTENCY_KEY] for message in messages)
