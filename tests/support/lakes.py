"""Archived messages to write into lakes."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from orbitmq.pipeline.lake.storage import StorageLocation

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
