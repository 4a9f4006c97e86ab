"""Reads ranges of queues as Arrow batches: pulls, decodes, checks, filters. Runs in a task, knows no options."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from orbitmq.errors import SourceError, UnitError
from orbitmq.message.namespace import NO_NAMESPACE, Namespace
from orbitmq.spark.bodies.reader import BodyReader
from orbitmq.spark.columns import ColumnSource, record_batch
from orbitmq.spark.damage import CORRUPT, corrupt_batch, sound_units
from orbitmq.spark.fetch import Buffer, OffsetRange, Piece, data_loss
from orbitmq.spark.forms import BODIES, FORMS, NATIVE
from orbitmq.spark.pulls import FetchSettings, RangeReader
from orbitmq.spark.row_filters import RowFilter
from orbitmq.spark.units import Units, unit_positions

LOG = logging.getLogger(__name__)

DECODE_SIZE = 4 << 20  # bytes decoded at once: enough messages to spread the cost of a column operation over

Region = list[tuple[OffsetRange, list[Buffer]]]
"""Bodies that are decoded at once, by range."""


@dataclass(frozen=True)
class BatchSettings:
    """How the units of a range become rows. Only units that match all `filters` do."""

    schema: pa.Schema
    filters: tuple[RowFilter, ...]
    verify_crc: bool
    decompress: bool
    on_corrupt: str = "fail"
    form: str = NATIVE
    """One of FORMS, which names the columns of `schema`."""
    names: Namespace = NO_NAMESPACE
    """Namespace of the topics, which rows show without it."""
    bodies: BodyReader | None = None
    """What parses bodies, for the columns `value` and `_rescued`."""


class RangeCount:
    """Counts the messages of one range as they come, so that no loss goes unnoticed. `strict`: a gap is an error."""

    def __init__(self, wanted: OffsetRange, *, strict: bool) -> None:
        self.range = wanted
        self._strict = strict
        self.next_offset = wanted.start
        self._seen = 0
        self._is_blind = False  # something damaged came after the last whole unit; its offsets are not known

    def __str__(self) -> str:
        return f"{self.range}, at or after offset {self.next_offset}"

    def belongs(self, units: Units) -> bool:
        """Whether the first of the units can be the next one of the range."""
        is_of_queue = int(units.field("queue_id")[0]) == self.range.queue.queue_id
        return is_of_queue and self.next_offset < int(units.field("queue_offset")[0]) < self.range.end

    def add(self, offsets: NDArray[np.int64]) -> None:
        """Check that every offset of an unfiltered range comes once and in order, except for damaged ones."""
        if self._is_blind:
            self._see(int(offsets[0]))
        steps = np.diff(offsets, prepend=self.next_offset - 1)
        if self._strict and (steps != 1).any():
            place = int(np.argmax(steps != 1))
            before = offsets[place] - steps[place]
            raise data_loss(f"{self.range}: offset {before} is followed by {offsets[place]}")
        self._seen += len(offsets)
        self.next_offset = int(offsets[-1]) + 1

    def add_damaged(self) -> None:
        """Damaged bytes came, of an unknown number of messages."""
        self._is_blind = True

    def lost(self) -> int:
        """The number of messages that did not come, at the end of the range."""
        if self._is_blind:
            self._see(self.range.end)
        return len(self.range) - self._seen

    def _see(self, offset: int) -> None:
        """Count the damaged messages before `offset`, whose offsets were unknown, as received."""
        self._is_blind = False
        self._seen += max(offset - self.next_offset, 0)
        self.next_offset = max(offset, self.next_offset)


class RangeBatches:
    """The rows of some ranges of one broker, range by range. The messages of short ranges share a batch."""

    def __init__(self, wanted: Sequence[OffsetRange], pulls: FetchSettings, settings: BatchSettings) -> None:
        self._ranges = wanted
        self._pulls = pulls
        self._settings = settings
        strict = pulls.strict and not pulls.filtered
        self._counts = {range_: RangeCount(range_, strict=strict) for range_ in wanted}

    def read(self, addresses: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Pull from the broker at `addresses`. SourceError when a range cannot be read completely."""
        yield from self.decode(RangeReader(self._ranges, addresses, self._pulls).pieces())

    def decode(self, pieces: Iterable[list[Piece]]) -> Iterator[pa.RecordBatch]:
        """The batches of runs of units, range by range and in queue order."""
        for region in regions(pieces):
            yield from self._batches(region)
        for count in self._counts.values():
            self._check_end(count)

    def _batches(self, region: Region) -> Iterator[pa.RecordBatch]:
        """The rows of a region, decoded at once; around damage, range by range."""
        try:
            units, firsts = _units(region)
        except UnitError as error:
            if len(region) == 1:
                ((range_, bodies),) = region
                yield from self._around_damage(self._counts[range_], b"".join(bodies), error)
            else:
                yield from (batch for part in region for batch in self._batches([part]))
            return
        parts = np.split(np.arange(len(units)), firsts[1:])
        offsets = units.field("queue_offset")
        for (range_, _), rows in zip(region, parts, strict=True):
            self._counts[range_].add(offsets[rows])
        try:
            batch = self._decoded(units)
        except UnitError:
            for (range_, _), rows in zip(region, parts, strict=True):
                yield from self._each_decoded(self._counts[range_], units[rows])
            return
        if batch is not None:
            yield batch

    def _around_damage(self, count: RangeCount, data: bytes, error: UnitError) -> Iterator[pa.RecordBatch]:
        """The rows of one range, some of whose units are damaged."""
        if self._settings.on_corrupt == "fail":
            raise _corrupt(count, error)
        for found in sound_units(data, count.belongs):
            if isinstance(found, Units):
                count.add(found.field("queue_offset"))
                yield from self._each_decoded(count, found)
            else:
                count.add_damaged()
                yield from self._broken(count, {"queueOffset": count.next_offset, "body": found.stored}, found.text)

    def _decoded(self, units: Units) -> pa.RecordBatch | None:
        """The rows that match the filters, None without any. UnitError for a message that cannot be decoded."""
        settings = self._settings
        for each in settings.filters:
            wanted = each.wanted(units)
            if not wanted.any():
                return None
            units = units[wanted]
        if settings.verify_crc and not BODIES.isdisjoint(settings.schema.names):
            units.check_bodies()
        rows = ColumnSource(units, self._ranges[0].queue.broker_name, settings.decompress, settings.names)
        return record_batch(rows, settings.schema, FORMS[settings.form], settings.bodies)

    def _each_decoded(self, count: RangeCount, units: Units) -> Iterator[pa.RecordBatch]:
        """One batch, or several around messages that cannot be decoded and may be skipped."""
        try:
            batch = self._decoded(units)
        except UnitError as error:
            if self._settings.on_corrupt == "fail":
                raise _corrupt(count, error) from error
            if len(units) == 1:
                known = {"queueOffset": int(units.field("queue_offset")[0]), "body": units.stored(0)}
                known["physOffset"] = int(units.field("physical_offset")[0])
                yield from self._broken(count, known, str(error))
                return
            for half in np.array_split(np.arange(len(units)), 2):
                yield from self._each_decoded(count, units[half])
            return
        if batch is not None:
            yield batch

    def _broken(self, count: RangeCount, known: dict[str, object], text: str) -> Iterator[pa.RecordBatch]:
        """Log damaged bytes, and return a row for them when onCorruptRecord is raw."""
        LOG.warning("event=corrupt_record range=%s offset=%s error=%s", count.range, known["queueOffset"], text)
        if self._settings.on_corrupt == "raw":
            queue = count.range.queue
            place = {"topic": self._settings.names.unwrap(queue.topic), "brokerName": queue.broker_name}
            known |= {**place, "queueId": queue.queue_id, CORRUPT: f"{count.range}: {text}"}
            yield corrupt_batch(self._settings.schema, known)

    def _check_end(self, count: RangeCount) -> None:
        lost = count.lost()
        if self._pulls.filtered or not lost:
            return
        wanted = count.range
        text = f"{wanted}: {lost} of the {len(wanted)} messages from offset {wanted.start} on are gone"
        if self._pulls.strict:
            raise data_loss(text)
        LOG.warning("event=data_loss text=%s", text)


