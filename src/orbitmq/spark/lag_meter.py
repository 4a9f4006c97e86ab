"""Measures how far a stream is behind, where it plans its batches. The figures are explained in `stream_lag`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from orbitmq.errors import SourceError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster_client import NO_RETRIES, BrokerAddresses, ClusterClient
from orbitmq.spark.next_batch import ClusterSnapshot
from orbitmq.spark.stream_lag import LagReport, topic_lags

LOG = logging.getLogger(__name__)

QUEUES_MAX = 1000  # whose next message is asked for in one look: some megabytes of usual messages


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class LagMeter:
    """Costs one message of each queue that a batch does not read to its end, and nothing for the others. `source` names
    the stream for people; `clock_ms` is the time of day."""

    def __init__(self, cluster: ClusterClient, group: str, source: str, clock_ms: Callable[[], int] = wall_ms) -> None:
        self._cluster = cluster.brief(retries=NO_RETRIES)  # a figure is not worth a wait
        self._group = group
        self._source = source
        self._clock_ms = clock_ms
        self._ends: dict[MessageQueue, int] = {}
        self._next: dict[MessageQueue, tuple[int, int]] = {}
        """The offset of the next message to read, and when it was stored."""

    def measure(
        self,
        at: Mapping[MessageQueue, int],
        seen: ClusterSnapshot,
        places: Mapping[MessageQueue, BrokerAddresses],
    ) -> dict[str, Any]:
        """What is left unread at these offsets, for the progress of the query. Queues of a broker that does not respond
        count by their last known end."""
        self._ends = {
            queue: seen.bounds[queue][1] if queue in seen.bounds else self._ends.get(queue, offset)
            for queue, offset in at.items()
        }
        waiting = {queue: max(self._ends[queue] - offset, 0) for queue, offset in at.items()}
        behind = {queue: at[queue] for queue, count in waiting.items() if count}
        self._next = {queue: found for queue, found in self._next.items() if behind.get(queue) == found[0]}
        self._look_up({queue: at for queue, at in behind.items() if queue in seen.bounds}, places)
        stored_at_ms = {queue: stored_ms for queue, (_, stored_ms) in self._next.items()}
        now_ms = self._clock_ms()
        return LagReport(self._source, now_ms, topic_lags(waiting, stored_at_ms, now_ms)).as_json()

    def _look_up(self, behind: Mapping[MessageQueue, int], places: Mapping[MessageQueue, BrokerAddresses]) -> None:
        """Find out when the next messages were stored. What cannot be found out stays unknown."""
        new = {queue: at for queue, at in behind.items() if queue not in self._next and queue in places}
        asked = dict(sorted(new.items())[:QUEUES_MAX])
        found: dict[MessageQueue, int] = {}
        try:
            addresses = {queue: places[queue].addresses[:1] for queue in asked}
            self._cluster.stored_at(asked, addresses, self._group, found)
        except SourceError as error:
            LOG.info("event=lag_in_time_unknown error=%s", error)
        self._next |= {queue: (asked[queue], stored_ms) for queue, stored_ms in found.items()}
