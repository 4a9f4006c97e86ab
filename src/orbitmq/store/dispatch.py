"""From the log to the queues: every stored message gets its entry here.

A put hands its message over directly, recovery reads it back from the log; both go through `enter`, so that a
rebuilt queue is the same as the first one. The key index of the log will be fed from here as well.
"""

from __future__ import annotations

from orbitmq.message.delay import delivery_timestamp
from orbitmq.message.flags import TRANSACTION_PREPARED
from orbitmq.message.hashing import tags_code
from orbitmq.message.properties import DELAY, NAME_END, TAGS, find_property
from orbitmq.message.unit import Unit
from orbitmq.store.queue import ConsumeQueue
from orbitmq.store.queues import ConsumeQueues

_TAGS = (TAGS + NAME_END).encode()
_DELAY = (DELAY + NAME_END).encode()


def is_queued(sys_flag: int) -> bool:
    """Prepared and rolled back messages lie in the log only; both have this bit, the others have not."""
    return not sys_flag & TRANSACTION_PREPARED


def delay_level(properties: bytes) -> int:
    """The delay level a message asks for, 0 without one."""
    text = find_property(properties, _DELAY)
    return int(text) if text is not None and text.isdigit() else 0


class Dispatcher:
    """Enters messages into their queues. `store_timestamp` is that of the last one."""

    def __init__(self, queues: ConsumeQueues, delay_levels: tuple[int, ...]) -> None:
        self.store_timestamp = 0
        self._queues = queues
        self._delay_levels = delay_levels

    def code_of(self, queue: ConsumeQueue, properties: bytes, store_timestamp: int) -> int:
        """Third field of a queue entry: the tag hash, or when a message of the delay topic is due."""
        if queue.is_schedule:
            level = delay_level(properties)
            if level > 0:
                return delivery_timestamp(self._delay_levels, min(level, len(self._delay_levels)), store_timestamp)
        return tags_code(find_property(properties, _TAGS))

    def enter(
        self, queue: ConsumeQueue, queue_offset: int, physical_offset: int, size: int, code: int, store_timestamp: int
    ) -> None:
        """Make the queue entry of one message. OSError when the disk is full."""
        queue.put(queue_offset, physical_offset, size, code)
        self.store_timestamp = store_timestamp

    def dispatch(self, unit: Unit) -> None:
        """The same for a message read from the log."""
        if is_queued(unit.sys_flag):
            queue = self._queues.find_or_create(unit.topic, unit.queue_id)
            code = self.code_of(queue, unit.properties.encode(), unit.store_timestamp)
            self.enter(queue, unit.queue_offset, unit.physical_offset, unit.size, code, unit.store_timestamp)
