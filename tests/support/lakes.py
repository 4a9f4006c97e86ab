"""Archived messages to write into lakes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.table import Table

from orbitmq.lake.delta import DeltaLake
from orbitmq.lake.iceberg import IcebergLake
from orbitmq.lake.lakes import Lake
from orbitmq.lake.storage import StorageLocation

DAY_MS = 86_400_000
FIRST_DAY = "2023-11-14"
FIRST_MS = 1_699_963_200_000  # noon of that day, UTC

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("msgId", pa.string()),
        ("body", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("storeTimestamp", pa.timestamp("us", tz="UTC")),
    ]
)


def rows(
    topic: str,
    offsets: Iterable[int],
    queue: int = 0,
    broker: str = "broker-a",
    stored_ms: int = FIRST_MS,
    size: int = 10,
) -> list[dict[str, object]]:
    return [
        {
            "topic": topic,
            "brokerName": broker,
            "queueId": queue,
            "queueOffset": offset,
            "msgId": f"{topic}-{broker}-{queue}-{offset}",
            "body": (b"%d " % offset) * size,
            "properties": [("KEYS", str(offset))],
            "storeTimestamp": stored_ms * 1000,
        }
        for offset in offsets
    ]


def batch(*parts: list[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row for part in parts for row in part], SCHEMA)


def read_messages(place: StorageLocation, path: str) -> pa.Table:
    """A whole file of the lake."""
    with place.read(path) as source:
        return pq.ParquetFile(source).read()


def iceberg_table(lake: Lake) -> Table:
    assert isinstance(lake, IcebergLake)
    table = lake._table()
    assert table is not None
    return table


def current_version(lake: Lake) -> int:
    """What `as_engines_read` finds again later."""
    if isinstance(lake, DeltaLake):
        return DeltaTable(lake.place.root).version()
    snapshot = iceberg_table(lake).current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def as_engines_read(lake: Lake, version: int | None = None) -> pa.Table:
    """All rows of the current or another version, as the library of the table's format reads them."""
    if isinstance(lake, DeltaLake):
        return DeltaTable(lake.place.root, version=version, storage_options=lake.place.s3.delta).to_pyarrow_table()
    return iceberg_table(lake).scan(snapshot_id=version).to_arrow()


def rewritten(lake: Lake) -> None:
    """Another engine puts the files of the table together, and removes the old ones."""
    if isinstance(lake, DeltaLake):
        table = DeltaTable(lake.place.root)
        table.optimize.compact()
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    else:
        held = iceberg_table(lake)
        held.overwrite(held.scan().to_arrow())
        held.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
