"""The messages of one queue between pull and commit: which are cached, which offset is safe to commit. Pure.

Must not know pulling or listeners; times are passed as `now_ms`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from orbitmq.message.model import MessageExt
from orbitmq.message.properties import CONSUME_START_TIME

NOTHING = -1  # the response for an unknown offset, as on the wire


class ProcessQueue:
    """Cached messages by queue offset. One thread at a time may use it."""

    def __init__(self) -> None:
        self.dropped = False
        """The queue belongs to this consumer no longer; results of its messages are ignored."""
        self.count = 0
        self.size = 0
        """Bytes of the bodies of all cached messages, those being consumed in order included."""
        self.backlog = 0
        """Messages behind the newest cached one in the broker, at the last pull that found some."""
        self.last_pull_ms = 0
        self.last_consume_ms = 0
        self._messages: dict[int, MessageExt] = {}
        self._order: list[int] = []  # heap of offsets; those no longer in _messages are skipped
        self._taken: dict[int, MessageExt] = {}  # in-order consumption: out of _messages, not yet committed
        self._offset_max = 0
        self._consuming = False

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def span(self) -> int:
        """Distance between the smallest and the largest cached offset."""
        return max(self._messages) - self._smallest() if self._messages else 0

    @property
    def taken_count(self) -> int:
        """Messages that are taken and not committed."""
        return len(self._taken)

    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest cached offset, 0 and 0 without any."""
        return (self._smallest(), max(self._messages)) if self._messages else (0, 0)

    def position_before(self, offset: int) -> int:
        """`offset`, or the smallest offset that is cached or being consumed where that is less."""
        return min((offset, *self._messages, *self._taken))

    def put(self, messages: Sequence[MessageExt], max_offset: int = 0) -> bool:
        """Cache pulled messages; `max_offset` is the queue's end as the broker reported it.

        True if in-order consumption is idle and must be started.
        """
        for message in messages:
            offset = message.queue_offset
            if offset not in self._messages:
                heapq.heappush(self._order, offset)
                self.count += 1
                self.size += len(message.body)
                self._offset_max = offset
            self._messages[offset] = message
        if messages and max_offset > messages[-1].queue_offset:
            self.backlog = max_offset - messages[-1].queue_offset
        if not self._messages or self._consuming:
            return False
        self._consuming = True
        return True

    def remove(self, messages: Iterable[MessageExt]) -> int:
        """Remove consumed messages; returns the offset that is then safe to commit, -1 if nothing was cached."""
        if not self._messages:
            return NOTHING
        for message in messages:
            if self._messages.pop(message.queue_offset, None) is not None:
                self._uncount(message)
        return self._smallest() if self._messages else self._offset_max + 1

    def take(self, count: int) -> list[MessageExt]:
        """The messages with the smallest offsets, for consumption in order; none ends the consuming state."""
        taken: list[MessageExt] = []
        while self._messages and len(taken) < count:
            offset = self._smallest()
            taken.append(self._messages.pop(offset))
            self._taken[offset] = taken[-1]
        if not taken:
            self._consuming = False
        return taken

    def commit(self) -> int:
        """Remove taken messages; returns the offset to store, -1 if none were taken."""
        offset = max(self._taken, default=NOTHING - 1) + 1
        for message in self._taken.values():
            self._uncount(message)
        self._taken.clear()
        return offset

    def rollback(self) -> None:
        """Return all taken messages to the cache."""
        self.put_back(list(self._taken.values()))

    def put_back(self, messages: Iterable[MessageExt]) -> None:
        """Return these taken messages to the cache."""
        for message in messages:
            self._taken.pop(message.queue_offset, None)
            self._messages[message.queue_offset] = message
            heapq.heappush(self._order, message.queue_offset)

    def take_back(self, messages: Sequence[MessageExt]) -> None:
        """These messages, removed before, are cached again."""
        for message in messages:
            self.count += 1
            self.size += len(message.body)
        self.put_back(messages)

    def clear(self) -> None:
        """Remove all messages; offsets are not changed."""
        self._messages.clear()
        self._order.clear()
        self._taken.clear()
        self.count = self.size = 0
        self._consuming = False

    def overdue(self, now_ms: int, timeout_ms: int) -> MessageExt | None:
        """The message with the smallest offset, when its listener has been at it for more than `timeout_ms`."""
        message = self._messages[self._smallest()] if self._messages else None
        started = message.properties.get(CONSUME_START_TIME) if message else None
        return message if started is not None and now_ms - int(started) > timeout_ms else None

    def is_smallest(self, message: MessageExt) -> bool:
        """Whether `message` has the lowest cached offset, which limits the commit offset."""
        return bool(self._messages) and self._smallest() == message.queue_offset

    def _smallest(self) -> int:
        while self._order[0] not in self._messages:
            heapq.heappop(self._order)
        return self._order[0]

    def _uncount(self, message: MessageExt) -> None:
        self.count -= 1
        self.size -= len(message.body)
