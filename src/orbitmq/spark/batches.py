"""One range of a queue as Arrow batches: pulls, decodes, checks and filters. Runs in a task; must not know options."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.errors import SourceError, UnitError
from orbitmq.message.properties import TAGS
from orbitmq.spark.columns import Rows, record_batch
from orbitmq.spark.fetch import QueueRange, data_loss
from orbitmq.spark.pulls import PullSettings, RangeReader
from orbitmq.spark.units import Units, unit_positions

LOG = logging.getLogger(__name__)

DECODE_SIZE = 4 << 20  # bytes decoded at once: enough messages to spread the cost of a column operation over


@dataclass(frozen=True)
class BatchSettings:
    """How the units of a range become rows. `tags` are the exact tags wanted, empty for all messages."""

    schema: pa.Schema
    tags: frozenset[str]
    verify_crc: bool
    decompress: bool


class RangeBatches:
    """The rows of one range. It keeps count of what came, so that nothing is lost without a word."""

    def __init__(self, wanted: QueueRange, pulls: PullSettings, settings: BatchSettings) -> None:
        self._range = wanted
        self._pulls = pulls
        self._settings = settings
        self._next_offset = wanted.start
        self._seen = 0

    def read(self, addresses: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Pull from the broker at `addresses`. SourceError when the range cannot be read as promised."""
        yield from self.decode(RangeReader(self._range, addresses, self._pulls).bodies())

    def decode(self, bodies: Iterable[list[bytes]]) -> Iterator[pa.RecordBatch]:
        """The batches of runs of units that come in the order of the queue."""
        for region in regions(bodies):
            try:
                batch = self._batch(region)
            except UnitError as error:
                raise SourceError(
                    "ORBITMQ_CORRUPT_RECORD", f"{self._range}, at or behind offset {self._next_offset}: {error}"
                ) from error
            if batch is not None:
                yield batch
        self._check_end()

    def _batch(self, region: bytes) -> pa.RecordBatch | None:
        settings = self._settings
        units = Units(region, unit_positions(region))
        self._count(units)
        if settings.tags:
            wanted = pc.is_in(units.properties.column(TAGS), pa.array(sorted(settings.tags))).to_numpy(False)
            if not wanted.any():
                return None
            units = Units(region, units.positions[wanted])
        if settings.verify_crc and "body" in settings.schema.names:
            units.check_bodies()
        return record_batch(Rows(units, self._range.queue.broker_name, settings.decompress), settings.schema)

    def _count(self, units: Units) -> None:
        """Every offset of an unfiltered range must come, each once and in order."""
        offsets = units.field("queue_offset")
        steps = np.diff(offsets, prepend=self._next_offset - 1)
        if self._strict and (steps != 1).any():
            place = int(np.argmax(steps != 1))
            before = offsets[place] - steps[place]
            raise data_loss(f"{self._range}: offset {before} is followed by {offsets[place]}")
        self._seen += len(offsets)
        self._next_offset = int(offsets[-1]) + 1

    def _check_end(self) -> None:
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
    """The bodies joined into pieces worth decoding at once."""
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
