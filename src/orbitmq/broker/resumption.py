"""Checks offsets that clients kept from before a start in which the log may have lost its end.

After a crash of the machine, or when a slave replaces its master, the log may end before messages that were consumed.
Consumers continue after these, while new messages take their offsets, and would skip the new ones; with RocketMQ they
do. So in the first minutes an offset is accepted only up to

- the end of the queue at the start,
- the group's stored progress, which is limited to that end at the start,
- what this connection was sent: the next offset of a pull, an offset in a response or a reset.

Progress beyond that is stored as the greatest of these. A pull beyond it is redirected to the offset that this
connection reached, else to the stored progress of the group, else to the end of the queue at the start: a redirected
client drops messages that it pulled and did not consume, so it must be able to read them again. This holds per
connection, not per group: one member may still have its old offset when another has started over. Pulls that may not be
held are not checked, since a client that reads a range does so on purpose. Neither are connections that request
statistics: these are tools.

A client that disconnects within these minutes, although nothing was lost, may get messages twice that it had not
committed; without stored progress, as in broadcasting, all messages since the start.

The end of the log is kept in `config/resumption.json` for these minutes: a broker that restarts within them meets the
same clients, and messages stored in between do not prove their offsets.

Only offsets above 0 are recorded: offset 0 needs no proof, and it is the only one in a queue that does not exist,
whatever name a client invents for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Final

from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.errors import StoreDamaged, StoreError
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import SYSTEM_GROUPS, is_system_group
from orbitmq.net.connection import Connection
from orbitmq.runtime.files import load_with_backup, remove_with_backup, save_with_backup
from orbitmq.store.engine import MessageStore
from orbitmq.store.positions import NO_OFFSET, PhysicalOffset, QueueOffset

_log = logging.getLogger(__name__)

WINDOW_S: Final = 120.0  # clients refresh routes every 30 s; members of a group rebalance every 20 s
REMEMBERED_MAX: Final = 200_000  # some 70 MB; beyond it the check ends, and the broker behaves like RocketMQ's
TOLD_MAX: Final = 20  # lines of the log: thousands of them have one reason
KNOWN: Final = "known_positions"  # attribute of a connection
_LOG_END: Final = "logEnd"


class KnownPositions:
    """What one connection may come with."""

    def __init__(self) -> None:
        self.reached: dict[tuple[str, str, int], int] = {}  # by group, topic and queue
        self.reported: dict[tuple[str, int], set[int]] = {}  # by topic and queue
        self.is_tool = False

    def clear(self) -> None:
        self.reached.clear()
        self.reported.clear()


class Resumption:
    """Off until `begin`, and again when its time is over."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets) -> None:
        self._store = store
        self._offsets = offsets
        self._path = store.options.root / "config" / "resumption.json"
        self._log_end: PhysicalOffset = NO_OFFSET
        self._ends_s = 0.0
        self._known: list[KnownPositions] = []
        self._remembered = 0
        self._queue_ends: dict[tuple[str, int], int] = {}  # of queues that were requested
        self._lines = 0
        self.is_on = False

    def begin(self, *, at_other_master: bool, was_killed: bool) -> None:
        """Decide whether offsets are checked. The store is open and nothing has been appended yet. Progress beyond the
        end of the log is reset. `at_other_master`: clients may have offsets from another master, whose log was longer.
        """
        earlier = self._earlier_end()
        if not at_other_master and not was_killed and earlier is None:
            return
        self._offsets.correct(self._store.max_offset)
        self._log_end = self._store.commit_log_max_offset
        if earlier is not None:
            self._log_end = min(self._log_end, earlier)
        # With SYNC_FLUSH consumers have seen only flushed messages; at another master they may have seen others.
        self.is_on = at_other_master or earlier is not None or not self._store.options.flushes_each

    async def clients_come(self, now_s: float) -> None:
        """Start the time window, at `now_s` of the loop's clock: that of the machine may be set after a power loss.

        The corrected progress and the end of the log are on disk before that: the next start trusts stored progress.
        """
        if self.is_on:
            self._offsets.file.mark()
            try:
                await self._offsets.file.flush()
                await asyncio.to_thread(save_with_backup, self._path, json.dumps({_LOG_END: self._log_end}))
            except (OSError, StoreError) as error:  # as on a full disk: the window ends with this process
                _log.warning("event=resumption_not_kept path=%s error=%s", self._path, error)
        self._ends_s = now_s + WINDOW_S

    def settle(self) -> None:
        """The window is over: remove its file. OSError when the disk refuses."""
        remove_with_backup(self._path)

    def _earlier_end(self) -> PhysicalOffset | None:
        """The end of the log at an earlier start whose window was not over."""
        try:
            return load_with_backup(self._path, _log_end_in)
        except StoreDamaged as error:
            _log.warning("event=resumption_unreadable error=%s", error)
            return PhysicalOffset(0)  # only positions that this broker has sent are trusted

    # ------------------------------------------------------------------------------------------- what may be believed

    def reported(self, connection: Connection, topic: str, queue_id: int, offset: int) -> None:
        """This broker sends an offset of the queue in a response to the connection."""
        if offset > 0 and self._is_still_on(connection):
            offsets = self._of(connection).reported.setdefault((topic, queue_id), set())
            if offset not in offsets:
                offsets.add(offset)
                self._remember()

    def reached(self, connection: Connection, group: str, topic: str, queue_id: int, offset: int) -> None:
        """This broker redirects the group's member to an offset."""
        if offset > 0 and self._is_still_on(connection):
            known, place = self._of(connection).reached, (group, topic, queue_id)
            before = known.get(place)
            known[place] = offset if before is None else max(before, offset)
            if before is None:
                self._remember()

    def sent(self, connection: Connection, group: str, positions: Mapping[MessageQueue, int]) -> None:
        """`reached` for many queues."""
        for queue, offset in positions.items():
            self.reached(connection, group, queue.topic, queue.queue_id, offset)

    def note_tool(self, connection: Connection) -> None:
        """The connection requests statistics, which consumers do not: it is a tool, whose commits are meant."""
        if self._is_still_on(connection):
            self._of(connection).is_tool = True

    # ------------------------------------------------------------------------------------------- what clients come with

    def pulled(self, connection: Connection, group: str, topic: str, queue_id: int, offset: int) -> QueueOffset | None:
        """Where a pull has to go on instead; None when `offset` is all right."""
        if is_system_group(group) or group in SYSTEM_GROUPS:
            return None  # tools read where their users want
        limit = self._limit(connection, group, topic, queue_id, offset)
        if limit is None:
            return None
        known: KnownPositions | None = connection.attributes.get(KNOWN)
        found = known.reached.get((group, topic, queue_id)) if known is not None else None
        if found is None:
            found = self._offsets.query(group, topic, queue_id)
        redirected_to = limit if found is None else QueueOffset(found)
        self._log_redirect("position_from_before", connection, group, topic, queue_id, offset, redirected_to)
        return redirected_to

    def committed(self, connection: Connection, group: str, topic: str, queue_id: int, offset: int) -> int:
        """What to store of a group's progress."""
        limit = self._limit(connection, group, topic, queue_id, offset)
        if limit is None:
            return offset
        self._log_redirect("progress_from_before", connection, group, topic, queue_id, offset, limit)
        return limit

    def _limit(self, connection: Connection, group: str, topic: str, queue_id: int, offset: int) -> QueueOffset | None:
        """The greatest offset the group can have reached, if that is below `offset`."""
        if not self._is_still_on(connection):
            return None
        if offset <= 0 or self._was_there(topic, queue_id, offset - 1):
            return None
        limit = max(self._end_before(topic, queue_id), self._offsets.query(group, topic, queue_id) or 0)
        known: KnownPositions | None = connection.attributes.get(KNOWN)
        if known is not None:
            if known.is_tool or offset in known.reported.get((topic, queue_id), ()):
                return None
            limit = max(limit, known.reached.get((group, topic, queue_id), 0))
        return QueueOffset(limit) if limit < offset else None

    def _end_before(self, topic: str, queue_id: int) -> int:
        """Where the queue ended at the start: the first message that was not there then."""
        found = self._queue_ends.get((topic, queue_id))
        if found is not None:
            return found
        low: int = self._store.min_offset(topic, queue_id)
        high: int = self._store.max_offset(topic, queue_id)
        if high == 0:
            return 0
        while low < high:
            middle = (low + high) // 2
            if self._was_there(topic, queue_id, middle):
                low = middle + 1
            else:
                high = middle
        self._queue_ends[topic, queue_id] = low
        self._remember()
        return low

    def _was_there(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether there is a message of this offset, and was at the start."""
        entries = self._store.entries(topic, queue_id, offset, 1)
        return bool(entries) and entries[0][0] < self._log_end

    # ------------------------------------------------------------------------------------------------------ its memory

    def _is_still_on(self, connection: Connection) -> bool:
        if self.is_on and connection.loop.time() >= self._ends_s:
            self._end()
        return self.is_on

    def _end(self) -> None:
        self.is_on = False
        for known in self._known:
            known.clear()
        self._known.clear()
        self._queue_ends.clear()

    def _of(self, connection: Connection) -> KnownPositions:
        known: KnownPositions | None = connection.attributes.get(KNOWN)
        if known is None:
            known = connection.attributes[KNOWN] = KnownPositions()
            self._known.append(known)
            self._remember()
        return known

    def _remember(self) -> None:
        self._remembered += 1
        if self._remembered > REMEMBERED_MAX:
            _log.warning("event=positions_not_followed limit=%d", REMEMBERED_MAX)
            self._end()

    def _log_redirect(self, event: str, connection: Connection, group: str, *place: str | int) -> None:
        if self._lines < TOLD_MAX:
            self._lines += 1
            text = "event=%s group=%.300s topic=%.300s queue=%d from=%d to=%d peer=%s"
            _log.warning(text, event, group, *place, connection.address)


def _log_end_in(text: str) -> PhysicalOffset:
    try:
        return PhysicalOffset(int(json.loads(text)[_LOG_END]))
    except (ValueError, TypeError, KeyError) as error:
        raise StoreDamaged(f"no place in the log: {error}") from error
