"""Read-only access to a store directory, live or copied, for Spark. Takes no lock and writes nothing.

File sizes are taken from the files themselves. Knows no options and no broker.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orbitmq.errors import StoreDamaged, StoreError
from orbitmq.message.unit import BLANK, TOPIC_LENGTHS, UNIT_OVERHEAD
from orbitmq.store.files import Files
from orbitmq.store.index.file import HEADER
from orbitmq.store.index.shape import shape_of
from orbitmq.store.pieces import Pieces, read_at
from orbitmq.store.positions import QueueOffset
from orbitmq.store.queue import ENTRY, ENTRY_SIZE, FAR_AWAY, FILLER_SIZE, NO_ENTRY, Entry
from orbitmq.store.walk import SECTOR, Walk, WalkEnd

_log = logging.getLogger(__name__)

WINDOW_SIZE = 16 << 20  # bytes of the log read at a time; four times the default maximum message size of brokers
INDEX_FILE_SIZE_MAX = 1 << 31  # a file of the default shape has 420 MB
QUEUES_ASKED = 1000  # for the message at a place of the log; with more of them that takes longer than a read
DLEDGER_MAGIC = 1  # first number of a DLedger entry
DLEDGER_HEAD_SIZE = 48  # a message follows behind it


LogFiles = Pieces  # what readers of the log hold
NO_MESSAGE_SIZE = FILLER_SIZE  # entries for messages that had expired before their queue was created


@dataclass(frozen=True)
class StoreDirectory:
    """A store directory whose broker may write and remove files at the same time; each call lists them anew.

    Files are read, never mapped: a broker frees the blocks of a removed file, and reading a map without blocks kills
    the process. `commit_logs` are the directories of the commit log, read-only ones
    included, if it is not in `commitlog` below `root`.
    """

    root: Path
    commit_logs: tuple[Path, ...] = ()

    def check(self) -> None:
        """StoreError if this is no store, or one written by DLedger, whose log has another format."""
        has_no_message_yet = (self.root / "lock").exists() and not (self.root / "consumequeue").is_dir()
        for directory in (self.root, *self._log_directories):
            if not directory.is_dir() and not (has_no_message_yet or any(self.root.glob("dledger-*"))):
                raise StoreError(f"{directory}: there is no such directory, so this is no store")
        if self._is_dledger():
            raise StoreError(f"{self.root}: DLedger has written its log, whose records have another frame")

    def _is_dledger(self) -> bool:
        if any(self.root.glob("dledger-*")):
            return True
        log = self.log()
        head = log.read(log.start, DLEDGER_HEAD_SIZE + BLANK.size)
        if len(head) < DLEDGER_HEAD_SIZE + BLANK.size or BLANK.unpack_from(head)[0] != DLEDGER_MAGIC:
            return False
        return BLANK.unpack_from(head, DLEDGER_HEAD_SIZE)[1] in TOPIC_LENGTHS

    @property
    def is_live(self) -> bool:
        """Whether a broker of this machine uses the directory."""
        return Files().is_locked(self.root / "lock")

    @property
    def _log_directories(self) -> tuple[Path, ...]:
        return self.commit_logs or (self.root / "commitlog",)

    def log(self) -> LogFiles:
        """The files of the log; those that do not belong there are skipped with a warning."""
        return Pieces(Files(), self._log_directories, _warn, is_live=True)

    def queues(self) -> list[tuple[str, int]]:
        """(topic, queue id) of every queue, sorted."""
        queues, fs = self.root / "consumequeue", Files()
        return sorted(
            (topic, int(name)) for topic in fs.names(queues) for name in fs.names(queues / topic) if name.isdecimal()
        )

    def entries(
        self, topic: str, queue_id: int, begin: int = 0, end: int = FAR_AWAY
    ) -> Iterator[tuple[QueueOffset, bytes]]:
        """The entries of a queue, the files one by one: queue offset of the first entry, and the file's bytes, with
        those entries that were never written. Files that lead only before `begin` or from `end` of the log on are left
        out. None for a queue that does not exist.
        """
        queue = self._queue(topic, queue_id)
        for number, start in enumerate(queue.starts):
            following = queue.starts[number + 1] if number + 1 < len(queue.starts) else None
            if following is not None and 0 < _entry_at(queue.path(following), 0)[0] <= begin:
                continue
            if _entry_at(queue.path(start), 0)[0] >= end:
                return
            data = read_at(queue.path(start), 0, queue.file_size)
            yield QueueOffset(start // ENTRY_SIZE), data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]

    def behind_unit_at(self, offset: int) -> int:
        """The end of the message that contains the byte at `offset`, if a queue has it; the offset itself if a message
        begins there, or no queue has it.
        """
        for topic, queue_id in self.queues()[:QUEUES_ASKED]:
            place, size = _last_place(self._queue(topic, queue_id), offset)
            if place <= offset < place + size and size != FILLER_SIZE:
                return offset if place == offset else place + size
        return offset

    def queue_size(self, topic: str, queue_id: int) -> int:
        """Bytes of the files of a queue."""
        return self._queue(topic, queue_id).size

    def _queue(self, topic: str, queue_id: int) -> Pieces:
        return Pieces(Files(), [self.root / "consumequeue" / topic / str(queue_id)], _warn, is_live=True)

    def index_files(self) -> list[str]:
        """Names of the files of the key index in their order."""
        return [name for name in Files().names(self.root / "index") if name.isdecimal()]

    def index_entries(self, name: str) -> tuple[int, bytes]:
        """The store time from which the entries of an index file count in seconds, and the bytes of its entries.

        StoreDamaged if its header points to no entries; empty for a file that has expired or was never used.
        """
        path = self.root / "index" / name
        data = read_at(path, 0, INDEX_FILE_SIZE_MAX)
        if len(data) < HEADER.size or HEADER.unpack_from(data)[5] <= 1:
            return 0, b""
        shape = shape_of(memoryview(data), path)
        if shape is None:
            raise StoreDamaged(f"{path}: its head does not lead to its entries")
        begin, *_, count = HEADER.unpack_from(data)
        return begin, data[shape.entry_position(1) : shape.entry_position(count)]

    def queued_end(self) -> int:
        """The end of the last message in any queue, -1 without one: up to there the log is surely intact."""
        return max((_place_end(self._queue(*queue)) for queue in self.queues()), default=-1)

    def whole_end(self) -> int:
        """Behind the last whole message of the last file with content, but never before `queued_end`.

        Where the start after a crash would end the log, unless an earlier file is damaged.
        """
        queued, log = self.queued_end(), self.log()
        starts = [start for start in log.starts if any(log.read(start, BLANK.size))]
        if not starts:
            return max(queued, log.start)
        return max(queued, _walk_file(log, max(starts[-1], queued if queued < log.end else 0)))


def _walk_file(log: Pieces, position: int) -> int:
    """Behind the last whole message from `position` to the end of its file; the end of the file when it is closed."""
    file_end = log.start_of(position) + log.file_size
    size = WINDOW_SIZE
    while position < file_end:
        base = position - position % SECTOR
        window = log.read(base, min(size, file_end - base))
        walk = Walk(window, base, position - base, check_text=True)
        for _ in walk:
            pass
        if walk.ended is WalkEnd.BLANK:
            return file_end
        end, claimed = base + walk.position, _claimed_size(window, walk.position)
        is_cut = end + claimed > base + len(window) and end + claimed <= file_end and len(window) == size
        if not is_cut:
            return end
        size = size if end > position else size * 2  # a message larger than the window
        position = end
    return position


def _claimed_size(window: bytes, position: int) -> int:
    """The size field of the unit there, or the minimum if the window is too short for it; 0 for zeros."""
    if len(window) - position < BLANK.size:
        return UNIT_OVERHEAD
    size: int = BLANK.unpack_from(window, position)[0]
    return max(0, size)


def _place_end(queue: Pieces) -> int:
    """Behind the message of a queue's last entry; -1 without any."""
    for start in reversed(queue.starts):
        count = queue.file_size // ENTRY_SIZE
        path = queue.path(start)
        filled = bisect_left(range(count), True, key=lambda number: not any(_entry_at(path, number)[:2]))
        if filled:
            place, size, _ = _entry_at(path, filled - 1)
            return place + size if size != FILLER_SIZE else -1
    return -1


def _last_place(queue: Pieces, offset: int) -> tuple[int, int]:
    """Place and size of a queue's last message that begins at or before an offset of the log; (0, 0) without one."""
    starts = queue.starts
    index = bisect_right(starts, offset, key=lambda start: _entry_at(queue.path(start), 0)[0]) - 1
    if index < 0:
        return 0, 0
    path, count = queue.path(starts[index]), queue.file_size // ENTRY_SIZE
    behind = bisect_left(range(count), True, key=lambda number: _is_behind(_entry_at(path, number), offset))
    place, size, _ = _entry_at(path, behind - 1) if behind else NO_ENTRY
    return place, size


def _is_behind(entry: Entry, offset: int) -> bool:
    """Whether an entry was never written, or leads behind an offset."""
    return entry[1] <= 0 or entry[0] > offset


def _entry_at(path: Path, number: int) -> Entry:
    data = read_at(path, number * ENTRY_SIZE, ENTRY_SIZE)
    return ENTRY.unpack(data) if len(data) == ENTRY_SIZE else NO_ENTRY


def _warn(path: Path, position: int, text: str) -> None:
    _log.warning("event=file_ignored path=%s position=%d text=%s", path, position, text)
