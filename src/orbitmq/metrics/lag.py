"""The lag of a group in one topic of one broker, from offsets and the ranges of queues. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orbitmq.wire.bodies import QueueRange

NOTHING = QueueRange()


@dataclass(frozen=True, slots=True)
class ReadQueueLag:
    """One read queue. A group without an offset counts from 0, as in RocketMQ."""

    queue_id: int
    consumed: int
    held: QueueRange

    @property
    def plain(self) -> int:
        """End minus offset: negative if the offset is beyond the end, and including expired messages."""
        return self.held.max_offset - self.consumed

    @property
    def waiting(self) -> int:
        """Messages that the group can still consume."""
        return max(0, self.held.max_offset - max(self.consumed, self.held.min_offset))

    @property
    def ahead(self) -> int:
        """By how many messages the offset is beyond the end."""
        return max(0, -self.plain)


def queue_lags(
    read_queues: int, ranges: Mapping[int, QueueRange], offsets: Mapping[int, int]
) -> Iterator[ReadQueueLag]:
    """The lag of each read queue."""
    for queue_id in range(read_queues):
        yield ReadQueueLag(queue_id, max(0, offsets.get(queue_id, 0)), ranges.get(queue_id, NOTHING))
