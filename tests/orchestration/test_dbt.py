"""The dbt project over a lake: its models fit the columns of the lake, dbt builds them, and wrong data fails it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import yaml
from jinja2 import Environment
from pyspark.sql.pandas.types import to_arrow_schema

from orbitmq.pipeline.archive_stream import MESSAGES
from orbitmq.testing import Cluster
from tests.orchestration.conftest import EXAMPLES, TOPIC, orbitmq, program, run, send

PROJECT = EXAMPLES / "dbt"
SCHEMA = "id BIGINT, city STRING, total DECIMAL(10,2)"
VALUE = pa.struct([("id", pa.int64()), ("city", pa.string()), ("total", pa.decimal128(10, 2))])
OF_BODIES = [pa.field("dt", pa.date32()), pa.field("value", VALUE), pa.field("_rescued", pa.string())]


def _query(model: str, *, is_incremental: bool = False) -> str:
    """What dbt makes of a model, with the tables `lake_messages` and those of the models."""
    variables = yaml.safe_load((PROJECT / "dbt_project.yml").read_text(encoding="utf-8"))["vars"]
    template = Environment(autoescape=False).from_string((PROJECT / "models" / f"{model}.sql").read_text("utf-8"))
    return template.render(
        config=lambda **_: "", source="{}_{}".format, ref=str, var=variables.__getitem__, this=model,
        is_incremental=lambda: is_incremental,
    )  # fmt: skip


def test_models_are_queries_over_the_columns_of_a_lake() -> None:
    told = yaml.safe_load((PROJECT / "models" / "lake.yml").read_text(encoding="utf-8"))["models"]
    with duckdb.connect() as connection:
        connection.register(
            "lake_messages", pa.schema([*to_arrow_schema(MESSAGES, timezone="UTC"), *OF_BODIES]).empty_table()
        )
        for model in ("orders", "revenue"):
            connection.execute(f"CREATE TABLE {model} AS {_query(model)}")
        tables = {model["name"]: connection.table(model["name"]).columns for model in told}
        assert connection.sql(_query("orders", is_incremental=True)).columns == tables["orders"]
    for model in told:
        assert {column["name"] for column in model.get("columns", ())} <= set(tables[model["name"]])


@pytest.fixture
def dbt(tmp_path: Path) -> Callable[..., Any]:
    """Runs a command of dbt with a copy of the project, the lake and a database of its own."""
    command = program("dbt", "dbt")
    project = shutil.copytree(PROJECT, tmp_path / "project")
    told = {"ORBITMQ_LAKE": str(tmp_path / "lake"), "ORDERS_DATABASE": str(tmp_path / "orders.duckdb")}
    flags = "--project-dir", project, "--profiles-dir", project, "--no-use-colors"
    return lambda *arguments: run(command, *arguments, *flags, **told, DO_NOT_TRACK="1")


def test_dbt_builds_tables_of_what_is_archived_and_fails_for_doubles(
    dbt: Callable[..., Any], cluster: Cluster, tmp_path: Path
) -> None:
    def archive() -> None:
        where = "--name-server", cluster.namesrv_address, "--topics", TOPIC, "--lake", tmp_path / "lake"
        orbitmq("pipeline", "archive", *where, "--body-format", "json", "--body-schema", SCHEMA)

    def table(query: str) -> list[Any]:
        with duckdb.connect(str(tmp_path / "orders.duckdb"), read_only=True) as connection:
            return connection.sql(query).fetchall()

    for number in range(2):  # the second run is incremental
        send(cluster, range(number * 20, number * 20 + 20))
        archive()
        built = dbt("build")
        assert built.returncode == 0, built.stdout
    assert table("SELECT count(*), count(DISTINCT id), min(city) FROM orders") == [(40, 40, "Köln")]
    assert table("SELECT sum(orders), sum(revenue)::VARCHAR FROM revenue") == [(40, "396.00")]

    send(cluster, [39])  # an order that is there already
    archive()
    failed = dbt("build")
    assert failed.returncode == 1, failed.stdout
    assert "unique_orders_id" in failed.stdout
