"""Predefined queue selectors. Pure.

Any function of the same form does: it gets the queues the topic has at this moment, the message, and the argument of
the send.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

from orbitmq.client.core.selection import queue_of_key
from orbitmq.message.model import Message, MessageQueue

A = TypeVar("A")

QueueSelector: TypeAlias = Callable[[Sequence[MessageQueue], Message, A], MessageQueue]
"""`selector(queues, message, arg)` returns one of the queues. It runs on the event loop and must not block."""

ROOM_END = "@"  # a broker named `room@name` is in that room


def hash_selector(queues: Sequence[MessageQueue], _message: Message, arg: str | int | bytes) -> MessageQueue:
    """The queue that all messages with this argument share, the same as Java's SelectMessageQueueByHash chooses."""
    return queue_of_key(queues, arg)


def random_selector(queues: Sequence[MessageQueue], _message: Message, _arg: object = None) -> MessageQueue:
    """A random queue."""
    return random.choice(queues)  # noqa: S311 - spreads load, keeps no secret


class RoomSelector(Generic[A]):
    """A queue of a broker in one of `rooms`, of any broker if these rooms have none; `within` chooses among the
    candidates.

    The room of a broker is the part of its name before the `@`.
    """

    def __init__(self, rooms: Iterable[str], within: QueueSelector[A] = random_selector) -> None:
        self._rooms = frozenset(rooms)
        self._within = within

    def __call__(self, queues: Sequence[MessageQueue], message: Message, arg: A) -> MessageQueue:
        near = [queue for queue in queues if room_of(queue) in self._rooms]
        return self._within(near or queues, message, arg)


def room_of(queue: MessageQueue) -> str:
    """The room of the queue's broker; empty if its name has none."""
    return queue.broker_name.partition(ROOM_END)[0] if ROOM_END in queue.broker_name else ""
