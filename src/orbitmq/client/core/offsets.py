"""The offsets of a consumer in memory, the file of a broadcasting consumer, and where consumption starts. Pure.

An offset is always the next one to consume.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from orbitmq.message.javajson import dumps_pretty, loads
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import RETRY_PREFIX
from orbitmq.wire.bodies import ConsumeFromWhere, QueueOffsets
from orbitmq.wire.objects import from_plain, plain


@dataclass(slots=True)
class _Known:
    """The offset of a queue. `own`: this consumer has set it, rather than the store."""

    offset: int
    own: bool = False


class OffsetTable:
    """Queue -> offset. Concurrent listeners finish in any order, so the usual update never lowers an offset."""

    def __init__(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        self._known = {queue: _Known(offset) for queue, offset in (offsets or {}).items()}

    def __contains__(self, queue: object) -> bool:
        return queue in self._known

    def read(self, queue: MessageQueue) -> int:
        """The offset, -1 when the table has none."""
        known = self._known.get(queue)
        return -1 if known is None else known.offset

    def raise_to(self, queue: MessageQueue, offset: int) -> None:
        """Set `offset` if it is higher than the known one."""
        known = self._known.get(queue)
        if known is None:
            if offset >= 0:
                self._known[queue] = _Known(offset, own=True)
        elif offset > known.offset:  # once a message
            known.offset = offset
            known.own = True

    def learn(self, queue: MessageQueue, offset: int) -> None:
        """Note the stored `offset`; a higher known one stays."""
        known = self._known.setdefault(queue, _Known(offset))
        known.offset = max(offset, known.offset)

    def set(self, queue: MessageQueue, offset: int) -> None:
        """Set `offset` even if it is lower: the application or an operator has reset it."""
        self._known[queue] = _Known(offset, own=True)

    def forget(self, queue: MessageQueue) -> None:
        """Remove a queue that belongs to another member."""
        self._known.pop(queue, None)

    def of_topic(self, topic: str) -> dict[MessageQueue, int]:
        """The known offsets of the queues of a topic."""
        return {queue: known.offset for queue, known in self._known.items() if queue.topic == topic}

    def queues(self) -> list[MessageQueue]:
        """The queues with a known offset."""
        return list(self._known)

    def of(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """The known offsets of `queues`."""
        return {queue: self._known[queue].offset for queue in queues if queue in self._known}

    def is_own(self, queue: MessageQueue) -> bool:
        """Whether this consumer advanced or set the offset of `queue`."""
        known = self._known.get(queue)
        return known is not None and known.own

    def own(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """The offsets of `queues`, which this consumer reads, that it advanced or set. An offset it only read belongs
        to another member, which may have committed since: storing it again would undo that. But a broker returns 0 for
        a queue without offset, too; 0 is stored, as by Java's client, or a group with an idle queue could not be reset.
        """
        known = {queue: self._known[queue] for queue in queues if queue in self._known}
        return {queue: one.offset for queue, one in known.items() if one.own or one.offset == 0}


def encode_file(offsets: Mapping[MessageQueue, int]) -> str:
    """The text of `offsets.json` as Java writes it."""
    return dumps_pretty(plain(QueueOffsets(offset_table=dict(offsets))))


def decode_file(text: str) -> dict[MessageQueue, int]:
    """The offsets of an `offsets.json`; BodyError if it is none."""
    return from_plain(QueueOffsets, loads(text)).offset_table


class StartLookup(Enum):
    """A start offset that the broker has to return."""

    MAX_OFFSET = "the next offset to be written"
    MIN_OFFSET = "the first offset that can be read"
    OFFSET_OF_TIME = "the offset of the first message stored at or after the configured time"


def start_position(topic: str, stored: int, where: ConsumeFromWhere) -> int | StartLookup:
    """The offset to start at. `stored` is the offset of the group, negative if it has none.

    A retry topic is read from its beginning, regardless of `where`: its messages were delivered to this group before.
    (With CONSUME_FROM_TIMESTAMP Java starts it at its end.) For CONSUME_FROM_FIRST_OFFSET Java uses 0 and pauses for 10
    s if that offset has expired; this client requests the minimum.
    """
    if stored >= 0:
        return stored
    retry = topic.startswith(RETRY_PREFIX)
    if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        return StartLookup.MAX_OFFSET if retry else StartLookup.OFFSET_OF_TIME
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0 if retry else StartLookup.MIN_OFFSET
    return 0 if retry else StartLookup.MAX_OFFSET
