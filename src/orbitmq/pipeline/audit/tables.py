"""Writes tables in full as Parquet, and returns the first rows for the report.

Tables with a row for each queue or group are made on the driver. Tables that grow with the messages are written by
Spark, and the driver never holds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f

from orbitmq.lake.storage import StorageLocation
from orbitmq.pipeline.audit.results import Field, Row, Table

TYPES = {"text": pa.string(), "percent": pa.float64(), "flag": pa.bool_()}  # the others are whole numbers
ROWS = "rows"
NOTHING: Mapping[str, Column] = {}


@dataclass(frozen=True)
class Tables:
    """Writes tables below `place`. The report shows `rows_max` rows of each."""

    place: StorageLocation
    rows_max: int

    def small(self, name: str, title: str, fields: Sequence[Field], rows: Sequence[Row]) -> Table:
        """A table on the driver, in the order of the report."""
        self._clear(name)
        schema = pa.schema([(field.name, TYPES.get(field.kind, pa.int64())) for field in fields])
        with self.place.open(f"{name}/part-0.parquet") as sink:
            pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema), sink)
        return Table(name, title, fields, list(rows[: self.rows_max]), len(rows))

    def large(
        self,
        name: str,
        title: str,
        fields: Sequence[Field],
        frame: DataFrame,
        order: Sequence[Column],
        sums: Mapping[str, Column] = NOTHING,
    ) -> tuple[Table, dict[str, int]]:
        """A table that Spark writes. The report uses this order. `sums` are computed over all rows on the way."""
        self._clear(name)
        seen, uri = Observation(), self.place.uri(name)
        measures = [f.sum(column).alias(key) for key, column in sums.items()]
        wanted = frame.select(*(field.name for field in fields))
        wanted.observe(seen, f.count("*").alias(ROWS), *measures).write.mode("overwrite").parquet(uri)
        told = {key: int(value or 0) for key, value in seen.get.items()}
        total = told.pop(ROWS)
        rows: list[Row] = []
        if total:
            first = frame.sparkSession.read.parquet(uri).orderBy(*order).limit(self.rows_max)
            rows = [row.asDict() for row in first.collect()]
        return Table(name, title, fields, rows, total), told

    def _clear(self, name: str) -> None:
        """Remove the files of an earlier audit."""
        own = StorageLocation(self.place.uri(name))
        for found in list(own.files()):
            own.remove(found.path)
