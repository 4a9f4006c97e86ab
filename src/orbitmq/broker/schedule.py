"""The due time in the queue entries of the delay topic, by the broker's table of delay levels, and of the timer topic.

The store calls this for each message of these topics: when it is put, recovered, or dispatched to a rebuilt queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orbitmq.message.delay import delivery_timestamp
from orbitmq.message.properties import DELAY, NAME_END, TIMER_DEL_UNIQKEY, EncodedProperties, find_property
from orbitmq.message.timers import due_ms
from orbitmq.message.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.store.dispatch import EntryCode

_DELAY: Final = (DELAY + NAME_END).encode()


def delay_level(properties: bytes) -> int:
    """The delay level of a message, 0 without one."""
    text = find_property(properties, _DELAY)
    return int(text) if text is not None and text.isdigit() else 0


@dataclass(frozen=True)
class DueTime:
    """`levels` are the milliseconds of each delay level, level 1 first. Can be pickled, for parallel rebuilds."""

    levels: tuple[int, ...]

    def __call__(self, properties: bytes, store_timestamp: int) -> int | None:
        """When a message is due, in milliseconds; None for one without a delay level."""
        level = delay_level(properties)
        if level <= 0:
            return None
        return delivery_timestamp(self.levels, min(level, len(self.levels)), store_timestamp)


def timer_due(properties: bytes, _store_timestamp: int) -> int | None:
    """When a timer message is due, in milliseconds; None for one that recalls another."""
    found = EncodedProperties(properties)
    return due_ms(found.get) if found.get(TIMER_DEL_UNIQKEY) is None else None


def entry_codes(levels: tuple[int, ...]) -> dict[str, EntryCode]:
    """For the store: the topics whose queue entries do not hold the hash of the tags, and what they hold."""
    return {SCHEDULE_TOPIC: DueTime(levels), TIMER_TOPIC: timer_due}
