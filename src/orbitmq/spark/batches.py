"""Reads one range of a queue as Arrow batches: pulls, decodes, checks, filters. Runs in a task, knows no options."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from orbitmq.errors import SourceError, UnitError
from orbitmq.message.namespace import NO_NAMESPACE, Namespace
from orbitmq.spark.columns import ColumnSource, record_batch
from orbitmq.spark.damage import CORRUPT, corrupt_batch, sound_units
from orbitmq.spark.fetch import OffsetRange, data_loss
from orbitmq.spark.forms import BODIES, FORMS, NATIVE
from orbitmq.spark.pulls import FetchSettings, RangeReader
from orbitmq.spark.row_filters import RowFilter
from orbitmq.spark.units import Units, unit_positions

LOG = logging.getLogger(__name__)

DECODE_SIZE = 4 << 20  # bytes decoded at once: enough messages to spread the cost of a column operation over


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


class RangeBatches:
    """The rows of one range. It counts the messages, so that no loss goes unnoticed."""

    def __init__(self, wanted: OffsetRange, pulls: FetchSettings, settings: BatchSettings) -> None:
        self._range = wanted
        self._pulls = pulls
        self._settings = settings
        self._next_offset = wanted.start
        self._seen = 0
        self._is_blind = False  # something damaged came after the last whole unit; its offsets are not known

    def read(self, addresses: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Pull from the broker at `addresses`. SourceError when the range cannot be read completely."""
        yield from self.decode(RangeReader(self._range, addresses, self._pulls).bodies())

    def decode(self, bodies: Iterable[list[bytes]]) -> Iterator[pa.RecordBatch]:
        """The batches of runs of units, which are in queue order."""
        try:
            for region in regions(bodies):
                yield from self._batches(region)
        except UnitError as error:
            raise SourceError("ORBITMQ_CORRUPT_RECORD", f"{self._place()}: {error}") from error
        self._check_end()

    def _batches(self, region: bytes) -> Iterator[pa.RecordBatch]:
        if self._settings.on_corrupt == "fail":
            yield from self._wanted(Units(region, unit_positions(region)))
            return
        for found in sound_units(region, self._belongs):
            if isinstance(found, Units):
                yield from self._wanted(found)
            else:
                self._is_blind = True
                yield from self._broken({"queueOffset": self._next_offset, "body": found.stored}, found.text)

    def _belongs(self, units: Units) -> bool:
        """Whether the first of the units can be the next one of the range."""
        is_of_queue = int(units.field("queue_id")[0]) == self._range.queue.queue_id
        return is_of_queue and self._next_offset < int(units.field("queue_offset")[0]) < self._range.end

    def _place(self) -> str:
        return f"{self._range}, at or after offset {self._next_offset}"

    def _wanted(self, units: Units) -> Iterator[pa.RecordBatch]:
        self._count(units)
        for each in self._settings.filters:
            wanted = each.wanted(units)
            if not wanted.any():
                return
            units = units[wanted]
        yield from self._decoded(units)

    def _decoded(self, units: Units) -> Iterator[pa.RecordBatch]:
        """One batch, or several around messages that cannot be decoded and may be skipped."""
        settings = self._settings
        try:
            if settings.verify_crc and not BODIES.isdisjoint(settings.schema.names):
                units.check_bodies()
            rows = ColumnSource(units, self._range.queue.broker_name, settings.decompress, settings.names)
            batch = record_batch(rows, settings.schema, FORMS[settings.form])
        except UnitError as error:
            if settings.on_corrupt == "fail":
                raise
            if len(units) == 1:
                known = {"queueOffset": int(units.field("queue_offset")[0]), "body": units.stored(0)}
                known["physOffset"] = int(units.field("physical_offset")[0])
                yield from self._broken(known, str(error))
                return
            first_half = np.arange(len(units)) < len(units) // 2
            yield from self._decoded(units[first_half])
            yield from self._decoded(units[~first_half])
            return
        yield batch

    def _broken(self, known: dict[str, object], text: str) -> Iterator[pa.RecordBatch]:
        """Log damaged bytes, and return a row for them when onCorruptRecord is raw."""
        LOG.warning("event=corrupt_record range=%s offset=%s error=%s", self._range, known["queueOffset"], text)
        if self._settings.on_corrupt == "raw":
            queue = self._range.queue
            place = {"topic": self._settings.names.unwrap(queue.topic), "brokerName": queue.broker_name}
            known |= {**place, "queueId": queue.queue_id, CORRUPT: f"{self._range}: {text}"}
            yield corrupt_batch(self._settings.schema, known)

    def _count(self, units: Units) -> None:
        """Check that every offset of an unfiltered range comes once and in order, except for damaged ones."""
        offsets = units.field("queue_offset")
        if self._is_blind:
            self._see(int(offsets[0]))
        steps = np.diff(offsets, prepend=self._next_offset - 1)
        if self._strict and (steps != 1).any():
            place = int(np.argmax(steps != 1))
            before = offsets[place] - steps[place]
            raise data_loss(f"{self._range}: offset {before} is followed by {offsets[place]}")
        self._seen += len(offsets)
        self._next_offset = int(offsets[-1]) + 1

    def _see(self, offset: int) -> None:
        """Count the damaged messages before `offset`, whose offsets were unknown, as received."""
        self._is_blind = False
        self._seen += max(offset - self._next_offset, 0)
        self._next_offset = max(offset, self._next_offset)

    def _check_end(self) -> None:
        if self._is_blind:
            self._see(self._range.end)
        lost = len(self._range) - self._seen
        if self._pulls.filtered or not lost:
            return
        text = f"{self._range}: {lost} of the {len(self._range)} messages from offset {self._range.start} on are gone"
        if self._strict:
            raise data_loss(text)
        LOG.warning("event=data_loss text=%s", text)

    @property
    def _strict(self) -> bool:
        return self._pulls.strict and not self._pulls.filtered


def regions(bodies: Iterable[list[bytes]]) -> Iterator[bytes]:
    """The bodies joined into regions of at least DECODE_SIZE, except the last."""
    held: list[bytes] = []
    size = 0
    for run in bodies:
        for body in run:
            held.append(body)
            size += len(body)
            if size >= DECODE_SIZE:
                yield b"".join(held)
                held.clear()
                size = 0
    if held:
        yield b"".join(held)
