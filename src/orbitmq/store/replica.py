"""The store of a slave: its log is a copy of the master's, byte for byte, and it accepts no messages of its own.

Bytes arrive in the order of the master's log, cut anywhere. Each message is dispatched to its queues, and becomes
readable, when its last byte is here; bytes that a master could never have written stop the replication before they do
harm. Knows neither the transport nor the sender.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from orbitmq.errors import LogsDiffer
from orbitmq.message.unit import BLANK, BLANK_MAGIC, TOPIC_LENGTHS, Unit
from orbitmq.store.dispatch import NeedRoom
from orbitmq.store.engine import MessageStore
from orbitmq.store.positions import PhysicalOffset
from orbitmq.store.queue_room import RoomAwaited
from orbitmq.store.records import UNAVAILABLE, PutRecord, PutResult
from orbitmq.store.walk import Walk

_log = logging.getLogger(__name__)


class ReplicaStore(MessageStore):
    """A message store with role SLAVE. `copy` is the only way in, for the thread that owns the store. `on_room` is
    called, as `deliver` does, when messages are entered that had found no room in their queues.
    """

    def open(self) -> None:
        self.on_room: Callable[[], object] = _nothing
        self._awaits_room = False
        super().open()
        self._log.whole = self._log.end  # recovery has taken a half unit off

    def close(self) -> None:
        """As any store. A message that is in some of its queues, and found no room in others, leaves those: the next
        start enters what no queue has.
        """
        if self._refusal is None and self._log.whole is not None:
            try:
                for queue in self._queues:
                    queue.truncate(self._log.whole)
            except OSError as error:
                self._poison(error)
        super().close()

    def put(self, record: PutRecord, at_once: bool = False) -> PutResult:  # noqa: ARG002
        """Refused: only the master numbers messages."""
        return self._unavailable()

    def put_batch(self, record: PutRecord, *, at_once: bool = False) -> PutResult:  # noqa: ARG002
        """Refused, too."""
        return self._unavailable()

    def _unavailable(self) -> PutResult:
        if self._refusal is not None:
            raise self._refusal
        return UNAVAILABLE

    @property
    def is_empty(self) -> bool:
        """Whether the log has no byte: then it may begin with any file of the master's."""
        files = self._log.files
        return not files.files or (self._log.end == files.start and len(files.files) == 1)

    def forget_half(self, at_once: bool = False) -> bool:
        """Drop a partial message at the end: the last master sent its beginning, and the next master may have another
        one there. Whole messages stay. False while there is no room to dispatch them; then the log cannot be compared
        with another, for `last_message` is not its last. `at_once` as in `copy`.
        """
        self._log.end_whole()
        self._waits.give_up_behind(self._log.end)
        return self._refusal is not None or self._enter_whole(at_once)  # a store that is poisoned enters nothing

    @property
    def copied_to(self) -> PhysicalOffset:
        """The end of the replicated log, partial messages and those that wait for room in their queues included. A
        master may rely on it: they stay, and the next start dispatches them.
        """
        return self._log.end

    @property
    def safe_to(self) -> PhysicalOffset:
        """What the master may rely on: with SYNC_FLUSH what is on disk, else what is written."""
        return self._log.flushed if self._flushes_each else self._log.end

    def last_message(self) -> tuple[PhysicalOffset, bytes] | None:
        """Place and bytes of the last message that any queue has; None for a store without messages. For any thread
        while nothing is copied.
        """
        furthest = self._queues.furthest()
        entry = furthest.last_entry() if furthest is not None else None
        unit = self._log.unit_at(entry[0]) if entry is not None else None
        return (PhysicalOffset(entry[0]), bytes(unit)) if entry is not None and unit is not None else None

    def file_starts(self) -> list[int]:
        """Where the files of the log begin; there is a message at each of these places that is below the end."""
        files = self._log.files
        return [start for start in range(files.start, files.end, files.file_size) if start < self._log.readable]

    def message_places(self, file_start: int) -> list[int]:
        """Where the messages of one file are, by their sizes alone. For any thread."""
        size = min(self._log.files.file_size, self._log.readable - file_start)
        data = self._log.slice(file_start, size)
        position, places = 0, []
        while data is not None and position + BLANK.size <= size:
            length, magic = BLANK.unpack_from(data, position)
            if magic not in TOPIC_LENGTHS or length <= 0:
                break
            places.append(file_start + position)
            position += length
        return places

    def copy(self, offset: int, data: memoryview | bytes, at_once: bool = False) -> bool:
        """Append bytes that the master has at `offset`; they must not extend beyond the end of its file. False while
        there is no room for them, or for entries of earlier messages; then nothing is appended. With `at_once` it does
        not wait for a disk to make room for entries: they are made later.

        LogsDiffer if they do not continue the log, or are not valid in a log; StoreError while not open.
        """
        if self._refusal is not None:
            raise self._refusal
        log = self._log
        if self.is_empty and offset != log.end:
            if not data:
                return True  # a sign of life of a master whose log begins further on
            if offset % log.files.file_size:
                raise LogsDiffer(f"the master's log cannot begin at {offset}: no file of mappedFileSizeCommitLog does")
            log.begin_copy_at(offset)
        if offset != log.end:
            raise LogsDiffer(f"the master sends its log from {offset}, this one ends at {log.end}")
        if offset % log.files.file_size + len(data) > log.files.file_size:
            raise LogsDiffer(
                f"the master's bytes at {offset} go beyond a file of this log: mappedFileSizeCommitLog must be the same"
            )
        if not self._enter_whole(at_once) or (data and not self._has_room_for(len(data))):
            return False
        if data:
            log.append(bytes(data), log.last_store_timestamp)
            self._enter_whole(at_once)  # what finds no room is entered later; the log has it, as with RocketMQ's
            if self._wakes_flusher:
                self._wake_flusher()
        return True

    def _has_room_for(self, size: int) -> bool:
        try:
            self._log.make_room_for_copy(size)
        except TimeoutError as error:
            _log.warning("event=disk_slow directory=%s error=%s", self.options.root, error)
            return False
        except BlockingIOError:
            return False  # no room for a further map, which was logged
        except OSError as error:
            self._full(error)
            return False
        self._reserve_worker.wake()
        return True

    def _enter_whole(self, at_once: bool) -> bool:
        """Dispatch every complete message; False if there is no room for the entries, which are made later."""
        if self._awaits_room:
            return False
        log, need_room = self._log, self._room.need if at_once else None
        while log.whole is not None and log.whole < log.end:
            file_start = log.files.start_of(log.whole)
            file = log.files.find(log.whole)
            assert file is not None, "what was copied is in a file"
            data = file.view[: min(log.end - file_start, log.files.file_size)]
            walk = Walk(data, file_start, log.whole - file_start)
            try:
                for unit in walk:
                    self._show(unit, need_room)
            except RoomAwaited as awaited:
                self._awaits_room = True
                self._room.wait(awaited, self._go_on)
                return False
            except OSError as error:
                self._refused(error)
                return False
            if not self._passes_blank(data, file_start):
                return True
        return True

    def _go_on(self, error: OSError | None) -> None:
        self._awaits_room = False
        if error is not None:
            self._refused(error)
        elif self._refusal is None:
            with suppress(LogsDiffer):  # the next call of `copy` raises it again
                self._enter_whole(at_once=True)
            self.on_room()

    def _show(self, unit: Unit, need_room: NeedRoom | None) -> None:
        end = PhysicalOffset(unit.physical_offset + unit.size)
        made = self._dispatcher.dispatch(unit, need_room)
        self._log.whole = end
        if self._log.shows_at_once:
            self._log.readable = end
        self._log.last_store_timestamp = unit.store_timestamp
        for queue, queue_offset, code in made:
            self._arrivals.add(queue, queue_offset, end, code, unit.store_timestamp)
        self.put_count += 1
        self.put_bytes += unit.size

    def _passes_blank(self, data: memoryview, file_start: int) -> bool:
        """What follows the last whole message: whether it is the end of a file, after which the next file may have
        more.

        LogsDiffer if it is neither that nor the beginning of a message.
        """
        log = self._log
        assert log.whole is not None
        position = log.whole - file_start
        rest, file_end = len(data) - position, PhysicalOffset(file_start + log.files.file_size)
        if rest >= BLANK.size:
            size, magic = BLANK.unpack_from(data, position)
            if magic == BLANK_MAGIC:
                is_complete = log.end >= file_end
            elif magic in TOPIC_LENGTHS and rest < size <= log.files.file_size - position:
                return False
            else:
                raise LogsDiffer(f"what the master has at {log.whole} of its log is no message")
        else:
            is_complete = log.end >= file_end  # too few bytes for a record
        if is_complete:
            log.whole = file_end
            if log.shows_at_once:
                log.readable = file_end
        return is_complete


def _nothing() -> None:
    pass
