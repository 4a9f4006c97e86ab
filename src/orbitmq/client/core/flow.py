"""When a queue must not be pulled because enough of it is cached. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from orbitmq.client.core.process_queue import ProcessQueue

MIB = 1024 * 1024
UNLIMITED = -1


class PullPause(Enum):
    """Why pulling waits."""

    COUNT = "too many messages are cached"
    SIZE = "too many bytes are cached"
    SPAN = "the cached offsets span too far: an old message is not consumed yet"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The limits for the cache of one queue; pulling waits above, never at, a threshold."""

    count: int = 1000
    size_mib: int = 100
    span: int = 2000

    def hold(self, cached: ProcessQueue) -> PullPause | None:
        """Why the queue must not be pulled now, None when it may."""
        if cached.count > self.count:
            return PullPause.COUNT
        if cached.size // MIB > self.size_mib:
            return PullPause.SIZE
        if len(cached) > 1 and cached.span > self.span:
            return PullPause.SPAN
        return None

    def shared(self, topic_count: int, topic_size_mib: int, queues: int) -> Thresholds:
        """The thresholds of a whole topic, divided by the number of its queues that this consumer holds.

        The per-queue values stay where no topic value is given; Java overwrites them for good.
        """
        if queues < 1:
            return self
        count = self.count if topic_count == UNLIMITED else max(1, topic_count // queues)
        size_mib = self.size_mib if topic_size_mib == UNLIMITED else max(1, topic_size_mib // queues)
        return replace(self, count=count, size_mib=size_mib)
