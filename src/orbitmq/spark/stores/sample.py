"""The newest messages of stores, for the schema of their bodies. Runs on the driver where `load` is called."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from orbitmq.spark.sample import MESSAGES_MAX, SIZE_MAX
from orbitmq.spark.stores.batches import LogBatches, StoreSettings
from orbitmq.spark.stores.columns import BODY
from orbitmq.spark.stores.options import ScanOptions
from orbitmq.spark.stores.splits import LogSplit, batch_splits, queue_topics


def newest_bodies(options: ScanOptions) -> list[bytes]:
    """The last MESSAGES_MAX bodies of the selected topics within the last SIZE_MAX bytes of each log."""
    settings = StoreSettings(
        schema=pa.schema([(BODY, pa.binary())]), topics=options.topic_names, queue_topics=queue_topics(options),
        resolve=options.resolve_system_topics, verify_crc=options.verify_crc, decompress=True, strict=False,
        on_corrupt="skip",
    )  # fmt: skip
    last: dict[str, LogSplit] = {}
    for split in batch_splits(options):
        assert isinstance(split, LogSplit), "other scans read no bodies"
        last[split.broker_name] = split
    found: list[bytes] = []
    for split in last.values():
        start = split.end - SIZE_MAX
        end_of_log = replace(split, start=start, is_aligned=False) if start > split.start else split
        bodies = [body for batch in LogBatches(end_of_log, settings).read() for body in batch.column(BODY).to_pylist()]
        found += bodies[-MESSAGES_MAX // len(last) :]
    return found
