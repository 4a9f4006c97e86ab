"""The progress of groups in queues, as offsets and times. Reads tables and the store, changes nothing.

The rules are RocketMQ's: the offset of a group without one is 0, the end of an unused queue is 0, an unknown time is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.message.unit import store_timestamp_of
from orbitmq.store.engine import MessageStore
from orbitmq.wire.bodies import QueueProgress, QueueRange


def store_time(store: MessageStore, topic: str, queue_id: int, offset: int) -> int:
    """Store time in milliseconds of one message of a queue; -1 if there is none."""
    if offset < 0:
        return -1
    found = store.entries(topic, queue_id, offset, 1)
    unit = store.unit_at(found[0][0]) if found else None
    return store_timestamp_of(unit) if unit is not None else -1


def queue_range(store: MessageStore, topic: str, queue_id: int) -> QueueRange:
    """First offset, offset behind the last, and when the last message was stored."""
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    return QueueRange(max(0, store_time(store, topic, queue_id, high - 1)), high, low)


@dataclass(frozen=True, slots=True)
class Fall:
    """How far a reader is behind: bytes of the log, and the age of the message that comes next; zeros at the end."""

    bytes: int = 0
    milliseconds: int = 0


def fall_behind(
    store: MessageStore, offsets: ConsumerOffsets, group: str, topic: str, queue_id: int, now_ms: int
) -> Fall | None:
    """None for a group without an offset in the queue. An offset below the queue's minimum counts as the minimum."""
    consumed = offsets.query(group, topic, queue_id)
    if consumed is None:
        return None
    found = store.entries(topic, queue_id, max(consumed, store.min_offset(topic, queue_id)), 1)
    if not found:
        return Fall()
    place = found[0][0]
    unit = store.unit_at(place)
    stored_ms = store_timestamp_of(unit) if unit is not None else now_ms
    return Fall(store.commit_log_max_offset - place, max(0, now_ms - stored_ms))


def queue_progress(
    store: MessageStore, offsets: ConsumerOffsets, group: str, topic: str, queue_id: int
) -> QueueProgress:
    """The end of the queue, the group's offset, and the store time of the message before that offset."""
    consumed = max(0, offsets.query(group, topic, queue_id) or 0)
    last = store_time(store, topic, queue_id, consumed - 1)
    return QueueProgress(store.max_offset(topic, queue_id), consumed, max(0, last))
