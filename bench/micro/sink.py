"""What the Spark sink costs before the network: rows a second of processor time, from Arrow batches to requests.

    python bench/micro/sink.py [--rows N] [--body BYTES] [--rounds N]

Batches are those Spark gives a task (10,000 rows, with keys, tags and a map of properties); the requests are those of
effectively-once, each message with a unique id and an idempotency key. The peer is a copy of the bodies.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from orbitmq.message.ids import UniqueIds
from orbitmq.spark.sink_columns import SinkColumns
from orbitmq.spark.sink_keys import RowKeys, TaskIdentity
from orbitmq.spark.sink_options import WriteOptions, write_options
from orbitmq.spark.sink_requests import ANY_QUEUE, EncodedRows, SinkRows

OPTIONS = {"nameServer": "nowhere:1", "topic": "bench", "deliveryGuarantee": "effectively-once"}
QUEUES = 8


def frame(rows: int, body: int) -> pa.RecordBatch:
    properties = [[("city", f"Köln {n % 100}"), ("n", str(n))] for n in range(rows)]
    return pa.record_batch(
        {
            "body": pa.array([os.urandom(body) for _ in range(rows)], pa.binary()),
            "keys": pa.array([f"order-{n}" for n in range(rows)]),
            "tags": pa.array([f"Tag{n % 3}" for n in range(rows)]),
            "properties": pa.array(properties, pa.map_(pa.string(), pa.string())),
        }
    )


def encode(batch: pa.RecordBatch, columns: SinkColumns, options: WriteOptions, ids: UniqueIds, spread: bool) -> int:
    """Bytes of all requests of a batch, for any queue or spread over queues as by key."""
    now_ms = int(time.time() * 1000)
    keys = RowKeys(columns, TaskIdentity("bench", "1", 0)).of(batch)
    made = EncodedRows(SinkRows(batch, keys), columns, options, "bench", lambda: ids.create(now_ms))
    rows = batch.num_rows
    queues = np.arange(rows, dtype=np.int64) * 7 % QUEUES if spread else np.full(rows, ANY_QUEUE)
    assert made.fits().all()
    return sum(len(request.body) for request in made.requests(queues))


def rate(work: Callable[[], object], rows: int, rounds: int) -> float:
    """The best of some rounds, in thousands of rows a second of processor time."""
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return rows / min(times) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    batch, options = frame(given.rows, given.body), write_options(OPTIONS)
    columns = SinkColumns(dict(zip(batch.schema.names, itertools.count())))
    ids = UniqueIds(bytes(4), 1, b"bnch")
    works: dict[str, Callable[[], object]] = {
        "to any queue": lambda: encode(batch, columns, options, ids, spread=False),
        "spread by key": lambda: encode(batch, columns, options, ids, spread=True),
        "copy of bodies": lambda: b"".join(batch.column(0).to_pylist()),
    }
    for name, work in works.items():
        print(f"{name:<15} {rate(work, given.rows, given.rounds):8,.0f} krow/s/core")


if __name__ == "__main__":
    main()
