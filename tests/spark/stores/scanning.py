"""Reads store directories through the data source as Spark does, without Spark: planning, then every task in turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from orbitmq.spark.stores.log import LogWalk
from orbitmq.spark.stores.source import StoreSource
from orbitmq.store.reader import StoreDirectory

Row = dict[str, Any]


def batches(path: Path | str, **options: object) -> Iterator[pa.RecordBatch]:
    source = StoreSource({"path": str(path), **{name: str(value) for name, value in options.items()}})
    reader = source.reader(schema=source.schema())
    for partition in reader.partitions():
        for batch in reader.read(partition):
            batch.validate(full=True)
            yield batch


def rows(path: Path | str, **options: object) -> list[Row]:
    return [row for batch in batches(path, **options) for row in batch.to_pylist()]


def places(path: Path, **options: object) -> list[int]:
    """Physical offsets of the messages, in the order in which they come."""
    return [row["physOffset"] for row in rows(path, columns="physOffset", **options)]


def everything(directory: Path) -> list[Any]:
    """What a walk over the whole log finds."""
    log = StoreDirectory(directory).log()
    return list(LogWalk(log, log.start, log.end))
