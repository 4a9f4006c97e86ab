"""Engines that read the lake as a table count each message once at every moment: also while files are
compacted, when the replaced ones are still there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from orbitmq.lake.compaction import plan
from orbitmq.lake.delta import DeltaLake
from orbitmq.lake.formats import DELTA, FORMATS, open_lake
from orbitmq.lake.lakes import Lake
from orbitmq.lake.message_files import LakeWriter, merged
from orbitmq.lake.storage import StorageLocation
from orbitmq.runtime.clock import SystemClock
from tests.support.lakes import DAY_MS, FIRST_DAY, FIRST_MS, batch, iceberg_table, rows

Counts = dict[str, int]  # topic -> messages

TOPICS: Counts = {"orders": 9, "%DLQ%a|b": 6}
PANDAS = """
import sys
kind, root = sys.argv[1:]
if kind == "delta":
    from deltalake import DeltaTable
    frame = DeltaTable(root).to_pandas()
else:
    from orbitmq.lake.iceberg import IcebergLake
    from orbitmq.lake.storage import StorageLocation
    frame = IcebergLake(StorageLocation(root))._table().scan().to_pandas()
print(sorted(frame["topic"].value_counts().to_dict().items()))
"""


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Two topics on two days, in three batches."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # it advises another package
    made = open_lake(request.param, StorageLocation(str(tmp_path / "lake")), SystemClock().now_ms)
    for number in range(3):
        writer = LakeWriter(made.place, "archive")
        for topic, count in TOPICS.items():
            share = count // 3
            first, *rest = range(number * share, (number + 1) * share)
            writer.add(batch(rows(topic, [first]), rows(topic, rest, stored_ms=FIRST_MS + DAY_MS)))
        made.commit("query", number, writer.finish())
    return made


def dataset(lake: Lake) -> pa.dataset.Dataset | pa.Table:
    if isinstance(lake, DeltaLake):
        return DeltaTable(lake.place.root).to_pyarrow_dataset()
    return iceberg_table(lake).scan().to_arrow()


def by_pyarrow(lake: Lake) -> Counts:
    found = dataset(lake)
    table = found if isinstance(found, pa.Table) else found.to_table()
    return {row["values"]: row["counts"] for row in pc.value_counts(table["topic"]).to_pylist()}


def by_duckdb(lake: Lake) -> Counts:
    with duckdb.connect() as connection:
        connection.register("lake", dataset(lake))
        return dict(connection.sql("SELECT topic, count(*) FROM lake GROUP BY topic").fetchall())


def scanned(lake: Lake) -> pl.LazyFrame:
    return pl.scan_delta(lake.place.root) if isinstance(lake, DeltaLake) else pl.scan_iceberg(iceberg_table(lake))


def by_polars(lake: Lake) -> Counts:
    return dict(scanned(lake).group_by("topic").len().collect().iter_rows())


def by_pandas(lake: Lake) -> Counts:
    """In a process of its own: where pandas can be imported, Spark imports it."""
    kind = DELTA if isinstance(lake, DeltaLake) else "iceberg"
    path = os.pathsep.join([str(Path(sys.prefix) / "connect"), *sys.path])
    command = [sys.executable, "-c", PANDAS, kind, lake.place.root]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    return dict(eval(done.stdout.splitlines()[-1]))


READERS: list[Callable[[Lake], Counts]] = [by_pyarrow, by_duckdb, by_polars]


def test_each_message_counts_once_at_every_moment(spark: SparkSession, lake: Lake) -> None:
    def look() -> None:
        for reader in READERS:
            assert reader(lake) == TOPICS, reader.__name__
        own = spark.read.format("orbitmq-lake").option("columns", "topic")
        found = own.load(lake.place.root).groupBy("topic").count().collect()
        assert {row.topic: row["count"] for row in found} == TOPICS
        assert own.option("topics", "orders").load(lake.place.root).count() == TOPICS["orders"]

    look()
    count = len(lake.files())
    bins = plan(lake.files())
    for number, found in enumerate(bins):
        lake.replace(found.files, merged(lake.place, found.files, "compact"))
        look()
        if number == 1:
            assert by_pandas(lake) == TOPICS
    assert len(lake.files()) == len(bins) == 4
    assert len([each for each in lake.place.files() if each.path.startswith("messages/")]) == count + 4


def test_engines_find_topics_and_days_without_looking_into_files(lake: Lake) -> None:
    orders = pl.col("topic") == "orders", pl.col("dt") == date.fromisoformat(FIRST_DAY)
    assert scanned(lake).filter(*orders).collect().height == 3
    if isinstance(lake, DeltaLake):
        parts = {(part["topic"], str(part["dt"])) for part in DeltaTable(lake.place.root).partitions()}
        assert parts == {(topic, day) for topic in TOPICS for day in (FIRST_DAY, "2023-11-15")}
    else:
        chosen = iceberg_table(lake).scan(f"topic = 'orders' AND dt = '{FIRST_DAY}'")
        assert len(list(chosen.plan_files())) == 3, "one of each batch"
