"""Holds the key index against the log: each file by itself, and its entries, in their order, against the messages'."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbitmq.store.files import Files, MappedFile
from orbitmq.store.index.file import HEADER, NUMBER, IndexFile
from orbitmq.store.index.key_scan import key_hashes
from orbitmq.store.index.shape import shape_of
from orbitmq.store.tools.findings import Report, counted

BATCH = 256

Row = tuple[int, int, Path, int]  # hash, physical offset, file, position in it


class IndexCheck:
    """`meet` must be called with every message that has keys, in the order of the log, then `conclude` once."""

    def __init__(self, fs: Files, directory: Path, log_start: int, report: Report) -> None:
        self.directory = directory
        self.report = report
        self._fs = fs
        self._log_start = log_start
        self._names = [name for name in fs.names(directory) if name.isdecimal()]
        self._rows = self._read_rows()
        self._row = next(self._rows, None)
        self._has_begun = False
        self._waiting: list[tuple[int, int]] = []  # place of a message, how many keys it has
        self._topics: list[bytes] = []
        self._keys: list[bytes] = []
        self._lacks: dict[str, tuple[int, int]] = {}  # kind -> how many messages, place of the first
        self._wrong = 0
        self._first_wrong: Row | None = None

    # -------------------------------------------------------------------------------------------- the files themselves

    def _read_rows(self) -> Iterator[Row]:
        for name in self._names:
            path = self.directory / name
            size = self._fs.size(path)
            if size <= 0 and self.report.is_live:  # about to be made, or just removed
                continue
            if size < HEADER.size:
                self.report.damage(path, 0, f"has {size} bytes, less than the head of an index file")
                continue
            mapped = self._fs.open(path, size, writable=False)
            try:
                yield from self._rows_of(mapped, path)
            finally:
                mapped.close()

    def _rows_of(self, mapped: MappedFile, path: Path) -> Iterator[Row]:
        count = HEADER.unpack(mapped.read(0, HEADER.size))[5]
        if count <= 1:
            return
        shape = shape_of(mapped.view, path)
        if shape is None:
            self.report.damage(path, 36, f"says that it has {counted(count - 1, 'entry', 'entries')}, which it has not")
            return
        file = IndexFile(mapped, shape)
        self.report.index_files += 1
        self.report.index_entries += file.count - 1
        heads: array[int] = array("q", bytes(8 * shape.slots))
        last = 0
        for number in range(1, file.count):
            key_hash, offset, _, previous = file.entry(number)
            position = shape.entry_position(number)
            if key_hash < 0 or offset < last or previous != heads[key_hash % shape.slots]:
                self.report.damage(path, position, f"entry {number} does not follow from those before it")
                return
            heads[key_hash % shape.slots] = number
            last = offset
            yield key_hash, offset, path, position
        if not self.report.is_live:
            self._check_head(file, path, heads)

    def _check_head(self, file: IndexFile, path: Path, heads: array[int]) -> None:
        """Slots and head must follow from the entries."""
        slots = NUMBER.iter_unpack(file.file.view[HEADER.size : file.shape.entries_start])
        for number, ((slot,), head) in enumerate(zip(slots, heads, strict=True)):
            if slot != head:
                position = HEADER.size + NUMBER.size * number
                self.report.damage(path, position, f"slot {number} does not lead to its newest entry")
                return
        if (file.begin_offset, file.end_offset) != (file.entry(1)[1], file.entry(file.count - 1)[1]):
            self.report.damage(path, 16, "the head names other messages than the first and the last entry")

    # ----------------------------------------------------------------------------------------------- message by message

    def meet(self, place: int, topic: bytes, keys: Sequence[bytes]) -> None:
        """A message of the log that should have entries for these keys. Hashes are made for many at once."""
        self._waiting.append((place, len(keys)))
        self._topics.extend([topic] * len(keys))
        self._keys.extend(keys)
        if len(self._keys) >= BATCH:
            self._compare()

    def _compare(self) -> None:
        hashes, done = key_hashes(self._topics, self._keys), 0
        for place, count in self._waiting:
            self._compare_one(place, hashes[done : done + count])
            done += count
        self._waiting, self._topics, self._keys = [], [], []

    def _compare_one(self, place: int, hashes: Sequence[int]) -> None:
        while self._row is not None and self._row[1] < place:
            self._stray()
        found = []
        while self._row is not None and self._row[1] == place:
            found.append(self._row[0])
            self._row = next(self._rows, None)
        if found and set(found) != set(hashes):
            self._lack("partly", place)
        elif not found:
            self._lack("behind" if self._row is None else "between" if self._has_begun else "before", place)
        self._has_begun = self._has_begun or bool(found)

    def _stray(self) -> None:
        """An entry that points to no message with keys; entries of expired messages may stay in the index."""
        assert self._row is not None
        if self._row[1] >= self._log_start:
            self._first_wrong = self._first_wrong or self._row
            self._wrong += 1
        self._has_begun = True
        self._row = next(self._rows, None)

    def _lack(self, kind: str, place: int) -> None:
        count, first = self._lacks.get(kind, (0, place))
        self._lacks[kind] = count + 1, first

    def conclude(self, log_end: int) -> None:
        """Report missing and superfluous entries."""
        self._compare()
        if not self._names:
            if self._lacks:
                count = sum(count for count, _ in self._lacks.values())
                text = (
                    f"there is no index, so {counted(count, 'message')} cannot be found by key; it may be switched off"
                )
                self.report.remark(self.directory, 0, text)
            return
        for kind, (count, place) in self._lacks.items():
            tell = self.report.remark if kind == "behind" and self.report.may_be_unfinished else self.report.damage
            what = {
                "partly": "have other entries than their keys ask for",
                "before": "have no entry: the index begins behind them",
                "behind": "have no entry: the index ends before them",
                "between": "have no entry",
            }[kind]
            tell(self.directory, 0, f"{counted(count, 'message')} with keys, the first at {place} of the log: {what}")
        while self._row is not None and not self.report.is_live:
            self._stray()
        if self._first_wrong is not None:
            _, place, path, position = self._first_wrong
            why = (
                f"the log ends before, at {log_end}" if place >= log_end else "there is no whole message with that key"
            )
            text = f"{counted(self._wrong, 'entry', 'entries')}, the first for {place} of the log: {why}"
            self.report.damage(path, position, text)
