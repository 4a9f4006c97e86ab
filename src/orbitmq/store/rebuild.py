"""Makes the queues and the key index of a stopped store anew, from its log.

Everything is made beside the old and takes its place in one step each when it is on disk; an interruption before leaves
the old. The log is read up to the first message that is not whole, which is how far a start would believe it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orbitmq.errors import StoreDamaged, StoreError
from orbitmq.message.flags import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from orbitmq.message.topics import is_lmq
from orbitmq.message.unit import Unit, store_timestamp_of
from orbitmq.runtime.clock import Clock
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.dispatch import Dispatcher, is_queued
from orbitmq.store.extended_queue import ExtendedQueue, read_units
from orbitmq.store.files import Files
from orbitmq.store.index import KeyIndex
from orbitmq.store.index_check import shape_of
from orbitmq.store.index_file import HEADER, IndexShape
from orbitmq.store.key_scan import FoundKeys, key_hashes, keys_of
from orbitmq.store.log_scan import Gap, LogScan
from orbitmq.store.multi_dispatch import MultiDispatch
from orbitmq.store.numbered import NumberedFiles
from orbitmq.store.options import StoreOptions
from orbitmq.store.pieces import Pieces
from orbitmq.store.queue import ENTRY_SIZE, ConsumeQueue
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.verify import (
    PROGRESS_MESSAGES,
    Progress,
    is_removed,
    known_topics,
    log_directories,
    no_progress,
    state_of,
)

STAGING = "rebuild"  # everything new lies below this directory of the store until it is complete
INDEX_BATCH = 256
HEAD_SIZE = 128  # of a message: enough for its store timestamp


@dataclass
class Rebuilt:
    """What was made. `log_end` is how far the log was read; `stopped_by` says what is wrong there, None when
    nothing is.
    """

    messages: int = 0
    queues: int = 0
    entries: int = 0
    index_entries: int = 0
    log_end: int = 0
    stopped_by: str | None = None


def rebuild(
    root: Path,
    options: StoreOptions,
    delay_levels: tuple[int, ...],
    clock: Clock,
    commit_logs: Sequence[Path] = (),
    *,
    progress: Progress = no_progress,
    files: Files | None = None,
) -> Rebuilt:
    """Do it. `options` say what the directory itself does not: the sizes of files of which none is left.

    StoreLocked while a broker uses the directory, StoreError when it is no store or the disk refuses.
    """
    door = files or Files()
    state_of(door, root, commit_logs)
    lock = door.lock(root / "lock")
    try:
        door.remove_tree(root / STAGING)
        return _Rebuild(door, root, options, delay_levels, clock, log_directories(root, commit_logs)).run(progress)
    except OSError as error:
        raise StoreError(f"{root}: cannot be rebuilt: {error}") from error
    finally:
        with suppress(OSError):
            door.remove_tree(root / STAGING)
        lock.release()


class _KeptExtension(ExtendedQueue):
    """The units on disk, which new entries lead to as old ones did. They are not made anew: the log does not say
    which filters took a message. Messages come in the order of the units; one without a unit keeps its code.
    """

    def __init__(self, files: NumberedFiles) -> None:
        super().__init__(files)
        self._units = read_units(files)
        self._next = next(self._units, None)

    def put(self, code: int, store_timestamp: int, bitmap: bytes) -> int:  # noqa: ARG002
        while self._next is not None and self._next[1].store_timestamp < store_timestamp:
            self._next = next(self._units, None)
        if self._next is None or self._next[1][:2] != (code, store_timestamp):
            return code
        address = self._next[0]
        self._next = next(self._units, None)
        return address

    def recover(self, last_address: int | None, *, clean: bool) -> None:
        """Nothing is written, so there is nothing to go on behind."""

    def destroy(self) -> None:
        """The queue begins anew; the units stay."""
        self.files.close()


class _NewQueues(ConsumeQueues):
    """Queues in the making, with the extensions of the old ones."""

    def __init__(self, door: Files, root: Path, file_size: int) -> None:
        super().__init__(door, root / STAGING, file_size)
        self._kept = root / "consumequeue_ext"

    def extension(self, topic: str, queue_id: int) -> ExtendedQueue | None:
        directory = self._kept / topic / str(queue_id)
        size = Pieces(self._door, [directory], _ignore).file_size
        if not size:
            return None
        files = NumberedFiles(self._door, directory, size)
        try:
            files.load(writable=False)
        except StoreError:  # a damaged extension is as good as none
            files.close()
            return None
        return _KeptExtension(files)


class _Rebuild:
    def __init__(
        self,
        door: Files,
        root: Path,
        options: StoreOptions,
        delay_levels: tuple[int, ...],
        clock: Clock,
        commit_logs: Sequence[Path],
    ) -> None:
        self._door = door
        self._root = root
        self._log = Pieces(door, commit_logs, _refuse)
        self._rebuilt = Rebuilt()
        self._old_queues = root / "consumequeue"
        self._queues = _NewQueues(door, root, self._queue_file_size() or options.consume_queue_file_size)
        self._dispatcher = Dispatcher(self._queues, delay_levels, self._multi_dispatch(options))
        self._known_topics = known_topics(root)
        self._own_topics: set[str] = set()  # without those that only multi-dispatch leads to, which no table names
        self._checkpoint = Checkpoint(door, root / "checkpoint")
        self._index: KeyIndex | None = None
        if options.message_index_enable:
            shape = self._index_shape() or IndexShape(options.max_hash_slot_num, options.max_index_num)
            scratch = Checkpoint(door, root / STAGING / "checkpoint")  # the real one goes on saying what is flushed
            self._index = KeyIndex(door, root / STAGING / "index", shape, scratch, clock)
        self._keys = FoundKeys([], [], [], [])

    # ------------------------------------------------------------------------------------------ what the old one tells

    def _old_queue_directories(self) -> Iterator[Path]:
        for topic in self._door.names(self._old_queues):
            for name in self._door.names(self._old_queues / topic):
                yield self._old_queues / topic / name

    def _queue_file_size(self) -> int:
        """0 when no file is left to tell."""
        sizes = (Pieces(self._door, [path], _ignore).file_size for path in self._old_queue_directories())
        return next((size for size in sizes if size and size % ENTRY_SIZE == 0), 0)

    def _index_shape(self) -> IndexShape | None:
        for name in self._door.names(self._root / "index"):
            path = self._root / "index" / name
            size = self._door.size(path)
            if name.isdecimal() and size > HEADER.size:
                file = self._door.open(path, size, writable=False)
                shape = shape_of(file.view, path)
                file.close()
                if shape is not None:
                    return shape
        return None

    def _multi_dispatch(self, options: StoreOptions) -> MultiDispatch:
        """Light queues on disk say that it is on."""
        light = [path for path in self._old_queue_directories() if is_lmq(path.parent.name)]
        return MultiDispatch(
            is_enabled=options.enable_multi_dispatch or bool(light),
            with_light_queues=options.enable_lmq or all(path.name == "0" for path in light),
        )

    # --------------------------------------------------------------------------------------------------------- the work

    def run(self, progress: Progress) -> Rebuilt:
        rebuilt = self._rebuilt
        try:
            scan = LogScan(self._door, self._log)
            for found in scan:
                if isinstance(found, Gap):
                    rebuilt.stopped_by = found.text
                    break
                self._enter(found)
                if rebuilt.messages % PROGRESS_MESSAGES == 0:
                    progress(found.physical_offset - self._log.start, self._log.size)
            self._add_keys()
            rebuilt.log_end = scan.end
            self._finish()
        finally:
            self._queues.close()
            if self._index is not None:
                self._index.close()
        progress(self._log.size, self._log.size)
        return rebuilt

    def _enter(self, unit: Unit) -> None:
        self._rebuilt.messages += 1
        if is_queued(unit.sys_flag):
            self._own_topics.add(unit.topic)
            queue = self._queues.table.get((unit.topic, unit.queue_id))
            if queue is not None and unit.queue_offset == 0 and queue.max_offset > 0:
                queue.destroy()  # the topic was removed here and made anew
                del self._queues.table[unit.topic, unit.queue_id]
            self._dispatcher.dispatch(unit)
        if self._index is not None and unit.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            found = keys_of(unit.properties.encode())
            self._keys.topics.extend([unit.topic.encode()] * len(found))
            self._keys.keys.extend(found)
            self._keys.offsets.extend([unit.physical_offset] * len(found))
            self._keys.timestamps.extend([unit.store_timestamp] * len(found))
            if len(self._keys.keys) >= INDEX_BATCH:
                self._add_keys()

    def _is_removed(self, topic: str) -> bool:
        return is_removed(topic, self._known_topics) and not self._door.names(self._old_queues / topic)

    def _add_keys(self) -> None:
        keys = self._keys
        if self._index is not None and keys.keys:
            self._index.add(key_hashes(keys.topics, keys.keys), keys.offsets, keys.timestamps)
            self._rebuilt.index_entries += len(keys.keys)
            self._keys = FoundKeys([], [], [], [])

    # ------------------------------------------------------------------------------------------------- taking its place

    def _finish(self) -> None:
        """Bring everything to disk, then let it take its place: queues, then index."""
        self._checkpoint.load()  # writes an empty one if there is none
        made = self._root / STAGING / "consumequeue"
        self._door.make_directory(made)
        self._drop_removed_topics()
        for queue in self._queues:
            self._rebuilt.queues += 1
            self._rebuilt.entries += queue.max_offset - queue.min_offset
            queue.flush()
            self._keep_times(queue)
        for topic in self._door.names(made):
            self._door.sync_directory(made / topic)
        self._door.sync_directory(made)
        if self._index is not None:
            self._door.make_directory(self._root / STAGING / "index")
            self._index.flush()
            self._door.sync_directory(self._root / STAGING / "index")
        self._door.swap(made, self._root / "consumequeue")
        if self._index is not None:
            self._door.swap(self._root / STAGING / "index", self._root / "index")

    def _drop_removed_topics(self) -> None:
        """Only now: their messages may lie in further queues too."""
        for queue in self._queues:
            if queue.topic in self._own_topics and self._is_removed(queue.topic):
                queue.destroy()
                del self._queues.table[queue.topic, queue.queue_id]
                self._door.remove_directory(self._root / STAGING / "consumequeue" / queue.topic)

    def _keep_times(self, queue: ConsumeQueue) -> None:
        """Searches by time choose a file by when it was last written: with its last message."""
        entries_a_file = queue.files.file_size // ENTRY_SIZE
        for number, file in enumerate(queue.files.files):
            behind = queue.files.start // ENTRY_SIZE + (number + 1) * entries_a_file
            entry = queue.entry(min(behind, queue.max_offset) - 1)
            head = self._log.read(entry[0], HEAD_SIZE) if entry is not None else b""
            if len(head) == HEAD_SIZE:
                self._door.set_modified_ms(file.path, store_timestamp_of(head))


def _ignore(path: Path, position: int, text: str) -> None:
    """Only what is usable counts."""


def _refuse(path: Path, position: int, text: str) -> None:  # noqa: ARG001
    raise StoreDamaged(f"{path}: {text}; nothing is rebuilt from a log that no broker takes")
