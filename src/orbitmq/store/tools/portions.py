"""Rebuilds queues and key index of a store in independent portions, so that several processes can share the work: first
each file of the log is scanned, then each queue and each index file is written from the results. These are the
portions; `orbitmq.store.tools.rebuild` runs them in order and replaces the old files.

The result of a log file's scan is a part file in the staging directory: for each queue its entries, `FOUND_ENTRY` each,
then the keys, `FOUND_KEY` each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import StoreError
from orbitmq.message.flags import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from orbitmq.message.unit import Unit, store_timestamp_of
from orbitmq.store.dispatch import Dispatcher, EntryCode, is_queued
from orbitmq.store.extended_queue import ExtendedQueue, read_units
from orbitmq.store.files import Files
from orbitmq.store.index.file import IndexFile, IndexShape
from orbitmq.store.index.key_scan import FoundKeys, key_hashes, keys_of
from orbitmq.store.multi_dispatch import MultiDispatch
from orbitmq.store.numbered import NumberedFiles
from orbitmq.store.pieces import Pieces, read_at
from orbitmq.store.queue import ENTRY_SIZE, ConsumeQueue
from orbitmq.store.queues import ConsumeQueues, is_storable
from orbitmq.store.tools.log_scan import Gap, LogScan

STAGING: Final = "rebuild"  # everything new lies below this directory of the store until it is complete
PARTS: Final = "parts"  # and there the part files
# queue offset, physical offset, size, code, store time, whether its own queue
FOUND_ENTRY: Final = struct.Struct(">qqiqq?")
FOUND_KEY: Final = struct.Struct(">iqq")  # hash, place, store time
INDEX_BATCH: Final = 256  # keys hashed at once
PROGRESS_MESSAGES: Final = 1000  # interval of progress reports
HEAD_SIZE: Final = 128  # of a message: enough for its store timestamp

QueueName = tuple[str, int]
Tell = Callable[[int], object]  # the physical offset reached


@dataclass(frozen=True)
class Plan:
    """What all portions need. `index_shape` is None if no index is built."""

    root: Path
    commit_logs: tuple[Path, ...]
    queue_file_size: int
    index_shape: IndexShape | None
    entry_codes: Mapping[str, EntryCode]
    multi_dispatch: MultiDispatch

    def log(self, fs: Files) -> Pieces:
        """The files of the log."""
        return Pieces(fs, self.commit_logs, ignore)


class Span(NamedTuple):
    """Rows of a part file: where the first one begins, in bytes, and how many there are."""

    path: Path
    start: int
    rows: int


@dataclass
class Portion:
    """The result of a log file's scan. `end` is the end of its last intact message, -1 without any. `zeros_from` is the
    start of its unused part, -1 if it is full; `gap` is the damage that ends it.
    """

    start: int
    messages: int = 0
    end: int = -1
    zeros_from: int = -1
    gap: Gap | None = None
    queues: dict[QueueName, Span] = field(default_factory=dict)
    keys: Span | None = None
    own_topics: set[str] = field(default_factory=set)  # without those that only multi-dispatch fills

    @property
    def has_content(self) -> bool:
        return self.messages > 0 or self.gap is not None


# ------------------------------------------------------------------------------------------ first: look through the log


def look_through(plan: Plan, fs: Files, start: int, tell: Tell | None = None) -> Portion:
    """Look through the file of the log that begins at `start`, up to its first damage."""
    return _Search(plan, fs, start).run(tell)


class _Search:
    def __init__(self, plan: Plan, fs: Files, start: int) -> None:
        self._plan = plan
        self._fs = fs
        self._portion = Portion(start)
        self._names = ConsumeQueues(fs, plan.root / STAGING, plan.queue_file_size)  # of which none is written to
        self._dispatcher = Dispatcher(self._names, plan.entry_codes, plan.multi_dispatch)
        self._entries: dict[QueueName, bytearray] = {}
        self._keys = FoundKeys([], [], [], [])
        self._rows = bytearray()

    def run(self, tell: Tell | None) -> Portion:
        portion, log = self._portion, self._plan.log(self._fs)
        scan = LogScan(self._fs, log, start=portion.start, limit=portion.start + log.file_size)
        for found in scan:
            if isinstance(found, Gap):
                portion.gap = found
                break
            portion.messages += 1
            portion.end = scan.end
            self._enter(found)
            if tell is not None and portion.messages % PROGRESS_MESSAGES == 0:
                tell(found.physical_offset)
        portion.zeros_from = scan.zeros_from
        self._hash_keys()
        self._write()
        return portion

    def _enter(self, unit: Unit) -> None:
        properties = unit.properties.encode()
        place, timestamp = unit.physical_offset, unit.store_timestamp
        if is_queued(unit.sys_flag):
            self._portion.own_topics.add(unit.topic)
            queue = self._names.find_or_create(unit.topic, unit.queue_id)
            code = self._dispatcher.code_of(queue, properties, timestamp)
            row = FOUND_ENTRY.pack(unit.queue_offset, place, unit.size, code, timestamp, True)
            self._entries.setdefault((unit.topic, unit.queue_id), bytearray()).extend(row)
            further = self._plan.multi_dispatch.entries(unit.topic, unit.queue_id, properties)
            for topic, queue_id, queue_offset in further:
                if is_storable(topic):
                    row = FOUND_ENTRY.pack(queue_offset, place, unit.size, code, timestamp, False)
                    self._entries.setdefault((topic, queue_id), bytearray()).extend(row)
        if self._plan.index_shape is not None and unit.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            found = keys_of(properties)
            self._keys.topics.extend([unit.topic.encode()] * len(found))
            self._keys.keys.extend(found)
            self._keys.offsets.extend([place] * len(found))
            self._keys.timestamps.extend([timestamp] * len(found))
            if len(self._keys.keys) >= INDEX_BATCH:
                self._hash_keys()

    def _hash_keys(self) -> None:
        keys = self._keys
        if keys.keys:
            hashes = key_hashes(keys.topics, keys.keys)
            self._rows += b"".join(map(FOUND_KEY.pack, hashes, keys.offsets, keys.timestamps))
            self._keys = FoundKeys([], [], [], [])

    def _write(self) -> None:
        path = self._plan.root / STAGING / PARTS / f"{self._portion.start}"
        data = bytearray()
        for name, rows in self._entries.items():
            self._portion.queues[name] = Span(path, len(data), len(rows) // FOUND_ENTRY.size)
            data += rows
        if self._rows:
            self._portion.keys = Span(path, len(data), len(self._rows) // FOUND_KEY.size)
            data += self._rows
        if data:
            file = self._fs.create(path, len(data))
            file.write(0, memoryview(data))
            file.close()


# --------------------------------------------------------------------------------------------------- then: write queues


class QueueWork(NamedTuple):
    """A queue, and where its entries were found, in the order of the log."""

    name: QueueName
    spans: tuple[Span, ...]


def make_queues(plan: Plan, fs: Files, works: Sequence[QueueWork]) -> int:
    """Write some queues, to the disk; how many entries they have."""
    queues, log = _NewQueues(fs, plan.root, plan.queue_file_size), plan.log(fs)
    try:
        return sum(_make_queue(queues, log, fs, work) for work in works)
    finally:
        queues.close()


def _make_queue(queues: _NewQueues, log: Pieces, fs: Files, work: QueueWork) -> int:
    queue = queues.create(*work.name)
    rows = (row for span in work.spans for row in FOUND_ENTRY.iter_unpack(_read(span, FOUND_ENTRY.size)))
    for queue_offset, place, size, code, timestamp, is_own in rows:
        if is_own and queue_offset == 0 and queue.max_offset > 0:
            queue.destroy()  # the topic was removed here and made anew
            queue = queues.create(*work.name)
        if is_own and queue.extended is not None and place + size > queue.max_physical_offset:
            code = queue.extended.put(code, timestamp, b"")
        queue.put(queue_offset, place, size, code)
    queue.flush()
    _keep_times(queue, log, fs)
    return queue.max_offset - queue.min_offset


def _keep_times(queue: ConsumeQueue, log: Pieces, fs: Files) -> None:
    """Searches by time choose a file by when it was last written: with its last message."""
    entries_a_file = queue.files.file_size // ENTRY_SIZE
    for number, file in enumerate(queue.files.files):
        behind = queue.files.start // ENTRY_SIZE + (number + 1) * entries_a_file
        entry = queue.entry(min(behind, queue.max_offset) - 1)
        head = log.read(entry[0], HEAD_SIZE) if entry is not None else b""
        if len(head) == HEAD_SIZE:
            fs.set_modified_ms(file.path, store_timestamp_of(head))


class _NewQueues(ConsumeQueues):
    """Queues in the making, with the extensions of the old ones."""

    def __init__(self, fs: Files, root: Path, file_size: int) -> None:
        super().__init__(fs, root / STAGING, file_size)
        self._kept = root / "consumequeue_ext"

    def extension(self, topic: str, queue_id: int) -> ExtendedQueue | None:
        directory = self._kept / topic / str(queue_id)
        size = Pieces(self._fs, [directory], ignore).file_size
        if not size:
            return None
        files = NumberedFiles(self._fs, directory, size)
        try:
            files.load(writable=False)
        except StoreError:  # a damaged extension is as good as none
            files.close()
            return None
        return _KeptExtension(files)


class _KeptExtension(ExtendedQueue):
    """The existing extension units, which new entries point to as old ones did. They cannot be rebuilt: the log does
    not say which filters matched a message. Messages are passed in the order of the units; one without a unit keeps its
    code.
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

    def recover(self, last_address: int | None, *, clean: bool, sync: bool = True) -> None:
        """Nothing is written, so there is nothing to go on behind."""

    def destroy(self) -> None:
        """The queue begins anew; the units stay."""
        self.files.close()


