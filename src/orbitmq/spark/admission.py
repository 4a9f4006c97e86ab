"""How much of the backlog the next batch of a stream reads. Pure.

A limit is divided among the queues in proportion to their backlog. Every queue gets at least one message, so that none
starves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orbitmq.message.model import MessageQueue

SAMPLES_MAX = 1024  # messages in the mean size; beyond that the weight of older ones is halved


@dataclass(frozen=True)
class TriggerLimits:
    """Limits of one batch. 0 is no limit."""

    rows_max: int = 0
    bytes_max: int = 0
    rows_min: int = 0
    delay_max_ms: int = 0


NO_LIMITS = TriggerLimits()


class MeanSize:
    """The mean size of recent messages."""

    def __init__(self) -> None:
        self._count = 0.0
        self._bytes = 0.0

    def add(self, count: int, size: int) -> None:
        """Add a sample: the number of messages and their bytes."""
        if self._count > SAMPLES_MAX:
            self._count /= 2
            self._bytes /= 2
        self._count += count
        self._bytes += size

    def estimate(self, count: int) -> float:
        """The estimated bytes of `count` messages, 0 without a sample."""
        return count * self._bytes / self._count if self._count else 0.0


def is_due(waiting: int, limits: TriggerLimits, since_last_ms: float) -> bool:
    """Whether to start a batch with `waiting` messages now, or to wait for more."""
    return waiting >= limits.rows_min or since_last_ms >= limits.delay_max_ms


def rows_allowed(waiting: int, limits: TriggerLimits, waiting_bytes: float) -> int:
    """The maximum messages of a batch, out of those that wait."""
    rows = min(waiting, limits.rows_max or waiting)
    if limits.bytes_max and waiting_bytes > limits.bytes_max:
        rows = min(rows, int(waiting * limits.bytes_max / waiting_bytes))
    return rows


def shares(waiting: Mapping[MessageQueue, int], rows: int) -> dict[MessageQueue, int]:
    """The messages of each queue in a batch of `rows`, exceeded only when more than `rows` queues have some."""
    filled = {queue: count for queue, count in waiting.items() if count > 0}
    total = sum(filled.values())
    if total <= rows:
        return filled
    spare = max(rows - len(filled), 0)  # after one message of each queue
    rest = max(total - len(filled), 1)
    taken = {queue: 1 + (count - 1) * spare // rest for queue, count in filled.items()}
    left = rows - sum(taken.values())  # less than there are queues whose share was rounded
    for queue in sorted(filled, key=lambda queue: filled[queue], reverse=True)[: max(left, 0)]:
        taken[queue] += 1
    return taken
