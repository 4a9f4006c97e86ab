"""The newest messages of topics, for the schema of their bodies. Runs on the driver where `load` is called."""

from __future__ import annotations

from itertools import chain, zip_longest

from pyspark.sql.types import BinaryType, StructField, StructType

from orbitmq.message.model import MessageQueue
from orbitmq.spark.bodies.options import RAW
from orbitmq.spark.fetch import OffsetRange
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.queue_selection import queue_selection
from orbitmq.spark.read_tasks import RangePartition, RangeTasks, cluster_of, preferred

MESSAGES_MAX = 1000  # enough for every field that is not rare, read within a second
QUEUES_MAX = 64  # that are read one after another
SIZE_MAX = 8 << 20  # bytes
BODIES = StructType([StructField("body", BinaryType())])


def newest_bodies(options: ReadOptions) -> list[bytes]:
    """The newest bodies of each topic that the read has, at most MESSAGES_MAX and about SIZE_MAX bytes of all."""
    cluster = cluster_of(options)
    selection = queue_selection(options)
    places = selection.checked(selection.find(cluster))
    bounds = cluster.bounds({queue: place.addresses for queue, place in places.items()})
    queues = _taking_turns(sorted(queue for queue, (low, high) in bounds.items() if low < high))[:QUEUES_MAX]
    plain = {"body_format": RAW, "body_schema": "", "body_message": ""}
    tasks = RangeTasks(options.replace(fail_on_data_loss=False, on_corrupt_record="skip", **plain), BODIES)
    found: list[bytes] = []
    for queue in queues:
        low, high = bounds[queue]
        newest = OffsetRange(queue, max(low, high - MESSAGES_MAX // len(queues)), high)
        size = 0
        for batch in tasks.read(RangePartition((newest,), preferred(places[queue], options.slaves))):
            found += batch.column("body").to_pylist()
            size += batch.nbytes
            if size >= SIZE_MAX // len(queues):
                break
    return found


def _taking_turns(queues: list[MessageQueue]) -> list[MessageQueue]:
    """The first queue of each topic, then the second of each."""
    topics: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        topics.setdefault(queue.topic, []).append(queue)
    return [queue for queue in chain.from_iterable(zip_longest(*topics.values())) if queue is not None]
