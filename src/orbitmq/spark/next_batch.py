"""From where a stream is and what its cluster holds to the end of the next batch. Pure.

What is lost is found here, before Spark writes the batch down: an error behind that point would come again with every
restart of the query.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from orbitmq.message.model import MessageQueue
from orbitmq.spark.fetch import OffsetRange, data_loss
from orbitmq.spark.offsets import Bounds
from orbitmq.spark.stream_offset import StreamOffset

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClusterSnapshot:
    """What a look at the cluster showed."""

    bounds: Bounds
    """First offset that can be read and next one to be written, of the queues of all brokers that answered."""
    held: frozenset[MessageQueue] = frozenset()
    """Queues of the stream whose brokers do not answer."""
    gone: frozenset[MessageQueue] = frozenset()
    """Queues of the stream that exist no more."""


@dataclass
class NextBatch:
    """Where each queue stands before the batch, and up to where it could go."""

    at: dict[MessageQueue, int] = field(default_factory=dict)
    begins: dict[MessageQueue, int] = field(default_factory=dict)
    highs: dict[MessageQueue, int] = field(default_factory=dict)
    lost: int = 0

    @property
    def waiting(self) -> dict[MessageQueue, int]:
        return {queue: self.highs[queue] - at for queue, at in self.at.items() if self.highs[queue] > at}

    def advanced(self, shares: Mapping[MessageQueue, int]) -> StreamOffset:
        """The end of a batch that takes so many messages of each queue."""
        at = {queue: offset + shares.get(queue, 0) for queue, offset in self.at.items()}
        return StreamOffset(at, self.begins, self.lost)


def next_batch(
    start: StreamOffset, seen: ClusterSnapshot, *, strict: bool, target: Mapping[MessageQueue, int] | None = None
) -> NextBatch:
    """Where the queues stand. Queues that are new begin with their first message; with a `target` there are none.

    What retention has deleted, what a store has lost and what went with its queue is data loss: SourceError when
    `strict`, otherwise the queue goes on with the first message there is, or is left out.
    """
    begins = start.kept_begins
    found = NextBatch(lost=start.lost)
    for queue in sorted({*start.at, *seen.bounds}):
        if queue in seen.held:
            found.at[queue] = found.highs[queue] = start.at[queue]
        elif queue in seen.bounds:
            _place(found, queue, start, seen.bounds[queue], strict=strict, target=target)
        elif queue in seen.gone:
            _lost(f"{_name(queue)} exists no more, the stream was at {start.at[queue]}", strict=strict)
        else:
            LOG.info("event=queue_left_out queue=%s reason=the options no longer name it", queue)
        if queue in found.at and queue in begins:
            found.begins.setdefault(queue, begins[queue])
    return found


def _place(
    found: NextBatch,
    queue: MessageQueue,
    start: StreamOffset,
    bounds: tuple[int, int],
    *,
    strict: bool,
    target: Mapping[MessageQueue, int] | None,
) -> None:
    low, high = bounds
    if target is not None and queue not in target and queue not in start.at:
        return
    at = start.at.get(queue, low)
    if not low <= at <= high:
        count = max(low - at, 0)
        why = f"{count} messages are lost" if count else "the queue was made anew or its store was lost"
        _lost(f"{_name(queue)}: the stream is at {at}, the broker has {low} to {high}; {why}", strict=strict)
        found.lost += count
        at = low
    if at != start.at.get(queue):
        found.begins[queue] = at
    found.at[queue] = at
    found.highs[queue] = max(at, high if target is None else min(high, target.get(queue, high)))


def _lost(text: str, *, strict: bool) -> None:
    if strict:
        raise data_loss(text)
    LOG.warning("event=data_loss text=%s", text)


def _name(queue: MessageQueue) -> str:
    return str(OffsetRange(queue, 0, 0))
