"""Which queue of a topic the next message goes to. Pure; it must not know routes, connections or the clock."""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.message.hashing import string_hash
from orbitmq.message.model import MessageQueue

COUNTER_MASK = 0x7FFF_FFFF  # Java's counter is a signed int kept non-negative; the order of queues wraps with it
SIGN_BIT, WORD = 1 << 31, 1 << 32


class RoundRobin:
    """Takes the queues of one topic in turn. `start` is random so that many producers do not march in step."""

    def __init__(self, start: int) -> None:
        self._next = start & COUNTER_MASK

    def select(self, queues: Sequence[MessageQueue], avoid_broker: str | None = None) -> MessageQueue:
        """The next queue, on another broker than `avoid_broker` when there is one. `queues` is not empty."""
        if avoid_broker is not None:
            for _ in queues:
                queue = self._step(queues)
                if queue.broker_name != avoid_broker:
                    return queue
        return self._step(queues)

    def _step(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        position = self._next
        self._next = (position + 1) & COUNTER_MASK
        return queues[position % len(queues)]


def queue_of_key(queues: Sequence[MessageQueue], key: str | int | bytes) -> MessageQueue:
    """The queue that messages with this sharding key share, as Java's hash selector chooses it."""
    return queues[position_of_key(key, len(queues))]


def position_of_key(key: str | int | bytes, size: int) -> int:
    """Java takes the remainder first and its absolute value then, which is the remainder of the absolute value."""
    return abs(_java_hash(key)) % size


def _java_hash(key: str | int | bytes) -> int:
    if isinstance(key, str):
        return string_hash(key)
    if isinstance(key, bytes):
        return string_hash(key.decode("latin-1"))
    if -SIGN_BIT <= key < SIGN_BIT:
        return key
    folded = (key ^ (key >> 32)) & (WORD - 1)  # a Java long folds its halves
    return folded - WORD if folded & SIGN_BIT else folded
