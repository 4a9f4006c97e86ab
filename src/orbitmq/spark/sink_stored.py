"""Finds the messages of a task that are stored already, by its marks and by the idempotency keys of messages since a
point in time. Blocking; knows nothing of sending.

It reads from masters only: a slave may lack the latest messages."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow.compute as pc

from orbitmq.errors import SourceError
from orbitmq.message.config import SUBSCRIBE_ALL
from orbitmq.message.model import MessageQueue
from orbitmq.message.properties import KEYS
from orbitmq.spark.batches import regions
from orbitmq.spark.cluster_client import Addresses
from orbitmq.spark.fetch import OffsetRange, queue_name
from orbitmq.spark.group_offsets import by_broker
from orbitmq.spark.pulls import FetchSettings, RangeReader
from orbitmq.spark.sink_brokers import cluster_of, masters, require_brokers
from orbitmq.spark.sink_keys import IDEMPOTENCY_KEY, TASK_BROKERS
from orbitmq.spark.sink_options import WriteOptions
from orbitmq.spark.units import Units, unit_positions

LOG = logging.getLogger(__name__)

SKEW_MS = 60_000  # assumed maximum difference of the clocks of brokers and executors
KEYS_MAX = 8_000_000  # keys in memory, about 1 GiB of a worker
READ_GROUP = "TOOLS_CONSUMER"  # every broker has it; its offsets never change

StoredPlaces = dict[str, tuple[MessageQueue, int]]  # idempotency key -> queue and offset of its message


class StoredKeys:
    """Reads the idempotency keys from the topics that the task writes."""

    def __init__(self, options: WriteOptions) -> None:
        self._cluster = cluster_of(options)
        self._pulls = FetchSettings(
            group=READ_GROUP,
            expression=SUBSCRIBE_ALL,
            batch_size=1024,
            pipeline=8,
            timeout_ms=options.send_timeout_ms,
            strict=False,
            protection=options.protection,
        )

    def brokers(self) -> frozenset[str]:
        """The brokers of the cluster whose masters are registered."""
        return masters(self._cluster)

    def since(
        self, topic: str, time_ms: int, brokers: Collection[str], only: MessageQueue | None = None
    ) -> StoredPlaces:
        """The keys of all messages of a topic, or of one queue, stored at or after a minute before `time_ms`.

        SourceError ORBITMQ_BROKER_UNAVAILABLE when one of the `brokers` has no master or no readable queue, since its
        messages would be missed.
        """
        places = self._cluster.queues(topic)
        queues = {queue: place.addresses[:1] for queue, place in places.items() if place.has_master}
        require_brokers(brokers, {queue.broker_name for queue in queues})
        if only is not None:
            queues = {only: _addresses_of(only, queues)}
        bounds = self._cluster.bounds(queues)
        starts = self._cluster.offsets_at(queues, bounds, dict.fromkeys(queues, time_ms - SKEW_MS), READ_GROUP)
        found: StoredPlaces = {}
        for on_broker in by_broker(queues).values():
            wanted = [OffsetRange(queue, starts[queue], bounds[queue][1]) for queue in on_broker]
            self._list(wanted, queues[on_broker[0]], found)
        return found

    def _list(self, ranges: Sequence[OffsetRange], addresses: Addresses, found: StoredPlaces) -> None:
        reader = RangeReader(ranges, addresses, self._pulls)
        for wanted, bodies in chain.from_iterable(regions(reader.pieces())):
            data = b"".join(bodies)
            units = Units(data, unit_positions(data))
            keys = units.properties.column(IDEMPOTENCY_KEY)
            places = zip(keys.to_pylist(), units.field("queue_offset").tolist(), strict=True)
            found.update((key, (wanted.queue, offset)) for key, offset in places if key is not None)
            if len(found) > KEYS_MAX:
                text = f"{wanted}: more than {KEYS_MAX} messages with keys were stored since the task first began"
                raise SourceError("ORBITMQ_REPLAY_TOO_LARGE", text)


def _addresses_of(queue: MessageQueue, queues: Mapping[MessageQueue, Addresses]) -> Addresses:
    if queue not in queues:
        raise SourceError("ORBITMQ_BROKER_UNAVAILABLE", f"{queue_name(queue)} cannot be read at present")
    return queues[queue]


@dataclass(frozen=True)
class FoundMarks:
    """The marks of a task, of all its earlier attempts together."""

    since_ms: int | None
    """When the first one was stored, None without any."""
    holders: frozenset[str]
    """The brokers that have a mark."""
    brokers: frozenset[str]
    """The brokers that the task may have written to."""


def found_marks(bodies: Iterable[tuple[str, bytes]], mark: str) -> FoundMarks:
    """The marks among runs of units from an index query, each with its broker. An index finds hashes only."""
    found = [(broker, *each) for broker, body in bodies if body for each in _marked(body, mark)]
    holders = frozenset(broker for broker, _, _ in found)
    told = {name for _, _, text in found for name in text.split(",") if name}
    return FoundMarks(min((time for _, time, _ in found), default=None), holders, holders | told)


def _marked(body: bytes, mark: str) -> list[tuple[int, str]]:
    """Store time and brokers of each unit with the mark."""
    units = Units(body, unit_positions(body))
    keys, brokers = units.properties.column(KEYS), units.properties.column(TASK_BROKERS)
    marked = pc.fill_null(pc.match_substring(keys, mark), False).to_numpy(False)
    times = units.field("store_timestamp")[marked].tolist()
    return list(zip(times, pc.fill_null(brokers, "").filter(marked).to_pylist(), strict=True))


def places_of(stored: Mapping[str, tuple[MessageQueue, int]], keys: Sequence[str]) -> list[tuple[MessageQueue, int]]:
    """Queue and offset of the messages with these keys. Empty unless all are stored."""
    places = [stored[key] for key in keys if key in stored]
    return places if len(places) == len(keys) else []