# ------------------------------------------------------------------------------------------- and write the key index


class IndexWork(NamedTuple):
    """An index file: its name, the keys that are entered, and the last one of the file before."""

    name: str
    spans: tuple[Span, ...]
    before: Span | None


def index_works(spans: Iterable[Span], shape: IndexShape, names: Callable[[], str]) -> list[IndexWork]:
    """Cut all keys, in the order of the log, into files of this shape."""
    room = shape.entries - 1
    works: list[IndexWork] = []
    held: list[Span] = []
    free, before = room, None
    for whole in spans:
        span = whole
        while span.rows:
            taken = min(span.rows, free)
            held.append(Span(span.path, span.start, taken))
            span = Span(span.path, span.start + taken * FOUND_KEY.size, span.rows - taken)
            free -= taken
            if not free:
                works.append(IndexWork(names(), tuple(held), before))
                before = Span(span.path, span.start - FOUND_KEY.size, 1)
                held, free = [], room
    return [*works, IndexWork(names(), tuple(held), before)] if held else works


def make_index_file(plan: Plan, fs: Files, work: IndexWork) -> int:
    """Write one index file, to the disk; how many keys it has."""
    shape = plan.index_shape
    assert shape is not None, "without a shape there is no work"
    file = IndexFile(fs.create(plan.root / STAGING / "index" / work.name, shape.file_size), shape)
    try:
        if work.before is not None:
            _, place, timestamp = FOUND_KEY.unpack(_read(work.before, FOUND_KEY.size))
            file.begin_at(timestamp, place)
        for span in work.spans:
            found = list(FOUND_KEY.iter_unpack(_read(span, FOUND_KEY.size)))
            for start in range(0, len(found), INDEX_BATCH):
                hashes, places, timestamps = zip(*found[start : start + INDEX_BATCH], strict=True)
                file.add(hashes, places, timestamps)
        file.sync()
        return file.count - 1
    finally:
        file.file.close()


def _read(span: Span, size: int) -> bytes:
    data = read_at(span.path, span.start, span.rows * size)
    if len(data) < span.rows * size:
        raise StoreError(f"{span.path}: is not there; every process must see the directory under this name")
    return data


def queue_works(portions: Iterable[Portion], left_out: Callable[[str], bool]) -> list[QueueWork]:
    """All queues but those of topics that are left out."""
    spans: dict[QueueName, list[Span]] = {}
    for portion in portions:
        for name, span in portion.queues.items():
            spans.setdefault(name, []).append(span)
    return [QueueWork(name, tuple(found)) for name, found in spans.items() if not left_out(name[0])]


def bundled(works: Sequence[QueueWork], rows_a_bundle: int) -> list[list[QueueWork]]:
    """Queues put together into pieces of about so many entries."""
    bundles: list[list[QueueWork]] = []
    rows = rows_a_bundle
    for work in works:
        if rows >= rows_a_bundle:
            bundles.append([])
            rows = 0
        bundles[-1].append(work)
        rows += sum(span.rows for span in work.spans)
    return bundles


def ignore(path: Path, position: int, text: str) -> None:
    """Counts usable entries only."""
