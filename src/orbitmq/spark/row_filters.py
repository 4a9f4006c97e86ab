"""Filters that tasks apply to a run of messages before columns are decoded. They are sent to the executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from orbitmq.filter.sql92 import compile_sql92
from orbitmq.spark.units import Units


class RowFilter(Protocol):
    """Selects units of a run."""

    def wanted(self, units: Units) -> NDArray[np.bool_]: ...


@dataclass(frozen=True)
class PropertyIn:
    """The messages whose property has one of these values."""

    name: str
    values: frozenset[str]

    def wanted(self, units: Units) -> NDArray[np.bool_]:
        found = pc.is_in(units.properties.column(self.name), pa.array(sorted(self.values), pa.string()))
        mask: NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
        return mask


@dataclass(frozen=True)
class Sql92:
    """The messages that match an SQL92 expression, by the rules of a broker."""

    text: str

    def wanted(self, units: Units) -> NDArray[np.bool_]:
        matches = compile_sql92(self.text).matches
        row = _Row(units)
        found = np.empty(len(units), np.bool_)
        for row.number in range(len(units)):
            found[row.number] = matches(row)
        return found


class _Row:
    """The properties of one message. Only those that the expression uses become Python values."""

    def __init__(self, units: Units) -> None:
        self.number = 0
        self._properties = units.properties
        self._columns: dict[str, list[Any]] = {}

    def get(self, name: str, /) -> str | None:
        if name not in self._columns:
            self._columns[name] = self._properties.column(name).to_pylist()
        value: str | None = self._columns[name][self.number]
        return value
