"""How much of what waits goes into the next batch of a stream. Pure.

A limit is shared among the queues in proportion to what waits in each, and every queue gets at least one message, so
that none starves behind a longer one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orbitmq.message.model import MessageQueue

SAMPLES_MAX = 1024  # messages whose sizes are remembered; half of their weight goes when there are more


@dataclass(frozen=True)
class TriggerLimits:
    """Limits of one batch; 0 means none."""

    rows_max: int = 0
    bytes_max: int = 0
    rows_min: int = 0
    delay_max_ms: int = 0


NO_LIMITS = TriggerLimits()


class MeanSize:
    """The mean size of messages, of late rather than of all times."""

    def __init__(self) -> None:
        self._count = 0.0
        self._bytes = 0.0

    def sampled(self, count: int, size: int) -> None:
        """So many messages had so many bytes together."""
        if self._count > SAMPLES_MAX:
            self._count /= 2
            self._bytes /= 2
        self._count += count
        self._bytes += size

    def of(self, count: int) -> float:
        """The bytes so many messages are believed to have; 0 when none was seen."""
        return count * self._bytes / self._count if self._count else 0.0


def is_due(waiting: int, limits: TriggerLimits, since_last_ms: float) -> bool:
    """Whether a batch should be made of `waiting` messages now, or more be waited for."""
    return waiting >= limits.rows_min or since_last_ms >= limits.delay_max_ms


def rows_allowed(waiting: int, limits: TriggerLimits, waiting_bytes: float) -> int:
    """How many messages of those that wait a batch may have."""
    rows = min(waiting, limits.rows_max or waiting)
    if limits.bytes_max and waiting_bytes > limits.bytes_max:
        rows = min(rows, int(waiting * limits.bytes_max / waiting_bytes))
    return rows


def shares(waiting: Mapping[MessageQueue, int], rows: int) -> dict[MessageQueue, int]:
    """How many messages of each queue make a batch of `rows`; of more only where more queues than that wait."""
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
