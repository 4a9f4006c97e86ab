"""The notebook of the examples runs from its first cell to its last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import COUNT, Topic

NOTEBOOK = Path(__file__).parents[2] / "examples" / "spark_topics.ipynb"


def test_the_notebook_runs(spark: SparkSession, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", topic.system.namesrv_address)
    monkeypatch.setenv("TOPIC", topic.name)
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    expected = {"TagA": COUNT // 3, "TagB": COUNT // 3, "TagC": COUNT // 3}
    assert {row.tags: row.messages for row in names["by_tag"].collect()} == expected
    assert {row.tags: row["count"] for row in names["counted"].collect()} == expected
    spark.catalog.dropTempView("orders_view")
    spark.catalog.dropTempView("counted")
