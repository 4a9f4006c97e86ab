"""When stored messages become visible: at once, or when a crash can no longer take them away.

With SYNC_FLUSH readers see a message when it is on disk. A consumer that had seen it before could have stored its
progress, and a crash would leave the progress and take the message. A broker that elects its master shows what every
replica in sync has, for the same reason. Used by the thread that appends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from orbitmq.message.batch import ENTRY, PackedBatch
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.positions import PhysicalOffset
from orbitmq.store.queue import ENTRY_SIZE, ConsumeQueue

UNSEEN_MAX = 1_000_000  # messages; a disk that no longer responds must not fill the memory, some 200 bytes each

# topic, queue id, queue offset of the first message + 1, tag hashes of that one and those behind it, store timestamp
OnArrival = Callable[[str, int, int, Sequence[int], int], object]


class _Unseen(msgspec.Struct, gc=False):
    end: int
    queue: ConsumeQueue
    queue_end: int
    next_offset: int
    code: int
    timestamp: int


class Arrivals:
    """Messages that are in the log and their queue. `at_once` shows them without waiting for `show`; with `holds_back`
    they wait for `confirm` in any case.
    """

    def __init__(
        self, log: CommitLog, on_arrival: OnArrival | None, *, at_once: bool, holds_back: bool = False
    ) -> None:
        log.shows_at_once = at_once
        self._log = log
        self._at_once = at_once and not holds_back
        self.confirmed = PhysicalOffset(0) if holds_back else None
        self._on_arrival = on_arrival
        self._unseen: deque[_Unseen] = deque()

    @property
    def is_overfull(self) -> bool:
        """Whether too many messages wait to become readable."""
        return len(self._unseen) >= UNSEEN_MAX

    def add(self, queue: ConsumeQueue, queue_offset: int, end: int, code: int, now_ms: int) -> None:
        """A message that ends at `end` of the log has become the last of its queue."""
        if not self._at_once and not self._is_confirmed(end):
            self._unseen.append(_Unseen(end, queue, queue.end, queue_offset + 1, code, now_ms))
            return
        queue.readable = queue.end
        if self._on_arrival is not None:
            self._on_arrival(queue.topic, queue.queue_id, queue_offset + 1, (code,), now_ms)

    def add_run(
        self, queue: ConsumeQueue, queue_offset: int, batch: PackedBatch, codes: Sequence[int], now_ms: int
    ) -> None:
        """The same for messages that follow one another in the log and in their queue, from `queue_offset` on."""
        if self._at_once:
            queue.readable = queue.end
            if self._on_arrival is not None:
                self._on_arrival(queue.topic, queue.queue_id, queue_offset + 1, codes, now_ms)
            return
        entries = ENTRY.iter_unpack(batch.entries)
        for next_offset, ((place, size, _), code) in enumerate(zip(entries, codes, strict=True), queue_offset + 1):
            self._unseen.append(_Unseen(place + size, queue, next_offset * ENTRY_SIZE, next_offset, code, now_ms))

    def show(self, limit: PhysicalOffset) -> None:
        """Make messages that end at `limit` or before readable, and report their arrival."""
        if self._log.shows_at_once:
            return
        if self._log.whole is not None:
            limit = min(limit, self._log.whole)
        self._log.readable = max(self._log.readable, limit)
        self._release(limit if self.confirmed is None else min(limit, self.confirmed))

    def confirm(self, end: PhysicalOffset) -> None:
        """What ends at `end` or before may be shown, now or when it has arrived."""
        self.confirmed = end
        self._release(min(self._log.readable, end))

    def _is_confirmed(self, end: int) -> bool:
        """Whether the last message of the log may be shown without being looked at again."""
        return self.confirmed is not None and end <= self.confirmed and self._log.shows_at_once

    def _release(self, limit: PhysicalOffset) -> None:
        unseen = self._unseen
        while unseen and unseen[0].end <= limit:
            first = unseen.popleft()
            queue = first.queue
            queue.readable = first.queue_end
            if self._on_arrival is not None:
                self._on_arrival(queue.topic, queue.queue_id, first.next_offset, (first.code,), first.timestamp)
