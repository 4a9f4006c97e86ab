"""Positions that clients bring along from before a start in which the log may have lost its end.

A crash that the disk did not survive, or a slave that took its master's place, ends the log before messages that
consumers have seen. They go on behind these, while other messages take their offsets, and would miss those; with
RocketMQ they do. So the first pull from a queue over a connection is looked at: when it lies behind what the log had at
the start and what the group has stored of its progress since, and the client has not asked for a position in the queue
before, it is sent back there.

It is the connection that counts, not the group: a member may still have its old position when another one has begun
anew. Only for the first minutes, and only pulls that may be held: who reads a range knows why. A client that breaks off
meanwhile, and has lost nothing, gets at worst what came since its progress was stored twice.
"""

from __future__ import annotations

import logging
from typing import Final

from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.message.topics import SYSTEM_GROUPS, is_system_group
from orbitmq.net.connection import Connection
from orbitmq.runtime.clock import Clock
from orbitmq.store.engine import MessageStore
from orbitmq.store.positions import NO_OFFSET, PhysicalOffset, QueueOffset

_log = logging.getLogger(__name__)

WINDOW_MS: Final = 120_000  # clients look for a route every 30 s; a group's members are told what to read every 20 s
TOLD: Final = 20  # one by one; thousands of them have one reason
# Attributes of a connection. As many entries as there are queues, and groups that read them.
ASKED: Final = "asked_positions"  # topic, queue
SETTLED: Final = "settled_positions"  # group, topic, queue


class Resumption:
    """Off until `begin`, and again when its time is over."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets, clock: Clock) -> None:
        self._store = store
        self._offsets = offsets
        self._clock = clock
        self._log_end: PhysicalOffset = NO_OFFSET
        self._ends_ms = 0
        self._told = 0
        self.is_on = False

    def begin(self) -> None:
        """The store is open, and nothing has been appended yet. Progress behind the end of the log is moved back."""
        self._offsets.correct(self._store.max_offset)
        self._log_end = self._store.commit_log_max_offset
        self._ends_ms = self._clock.now_ms() + WINDOW_MS
        self.is_on = True

    def asked(self, connection: Connection, topic: str, queue_id: int) -> None:
        """This broker is about to tell a position in the queue: what is pulled over the connection may come from it."""
        if self._still() and self._is_new(topic, queue_id, self._store.max_offset(topic, queue_id) - 1):
            connection.attributes.setdefault(ASKED, set()).add((topic, queue_id))

    def pulled(self, connection: Connection, group: str, topic: str, queue_id: int, offset: int) -> QueueOffset | None:
        """Where the group has to go on instead; None when `offset` is all right."""
        if is_system_group(group) or group in SYSTEM_GROUPS:
            return None  # tools look at what they are told to look at
        limit = self._limit(connection, group, topic, queue_id, offset)
        if limit is not None:
            self._tell("position_from_before", connection, group, topic, queue_id, offset, limit)
        elif self.is_on:
            connection.attributes.setdefault(SETTLED, set()).add((group, topic, queue_id))
        return limit

    def committed(self, connection: Connection, group: str, topic: str, queue_id: int, offset: int) -> int:
        """What to keep of a group's progress."""
        limit = self._limit(connection, group, topic, queue_id, offset)
        if limit is None:
            return offset
        self._tell("progress_from_before", connection, group, topic, queue_id, offset, limit)
        return limit

    def _tell(self, event: str, connection: Connection, group: str, *place: str | int) -> None:
        if self._told < TOLD:
            self._told += 1
            text = "event=%s group=%s topic=%s queue=%d from=%d to=%d peer=%s"
            _log.warning(text, event, group, *place, connection.address)

    def _still(self) -> bool:
        if self.is_on and self._clock.now_ms() >= self._ends_ms:
            self.is_on = False
        return self.is_on

    def _limit(self, connection: Connection, group: str, topic: str, queue_id: int, offset: int) -> QueueOffset | None:
        """How far the group can have come, when that is before `offset` and the client cannot know better."""
        if not self._still() or (group, topic, queue_id) in connection.attributes.get(SETTLED, ()):
            return None
        if offset <= self._store.max_offset(topic, queue_id) and not self._is_new(topic, queue_id, offset - 1):
            return None
        if (topic, queue_id) in connection.attributes.get(ASKED, ()):
            return None
        limit = max(self._end_before(topic, queue_id), self._offsets.query(group, topic, queue_id) or 0)
        return QueueOffset(limit) if limit < offset else None

    def _end_before(self, topic: str, queue_id: int) -> int:
        """Where the queue ended at the start: the first message that was not there then."""
        low: int = self._store.min_offset(topic, queue_id)
        high: int = self._store.max_offset(topic, queue_id)
        while low < high:
            middle = (low + high) // 2
            if self._is_new(topic, queue_id, middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _is_new(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the message of this offset came after the start."""
        found = self._store.entries(topic, queue_id, offset, 1) if offset >= 0 else []
        return bool(found) and found[0][0] >= self._log_end