def _corrupt(count: RangeCount, error: UnitError) -> SourceError:
    return SourceError("ORBITMQ_CORRUPT_RECORD", f"{count}: {error}")


def regions(runs: Iterable[list[Piece]]) -> Iterator[Region]:
    """The pieces gathered into regions of DECODE_SIZE or more, except the last. A region ends earlier where the next
    piece was received into another block, so that it need not be copied; not below half of the size.
    """
    held: Region = []
    size = 0
    for run in runs:
        for range_, body in run:
            if 2 * size >= DECODE_SIZE and _block(body) is not _block(held[-1][1][-1]):
                yield held
                held, size = [], 0
            if not held or held[-1][0] is not range_:
                held.append((range_, []))
            held[-1][1].append(body)
            size += len(body)
            if size >= DECODE_SIZE:
                yield held
                held, size = [], 0
    if held:
        yield held


def _block(body: Buffer) -> object:
    """What a body is a view of, None if it is no view."""
    return body.obj if isinstance(body, memoryview) else None


def _units(region: Region) -> tuple[Units, list[int]]:
    """The units of a region, and the number of the first one of each range. UnitError unless each body has whole units.

    Bodies that lie in one block in their order are decoded there, others are copied into one.
    """
    bodies = [body for _, of_range in region for body in of_range]
    block = _block(bodies[0])
    starts = np.array([_address(body) for body in bodies])
    data: Any
    if block is not None and all(_block(body) is block for body in bodies) and (np.diff(starts) > 0).all():
        data = block
        starts -= _address(block)
    else:
        data = b"".join(bodies)
        starts = np.cumsum([0, *map(len, bodies[:-1])])
    positions = [unit_positions(body) + start for body, start in zip(bodies, starts, strict=True)]
    counts = np.cumsum([0, *map(len, positions)])
    firsts = np.cumsum([0, *(len(of_range) for _, of_range in region[:-1])])
    return Units(data, np.concatenate(positions)), counts[firsts].tolist()


def _address(data: Any) -> int:
    """Where the bytes of a buffer are in memory."""
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0])
