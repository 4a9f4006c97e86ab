"""Messages that are kept when the disk is full: those that a known group has not read.

A group is known for a topic if it has an offset there, or a clustering member that is online and subscribes to it; for
its retry topic always. The broker itself reads delayed messages and those of pending transactions. Consumers that keep
offsets elsewhere, such as broadcasting consumers or Spark streams, are unknown; so are readers of dead letters.

Runs on the cleaner's thread, once per round and only while the disk is nearly full. Tables of the event loop are copied
in one step; queues are read in small steps, so that the event loop is not blocked.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from orbitmq.broker.archive_guard import EVERYTHING, ArchiveGuard
from orbitmq.broker.clients import Consumers
from orbitmq.broker.delay import DelayedDelivery
from orbitmq.broker.groups import Groups
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.table_recovery import TableRecovery
from orbitmq.message.pop import pop_retry_topic
from orbitmq.message.topics import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SYSTEM_GROUPS,
    TRANSACTION_GROUP,
    retry_topic,
)
from orbitmq.store.engine import MessageStore
from orbitmq.store.queue import ConsumeQueue
from orbitmq.store.retention import Unread
from orbitmq.wire.bodies import MessageModel

BITE_QUEUES: Final = 200  # examined in one step: about a millisecond
BITE_PAUSE_S: Final = 0.001
BROKER: Final = "the broker itself"
Readers = Mapping[str, set[str]]


class UnreadMessages:
    """Looks through the queues of `store`.

    While the progress of groups is lost, because its file cannot be read, everything is unread.
    """

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsets,
        groups: Groups,
        consumers: Consumers,
        guard: ArchiveGuard,
        delayed: DelayedDelivery,
        restoring: TableRecovery,
        in_flight: Callable[[], Mapping[tuple[str, str, int], int]] = dict,
    ) -> None:
        """`in_flight`: (topic, group, queue id) -> the first queue offset that POP consumption has not acknowledged."""
        self._in_flight = in_flight
        self._store = store
        self._offsets = offsets
        self._groups = groups
        self._consumers = consumers
        self._guard = guard
        self._delayed = delayed
        self._restoring = restoring

    def first(self) -> Unread | None:
        """The lowest physical offset of an unread message; None if all are read. Thread-safe."""
        if self._restoring.is_progress_lost:
            return Unread(0, "what groups have read is unknown: a state file cannot be read")
        readers, in_flight = self._readers(), self._in_flight()
        archived = self._guard.keeps_from()
        first = None if archived >= EVERYTHING else Unread(archived, "the archive has not read what follows")
        for number, queue in enumerate(self._store.consume_queues):
            if number % BITE_QUEUES == BITE_QUEUES - 1:
                time.sleep(BITE_PAUSE_S)
            for unread in self._of(queue, readers, in_flight):
                if first is None or unread.place < first.place:
                    first = unread
        return first

    def _readers(self) -> Readers:
        """Topic -> groups."""
        readers: dict[str, set[str]] = defaultdict(set)
        for topic in (HALF_TOPIC, OP_HALF_TOPIC):
            readers[topic].add(TRANSACTION_GROUP)
        for topic, group in self._offsets.pairs():
            readers[topic].add(group)
            readers[retry_topic(group)].add(group)
            readers[pop_retry_topic(topic, group)].add(group)
        for group in list(self._groups.table):
            readers[retry_topic(group)].add(group)
        for online in list(self._consumers.groups.values()):
            if online.message_model is not MessageModel.BROADCASTING:
                for topic in list(online.subscriptions):
                    readers[topic].add(online.name)
        return readers

    def _of(self, queue: ConsumeQueue, readers: Readers, in_flight: Mapping[tuple[str, str, int], int]) -> list[Unread]:
        """What each reader of a queue has to read next."""
        if queue.topic == SCHEDULE_TOPIC:
            read = {BROKER: self._delayed.offsets.get(queue.queue_id + 1, 0)}
        else:
            groups = readers.get(queue.topic, set()) - SYSTEM_GROUPS
            read = {group: self._offsets.query(group, queue.topic, queue.queue_id) or 0 for group in groups}
            read |= {
                group: min(offset, in_flight.get((queue.topic, group, queue.queue_id), offset))
                for group, offset in read.items()
            }
        found = []
        for reader, offset in read.items():
            number = max(offset, queue.min_offset)
            entry = self._entry(queue, number)
            if entry is not None:
                text = f"{reader} has not read message {number} of {queue.topic}, queue {queue.queue_id}"
                found.append(Unread(entry[0], text))
        return found

    def _entry(self, queue: ConsumeQueue, number: int) -> tuple[int, int, int] | None:
        try:
            return queue.entry(number)
        except (ValueError, IndexError):  # its files were let go: the topic is deleted meanwhile
            if self._store.consume_queues.table.get((queue.topic, queue.queue_id)) is queue:
                raise
            return None
