"""What of a task is stored already: the search for its mark in the key index of brokers, and the list of idempotency
keys that messages since a point in time carry. Blocking; must not know how messages are sent."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import pyarrow.compute as pc

from orbitmq.errors import SourceError
from orbitmq.message.config import SUBSCRIBE_ALL
from orbitmq.message.model import MessageQueue
from orbitmq.message.properties import KEYS
from orbitmq.spark.batches import regions
from orbitmq.spark.cluster import Addresses, Cluster, Retries
from orbitmq.spark.fetch import QueueRange
from orbitmq.spark.pulls import PullSettings, RangeReader
from orbitmq.spark.sink_keys import IDEMPOTENCY_KEY
from orbitmq.spark.sink_options import WriteOptions
from orbitmq.spark.units import Units, unit_positions

LOG = logging.getLogger(__name__)

SKEW_MS = 60_000  # clocks of brokers and executors are believed to differ by less
KEYS_MAX = 8_000_000  # keys held at a time: some 1 GiB of a worker
READ_GROUP = "TOOLS_CONSUMER"  # every broker has it; its offsets never change
RETRIES = Retries(3, 1000)

Stored = dict[str, tuple[MessageQueue, int]]  # idempotency key -> where its message is


class StoredKeys:
    """Reads topics that the task writes."""

    def __init__(self, options: WriteOptions) -> None:
        self._cluster = Cluster(options.name_servers, options.send_timeout_ms, RETRIES, options.protection)
        self._pulls = PullSettings(
            group=READ_GROUP,
            expression=SUBSCRIBE_ALL,
            batch_size=1024,
            pipeline=8,
            timeout_ms=options.send_timeout_ms,
            strict=False,
            protection=options.protection,
        )

    def since(self, topic: str, time_ms: int, only: MessageQueue | None = None) -> Stored:
        """The keys of all messages of a topic, or of one queue, that were stored from a minute before `time_ms` on."""
        places = self._cluster.queues(topic)
        queues = {queue: place.addresses for queue, place in places.items() if only is None or queue == only}
        bounds = self._cluster.bounds(queues)
        found: Stored = {}
        for queue, addresses in queues.items():
            start = self._cluster.offset_at(queue, addresses, bounds[queue], time_ms - SKEW_MS, READ_GROUP)
            self._list(QueueRange(queue, start, bounds[queue][1]), addresses, found)
        return found

    def _list(self, wanted: QueueRange, addresses: Addresses, found: Stored) -> None:
        if not len(wanted):
            return
        for region in regions(RangeReader(wanted, addresses, self._pulls).bodies()):
            units = Units(region, unit_positions(region))
            keys = units.properties.column(IDEMPOTENCY_KEY)
            places = zip(keys.to_pylist(), units.field("queue_offset").tolist(), strict=True)
            found.update((key, (wanted.queue, offset)) for key, offset in places if key is not None)
            if len(found) > KEYS_MAX:
                text = f"{wanted}: more than {KEYS_MAX} messages with keys were stored since the task first began"
                raise SourceError("ORBITMQ_REPLAY_TOO_LARGE", text)


def marked_since(bodies: Iterable[bytes], mark: str) -> int | None:
    """The earliest store time of units that have `mark` among their KEYS, None when none has: an index finds hashes."""
    times = [time for body in bodies if body for time in _times_of(body, mark)]
    return min(times, default=None)


def _times_of(body: bytes, mark: str) -> list[int]:
    units = Units(body, unit_positions(body))
    marked = pc.fill_null(pc.match_substring(units.properties.column(KEYS), mark), False).to_numpy(False)
    times: list[int] = units.field("store_timestamp")[marked].tolist()
    return times


def places_of(stored: Mapping[str, tuple[MessageQueue, int]], keys: Sequence[str]) -> list[tuple[MessageQueue, int]]:
    """Where the messages with these keys are; empty unless all of them are there."""
    places = [stored[key] for key in keys if key in stored]
    return places if len(places) == len(keys) else []
