"""Damaged bytes among message units: finds the whole units around them, and makes rows of them.

Brokers send the bytes that their queues point to without a check, so damaged units reach the reader. Pure; knows no
brokers, files or options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from orbitmq.errors import UnitError
from orbitmq.message.unit import MAGIC
from orbitmq.spark.units import SIZE_AND_MAGIC, Positions, Units, unit_run

CORRUPT = "corrupt"  # the column with the reason why a row is no message; null in all other rows
MAGIC_AT = 4
MAGIC_START = (MAGIC & 0xFFFFFFFF).to_bytes(4, "big")[:3]  # that of long topics differs in the last byte


@dataclass(frozen=True)
class Broken:
    """Bytes that are not a whole unit, and the reason."""

    stored: bytes
    text: str


def sound_units(region: bytes, belongs: Callable[[Units], bool]) -> Iterator[Units | Broken]:
    """The runs of whole units in a region, and the damaged bytes between them, in order.

    After damaged bytes a unit is accepted only if it `belongs`: the body of a damaged one may hold a copy of another.
    """
    rest = memoryview(region)
    while len(rest):
        positions, end = unit_run(rest, len(rest))
        if len(positions):
            yield from _sound(rest, positions)
        if end == len(rest):
            return
        found = _next_unit(rest, end + 1, belongs)
        yield Broken(bytes(rest[end:found]), "no whole message is here")
        rest = rest[found:]


def _sound(region: memoryview, positions: Positions) -> Iterator[Units | Broken]:
    try:
        units = Units(region, positions)
    except UnitError as error:
        if len(positions) == 1:
            start = int(positions[0])
            size = SIZE_AND_MAGIC.unpack_from(region, start)[0]
            yield Broken(bytes(region[start : start + size]), str(error))
            return
        middle = len(positions) // 2
        yield from _sound(region, positions[:middle])
        yield from _sound(region, positions[middle:])
        return
    yield units


def _next_unit(region: memoryview, start: int, belongs: Callable[[Units], bool]) -> int:
    """The start of the next unit that belongs, or the end of the region."""
    data = region.tobytes()
    at = start + MAGIC_AT
    while (at := data.find(MAGIC_START, at)) >= 0:
        place = at - MAGIC_AT
        positions, _ = unit_run(region[place:], 1)
        if len(positions) and _belongs(region[place:], belongs):
            return place
        at += 1
    return len(region)


def _belongs(region: memoryview, belongs: Callable[[Units], bool]) -> bool:
    try:
        return belongs(Units(region, np.zeros(1, np.int64)))
    except UnitError:
        return False


def corrupt_batch(schema: pa.Schema, known: Mapping[str, object]) -> pa.RecordBatch:
    """One row for damaged bytes, with the `known` columns. The others are null."""
    values = [pa.array([known.get(field.name)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(values, schema=schema)
