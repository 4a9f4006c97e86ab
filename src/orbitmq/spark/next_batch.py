"""Computes the end of the next batch from the position of a stream and the offsets of its cluster. Pure.

Data loss is detected here, before Spark logs the batch: a later error would repeat with every restart of the query.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from orbitmq.message.model import MessageQueue
from orbitmq.spark.fetch import data_loss, queue_name
from orbitmq.spark.offsets import Bounds, Offsets
from orbitmq.spark.stream_offset import StreamOffset

LOG = logging.getLogger(__name__)

NOTHING: Offsets = {}


@dataclass(frozen=True)
class ClusterSnapshot:
    """The offsets of a cluster at one time."""

    bounds: Bounds
    """First offset that can be read and next one to be written, for the queues of all brokers that responded."""
    held: frozenset[MessageQueue] = frozenset()
    """Queues of the stream whose brokers do not respond."""
    gone: frozenset[MessageQueue] = frozenset()
    """Queues of the stream that no longer exist."""


@dataclass
class NextBatch:
    """The offset of each queue before the batch (`at`), and the highest offset it could reach (`highs`)."""

    at: dict[MessageQueue, int] = field(default_factory=dict)
    begins: dict[MessageQueue, int] = field(default_factory=dict)
    highs: dict[MessageQueue, int] = field(default_factory=dict)
    lost: int = 0

    @property
    def waiting(self) -> dict[MessageQueue, int]:
        return {queue: self.highs[queue] - at for queue, at in self.at.items() if self.highs[queue] > at}

    def advanced(self, shares: Mapping[MessageQueue, int]) -> StreamOffset:
        """The end of a batch with that many messages of each queue."""
        at = {queue: offset + shares.get(queue, 0) for queue, offset in self.at.items()}
        return StreamOffset(at, self.begins, self.lost)


def next_batch(
    start: StreamOffset,
    seen: ClusterSnapshot,
    *,
    strict: bool,
    target: Mapping[MessageQueue, int] | None = None,
    archived: Offsets = NOTHING,
) -> NextBatch:
    """The queues that the next batch can read. New queues start where they are `archived` to, else at their first
    message; with a `target` there are none.

    Messages that retention deleted, that a store lost or that went with a deleted queue are data loss: SourceError when
    `strict`. Otherwise the queue continues with its first message, or is left out.
    """
    begins = start.kept_begins
    found = NextBatch(lost=start.lost)
    for queue in sorted({*start.at, *seen.bounds}):
        if queue in seen.held:
            found.at[queue] = found.highs[queue] = start.at[queue]
        elif queue in seen.bounds:
            begin = start.at.get(queue, archived.get(queue, seen.bounds[queue][0]))
            _place(found, queue, start, begin, seen.bounds[queue], strict=strict, target=target)
        elif queue in seen.gone:
            _lost(f"{queue_name(queue)} no longer exists, the stream was at {start.at[queue]}", strict=strict)
        else:
            LOG.info("event=queue_left_out queue=%s reason=the options no longer name it", queue)
        if queue in found.at and queue in begins:
            found.begins.setdefault(queue, begins[queue])
    return found


def _place(
    found: NextBatch,
    queue: MessageQueue,
    start: StreamOffset,
    at: int,
    bounds: tuple[int, int],
    *,
    strict: bool,
    target: Mapping[MessageQueue, int] | None,
) -> None:
    low, high = bounds
    if target is not None and queue not in target and queue not in start.at:
        return
    if not low <= at <= high:
        count = max(low - at, 0)
        why = f"{count} messages are lost" if count else "the queue was recreated or its store was lost"
        _lost(f"{queue_name(queue)}: the stream is at {at}, the broker has {low} to {high}; {why}", strict=strict)
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
