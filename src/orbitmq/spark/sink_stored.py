"""What of a task is stored already: what its marks tell, and the list of idempotency keys that messages since a point
in time carry. Blocking; must not know how messages are sent.

Only masters are believed: a slave may lack what its master stored last."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from orbitmq.errors import SourceError
from orbitmq.message.config import SUBSCRIBE_ALL
from orbitmq.message.model import MessageQueue
from orbitmq.message.properties import KEYS
from orbitmq.spark.batches import regions
from orbitmq.spark.cluster_client import Addresses
from orbitmq.spark.fetch import OffsetRange, queue_name
from orbitmq.spark.pulls import FetchSettings, RangeReader
from orbitmq.spark.sink_brokers import cluster_of, masters, require_brokers
from orbitmq.spark.sink_keys import IDEMPOTENCY_KEY, TASK_BROKERS
from orbitmq.spark.sink_options import WriteOptions
from orbitmq.spark.units import Units, unit_positions

LOG = logging.getLogger(__name__)

SKEW_MS = 60_000  # clocks of brokers and executors are believed to differ by less
KEYS_MAX = 8_000_000  # keys held at a time: some 1 GiB of a worker
READ_GROUP = "TOOLS_CONSUMER"  # every broker has it; its offsets never change

StoredPlaces = dict[str, tuple[MessageQueue, int]]  # idempotency key -> where its message is


class StoredKeys:
    """Reads topics that the task writes."""

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
        """Those of the whole cluster whose masters are registered."""
        return masters(self._cluster)

    def since(
        self, topic: str, time_ms: int, brokers: Collection[str], only: MessageQueue | None = None
    ) -> StoredPlaces:
        """The keys of all messages of a topic, or of one queue, that were stored from a minute before `time_ms` on.

        SourceError ORBITMQ_BROKER_UNAVAILABLE when one of the `brokers` has no master or no queue that can be read:
        what it holds must not be taken for nothing.
        """
        places = self._cluster.queues(topic)
        queues = {queue: place.addresses[:1] for queue, place in places.items() if place.has_master}
        require_brokers(brokers, {queue.broker_name for queue in queues})
        if only is not None:
            queues = {only: _addresses_of(only, queues)}
        bounds = self._cluster.bounds(queues)
        found: StoredPlaces = {}
        for queue, addresses in queues.items():
            start = self._cluster.offset_at(queue, addresses, bounds[queue], time_ms - SKEW_MS, READ_GROUP)
            self._list(OffsetRange(queue, start, bounds[queue][1]), addresses, found)
        return found

    def _list(self, wanted: OffsetRange, addresses: Addresses, found: StoredPlaces) -> None:
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


def _addresses_of(queue: MessageQueue, queues: Mapping[MessageQueue, Addresses]) -> Addresses:
    if queue not in queues:
        raise SourceError("ORBITMQ_BROKER_UNAVAILABLE", f"{queue_name(queue)} cannot be read at present")
    return queues[queue]


@dataclass(frozen=True)
class FoundMarks:
    """What the marks of a task tell, those of all its earlier attempts together."""

    since_ms: int | None
    """When the first was stored, None when there is none."""
    holders: frozenset[str]
    """The brokers that have one."""
    brokers: frozenset[str]
    """Those the task may have written to."""


def found_marks(bodies: Iterable[tuple[str, bytes]], mark: str) -> FoundMarks:
    """Of units, each run with the broker it is from, those that have `mark` among their KEYS: an index finds hashes."""
    found = [(broker, *each) for broker, body in bodies if body for each in _marked(body, mark)]
    holders = frozenset(broker for broker, _, _ in found)
    told = {name for _, _, text in found for name in text.split(",") if name}
    return FoundMarks(min((time for _, time, _ in found), default=None), holders, holders | told)


def _marked(body: bytes, mark: str) -> list[tuple[int, str]]:
    """Store time and brokers told, of each unit that has the mark."""
    units = Units(body, unit_positions(body))
    keys, brokers = units.properties.column(KEYS), units.properties.column(TASK_BROKERS)
    marked = pc.fill_null(pc.match_substring(keys, mark), False).to_numpy(False)
    times = units.field("store_timestamp")[marked].tolist()
    return list(zip(times, pc.fill_null(brokers, "").filter(marked).to_pylist(), strict=True))


def places_of(stored: Mapping[str, tuple[MessageQueue, int]], keys: Sequence[str]) -> list[tuple[MessageQueue, int]]:
    """Where the messages with these keys are; empty unless all of them are there."""
    places = [stored[key] for key in keys if key in stored]
    return places if len(places) == len(keys) else []
