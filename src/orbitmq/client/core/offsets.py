"""The offsets a consumer holds in memory, and the text of the file a broadcasting consumer keeps them in. Pure.

An offset is always the next one to consume.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from orbitmq.message.javajson import dumps_pretty, loads
from orbitmq.message.model import MessageQueue
from orbitmq.wire.bodies import QueueOffsets
from orbitmq.wire.objects import from_plain, plain


class OffsetTable:
    """Queue -> offset. Results of concurrent listeners arrive in any order, so the usual update never lowers."""

    def __init__(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        self._offsets = dict(offsets or {})
        self._own: set[MessageQueue] = set()
        """Queues whose offset comes from this consumer, not from the store."""

    def __contains__(self, queue: object) -> bool:
        return queue in self._offsets

    def read(self, queue: MessageQueue) -> int:
        """The offset, -1 when the table has none."""
        return self._offsets.get(queue, -1)

    def raise_to(self, queue: MessageQueue, offset: int) -> None:
        """Take `offset` when it is higher than what is known."""
        if offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset
            self._own.add(queue)

    def learn(self, queue: MessageQueue, offset: int) -> None:
        """The store has `offset`; what is known to be higher stays. A broker says 0 of a queue it knows no offset of,
        too: that one is stored, as by Java's client, or a group with an idle queue could not be reset."""
        self._offsets[queue] = max(offset, self._offsets.get(queue, -1))
        if self._offsets[queue] == 0:
            self._own.add(queue)

    def set(self, queue: MessageQueue, offset: int) -> None:
        """Take `offset` even when it is lower: the user or an operator moved it."""
        self._offsets[queue] = offset
        self._own.add(queue)

    def forget(self, queue: MessageQueue) -> None:
        """The queue belongs to another member."""
        self._offsets.pop(queue, None)
        self._own.discard(queue)

    def of_topic(self, topic: str) -> dict[MessageQueue, int]:
        """The known offsets of the queues of a topic."""
        return {queue: offset for queue, offset in self._offsets.items() if queue.topic == topic}

    def queues(self) -> list[MessageQueue]:
        """The queues with a known offset."""
        return list(self._offsets)

    def of(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """The known offsets of `queues`."""
        return {queue: self._offsets[queue] for queue in queues if queue in self._offsets}

    def own(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """The offsets of `queues` that this consumer brought forward or set. One it only learned is another member's,
        whose last word may have come since: to store it again would take that back.
        """
        return {queue: self._offsets[queue] for queue in queues if queue in self._own}


def encode_file(offsets: Mapping[MessageQueue, int]) -> str:
    """The text of `offsets.json` as Java writes it."""
    return dumps_pretty(plain(QueueOffsets(offset_table=dict(offsets))))


def decode_file(text: str) -> dict[MessageQueue, int]:
    """The offsets of an `offsets.json`; BodyError when it is none."""
    return from_plain(QueueOffsets, loads(text)).offset_table
