"""Compares one consume queue with the log: every message has its entry, and every entry its message.

The caller scans the log and passes each message to `meet`. Entries of no message are checked afterwards (`judge_rest`).
Files are read in small blocks, for a broker may have thousands of queues.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from orbitmq.errors import UnitError
from orbitmq.message.unit import Unit, decode_unit
from orbitmq.store.extended_queue import FIRST_ADDRESS, HEAD, Extension, is_address, read_unit
from orbitmq.store.files import Files
from orbitmq.store.multi_dispatch import MultiDispatch
from orbitmq.store.pieces import Pieces, read_at, written_parts
from orbitmq.store.queue import ENTRY, ENTRY_SIZE, FILLER_SIZE, Entry
from orbitmq.store.tools.findings import Report, counted

BLOCK_SIZE = 204 * ENTRY_SIZE  # four KiB; one block of each queue stays in memory
SURVEY_SIZE = ENTRY_SIZE << 12
NO_ENTRY: Entry = (0, 0, 0)

WHAT_MESSAGES_LACK = {
    "unfinished": "no entry yet; the next start makes it",
    "cut": "no entry: they lie behind the damage at which a start ends the log",
    "behind": "no entry: the queue ends before",
    "before": "no entry: the queue begins behind",
    "hole": "no entry where it should be",
    "other": "no entry: where it should be is another message's",
    "hash": "an entry with another tag hash: pulls by tag miss them",
    "extension": "an entry that leads to no unit of theirs in the extension: filters take them as a match",
}


class QueueCheck:
    """`first` and `end` are queue offsets; `place_end` is where the message of the last entry ends, -1 without any."""

    def __init__(self, fs: Files, directory: Path, extended: Path, report: Report) -> None:
        self.directory = directory
        self.end = self.first = 0
        self.place_end = -1
        self._begins_anew_at = -1
        self.is_schedule = False
        self.report = report
        self._pieces = Pieces(fs, [directory], report.damage, is_live=report.is_live)
        self._extended = Pieces(fs, [extended], report.damage, is_live=report.is_live)
        self._matched = 0
        self._lacks: dict[str, tuple[int, int]] = {}  # kind -> how often, first queue offset
        self._block_start, self._block = -1, b""
        if self._pieces.file_size % ENTRY_SIZE == 0:
            self.first = self.end = self._pieces.start // ENTRY_SIZE
            self._survey()
        else:
            report.damage(directory, 0, f"its files have {self._pieces.file_size} bytes, no multiple of {ENTRY_SIZE}")

    # -------------------------------------------------------------------------------------------- the queue by itself

    def _survey(self) -> None:
        """Find the end, and holes before it."""
        file_size = self._pieces.file_size
        for start in self._pieces.starts:
            written = self._written_entries(start) * ENTRY_SIZE
            if written:
                self.end = (start + written) // ENTRY_SIZE
            if written == file_size or self.report.is_live:  # while more is written, a hole is not one any more
                continue
            path = self._pieces.path(start)
            behind = _something_behind(path, written)
            goes_on = start + file_size < self._pieces.end and self.entry((start + file_size) // ENTRY_SIZE)[1] > 0
            if behind >= 0 or goes_on:
                where = f"at {behind}" if behind >= 0 else "in the next file"
                text = f"entry {(start + written) // ENTRY_SIZE} is empty, but more follows {where}"
                self.report.damage(path, written, text)
        if self.first == 0 < self.end:
            self._begins_anew_at = self.entry(0)[0]
        place, size, _ = self.entry(self.end - 1)
        if size not in (0, FILLER_SIZE):
            self.place_end = place + size

    def _written_entries(self, start: int) -> int:
        count = 0
        for position in range(start, start + self._pieces.file_size, SURVEY_SIZE):
            for place, size, _ in ENTRY.iter_unpack(self._pieces.read(position, SURVEY_SIZE)):
                if size <= 0 or place < 0:
                    return count
                count += 1
        return count

    def entry(self, queue_offset: int) -> Entry:
        """NO_ENTRY if there is none."""
        position = queue_offset * ENTRY_SIZE - self._block_start
        if self._block_start < 0 or not 0 <= position < len(self._block):
            if not self.first <= queue_offset:
                return NO_ENTRY
            start = self._pieces.start_of(queue_offset * ENTRY_SIZE)
            in_file = queue_offset * ENTRY_SIZE - start
            self._block_start = start + in_file - in_file % BLOCK_SIZE
            self._block = self._pieces.read(self._block_start, BLOCK_SIZE)
            position = queue_offset * ENTRY_SIZE - self._block_start
        return ENTRY.unpack_from(self._block, position) if position + ENTRY_SIZE <= len(self._block) else NO_ENTRY

    def places(self, start: int, end: int) -> Iterator[int]:
        """Where its messages begin between two places of the log."""
        for queue_offset in range(self._first_from(start), self.end):
            place = self.entry(queue_offset)[0]
            if place >= end:
                return
            yield place

    def _first_from(self, place: int) -> int:
        """The first entry whose message lies at `place` or behind."""
        return bisect_left(range(self.end), place, self.first, self.end, key=self._place)

    def _place(self, queue_offset: int) -> int:
        place, size, _ = self.entry(queue_offset)
        return -1 if size == FILLER_SIZE else place

    # ----------------------------------------------------------------------------------------------- message by message

    def meet(self, unit: Unit, queue_offset: int, code: int, tail: str = "") -> None:
        """A message of the log that should have an entry at `queue_offset`. `tail` is the finding if it has none and
        the queue has no later message.
        """
        place, size, field = self.entry(queue_offset)
        if (place, size) == (unit.physical_offset, unit.size):
            self._matched += 1
            self._check_field(unit, queue_offset, code, field)
        elif unit.physical_offset < self._begins_anew_at:
            return  # the topic was removed and made anew since
        elif queue_offset >= self.end:
            self._lack(tail if tail and self.end > self.first else "behind", queue_offset)
        elif queue_offset < self.first:
            self._lack("before", queue_offset)
        else:
            self._lack("other" if size > 0 else "hole", queue_offset)

    def _check_field(self, unit: Unit, queue_offset: int, code: int, field: int) -> None:
        if is_address(field):
            extension = self._extension(field)
            if extension is None or extension.store_timestamp != unit.store_timestamp:
                self._lack("extension", queue_offset)
                return
            field = extension.code
        # When a delayed message is due depends on the broker's levels; RocketMQ 5 has hashes in the topic of timers.
        if field != code and not self.is_schedule:
            self._lack("hash", queue_offset)

    def _extension(self, address: int) -> Extension | None:
        data = self._extended.read(address - FIRST_ADDRESS, HEAD.size)
        if len(data) < HEAD.size:
            return None
        bitmap_size = max(0, HEAD.unpack(data)[3])
        return read_unit(memoryview(self._extended.read(address - FIRST_ADDRESS, HEAD.size + bitmap_size)), 0)

    def _lack(self, kind: str, queue_offset: int) -> None:
        count, first = self._lacks.get(kind, (0, queue_offset))
        self._lacks[kind] = count + 1, first

    # ------------------------------------------------------------------------------------------------------- afterwards

    def conclude(
        self, log: Pieces, log_end: int, limit: int, multi_dispatch: MultiDispatch, queue: tuple[str, int]
    ) -> None:
        """Report missing entries, and those below `limit` that point to no message of the queue."""
        for kind, (count, first) in self._lacks.items():
            position = max(0, first * ENTRY_SIZE - self._pieces.start_of(first * ENTRY_SIZE))
            is_remark = kind == "cut" or (kind == "unfinished" and self.report.may_be_unfinished)
            tell = self.report.remark if is_remark else self.report.damage
            text = f"{counted(count, 'message')} from queue offset {first} on: {WHAT_MESSAGES_LACK[kind]}"
            tell(self._pieces.path(self._pieces.start_of(first * ENTRY_SIZE)), position, text)
        entries = range(self._first_from(log.start), self._first_from(limit))
        if len(entries) != self._matched:
            self._judge_entries(entries, log, log_end, multi_dispatch, queue)

    def _judge_entries(
        self, entries: range, log: Pieces, log_end: int, multi_dispatch: MultiDispatch, queue: tuple[str, int]
    ) -> None:
        wrong: dict[str, tuple[int, int]] = {}
        for queue_offset in entries:
            place, size, _ = self.entry(queue_offset)
            text = ""
            if size <= 0 or size == FILLER_SIZE:
                continue
            if place + size > log_end:
                text = f"the log ends before their messages, at {log_end}"
            elif not _belongs(log.read(place, size), place, multi_dispatch, (*queue, queue_offset)):
                text = "there is no whole message of this queue and offset"
            if text:
                count, first = wrong.get(text, (0, queue_offset))
                wrong[text] = count + 1, first
        for text, (count, first) in wrong.items():
            file_start = self._pieces.start_of(first * ENTRY_SIZE)
            self.report.damage(
                self._pieces.path(file_start),
                first * ENTRY_SIZE - file_start,
                f"{counted(count, 'entry', 'entries')} from queue offset {first} on: {text}",
            )


def further_entries(unit: Unit, multi_dispatch: MultiDispatch) -> list[tuple[str, int, int]]:
    """The further queues of a message."""
    return multi_dispatch.entries(unit.topic, unit.queue_id, unit.properties.encode())


def _belongs(data: bytes, place: int, multi_dispatch: MultiDispatch, where: tuple[str, int, int]) -> bool:
    try:
        unit = decode_unit(data)
    except UnitError:
        return False
    own = (unit.topic, unit.queue_id, unit.queue_offset)
    return unit.physical_offset == place and (own == where or where in further_entries(unit, multi_dispatch))


def _something_behind(path: Path, position: int) -> int:
    """Position of the first entry after an empty one, -1 if there is none."""
    for start, end in written_parts(path, position):
        for block_start in range(start - start % ENTRY_SIZE, end, SURVEY_SIZE):
            block = read_at(path, block_start, SURVEY_SIZE)
            skipped = max(0, position - block_start)
            zeros = len(block) - len(block[skipped:].lstrip(b"\0"))
            if zeros < len(block):
                return block_start + zeros - zeros % ENTRY_SIZE
    return -1
