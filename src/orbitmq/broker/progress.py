"""How far groups have come in queues, in offsets and in time. Looks things up and decides nothing.

The rules are RocketMQ's: a group without an offset stands at 0, a queue nobody wrote to ends at 0, a time that cannot
be told is 0.
"""

from __future__ import annotations

from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.message.unit import store_timestamp_of
from orbitmq.store.engine import MessageStore
from orbitmq.wire.bodies import QueueProgress, QueueRange


def store_time(store: MessageStore, topic: str, queue_id: int, offset: int) -> int:
    """Store time in milliseconds of one message of a queue, -1 when there is none."""
    if offset < 0:
        return -1
    found = store.entries(topic, queue_id, offset, 1)
    unit = store.unit_at(found[0][0]) if found else None
    return store_timestamp_of(unit) if unit is not None else -1


def queue_range(store: MessageStore, topic: str, queue_id: int) -> QueueRange:
    """First offset, offset behind the last, and when the last message was stored."""
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    return QueueRange(max(0, store_time(store, topic, queue_id, high - 1)), high, low)


def queue_progress(
    store: MessageStore, offsets: ConsumerOffsets, group: str, topic: str, queue_id: int
) -> QueueProgress:
    """Where the queue ends, where the group stands, and when the message before that was stored."""
    consumed = max(0, offsets.query(group, topic, queue_id) or 0)
    last = store_time(store, topic, queue_id, consumed - 1)
    return QueueProgress(store.max_offset(topic, queue_id), consumed, max(0, last))
