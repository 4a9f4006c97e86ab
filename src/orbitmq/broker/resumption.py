"""Positions that clients bring along from before a start in which the log may have lost its end.

A crash that the disk did not survive, or a slave that took its master's place, ends the log before messages that
consumers have seen. They go on behind these, while other messages take their offsets, and would miss those; with
RocketMQ they do. So the first pull of a group from a queue is looked at: when it lies behind what the log had at the
start, and its connection has not asked this broker for a position in the queue before, it is sent back to where the log
ended.

Only for the first minutes, and only pulls that may be held: who reads a range knows why. A group that comes with
positions of its own, and lost nothing, gets at worst the messages of these minutes twice. Members of a group that
broadcasts are looked at as one.
"""

from __future__ import annotations

import logging

from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.message.topics import SYSTEM_GROUPS, is_system_group
from orbitmq.net.connection import Connection
from orbitmq.runtime.clock import Clock
from orbitmq.store.engine import MessageStore
from orbitmq.store.positions import NO_OFFSET, PhysicalOffset, QueueOffset

_log = logging.getLogger(__name__)

WINDOW_MS = 120_000  # clients look for a route every 30 s; a group's members are told what to read every 20 s
ASKED = "asked_positions"  # attribute of a connection
TOLD = 20  # one by one; thousands of them have one reason


class Resumption:
    """Off until `begin`, and again when its time is over."""

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._log_end: PhysicalOffset = NO_OFFSET
        self._ends_ms = 0
        self._settled: set[tuple[str, str, int]] = set()  # group, topic, queue: of groups and topics that exist
        self._told = 0
        self.is_on = False

    def begin(self, offsets: ConsumerOffsets) -> None:
        """The store is open, and nothing has been appended yet. Progress behind the end of the log is moved back."""
        offsets.correct(self._store.max_offset)
        self._log_end = self._store.commit_log_max_offset
        self._ends_ms = self._clock.now_ms() + WINDOW_MS
        self.is_on = True

    def asked(self, connection: Connection, topic: str, queue_id: int) -> None:
        """This broker is about to tell a position in the queue: what is pulled over the connection may come from it."""
        if self._still() and self._has_grown(topic, queue_id):
            connection.attributes.setdefault(ASKED, set()).add((topic, queue_id))

    def pulled(self, connection: Connection, group: str, topic: str, queue_id: int, offset: int) -> QueueOffset | None:
        """Where the group has to go on instead; None when `offset` is all right."""
        if not self._still() or (group, topic, queue_id) in self._settled:
            return None
        if is_system_group(group) or group in SYSTEM_GROUPS:
            return None  # tools look at what they are told to look at
        end = self._end_before(connection, topic, queue_id, offset)
        if end is None:
            self._settled.add((group, topic, queue_id))
        else:
            self._tell("position_from_before", connection, group, topic, queue_id, offset, end)
        return end

    def committed(self, connection: Connection, group: str, topic: str, queue_id: int, offset: int) -> int:
        """What to keep of a group's progress."""
        if not self._still() or (group, topic, queue_id) in self._settled:
            return offset
        end = self._end_before(connection, topic, queue_id, offset)
        if end is None:
            return offset
        self._tell("progress_from_before", connection, group, topic, queue_id, offset, end)
        return end

    def _tell(self, event: str, connection: Connection, group: str, *place: str | int) -> None:
        if self._told < TOLD:
            self._told += 1
            text = "event=%s group=%s topic=%s queue=%d from=%d to=%d peer=%s"
            _log.warning(text, event, group, *place, connection.address)

    def _still(self) -> bool:
        if self.is_on and self._clock.now_ms() >= self._ends_ms:
            self.is_on = False
            self._settled = set()
        return self.is_on

    def _end_before(self, connection: Connection, topic: str, queue_id: int, offset: int) -> QueueOffset | None:
        """Where the queue ended at the start, when that is before `offset` and the client cannot know better."""
        high = self._store.max_offset(topic, queue_id)
        if offset <= high and not self._is_new(topic, queue_id, offset - 1):
            return None
        if (topic, queue_id) in connection.attributes.get(ASKED, ()):
            return None
        low = self._store.min_offset(topic, queue_id)
        while low < high:  # the first entry of a message that was not there then
            middle = (low + high) // 2
            if self._is_new(topic, queue_id, middle):
                high = QueueOffset(middle)
            else:
                low = QueueOffset(middle + 1)
        return low

    def _has_grown(self, topic: str, queue_id: int) -> bool:
        return self._is_new(topic, queue_id, self._store.max_offset(topic, queue_id) - 1)

    def _is_new(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the message of this offset came after the start."""
        found = self._store.entries(topic, queue_id, offset, 1) if offset >= 0 else []
        return bool(found) and found[0][0] >= self._log_end
