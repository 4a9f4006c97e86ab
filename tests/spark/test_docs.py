"""The guide names every error that Spark can pass on, and shows what its programs print."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import orbitmq.errors
from orbitmq.client import Message
from orbitmq.client.sync import Producer
from orbitmq.testing import Cluster
from tests.support.tutorial import steps

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"ORBITMQ_[A-Z_]+")
RAISED = re.compile(r'SourceError\(\s*"(ORBITMQ_[A-Z_]+)"')


def test_every_error_is_explained() -> None:
    sources = (ROOT / "src" / "orbitmq" / "spark").rglob("*.py")
    raised = {name for source in sources for name in NAME.findall(source.read_text())}
    jobs = (ROOT / "src" / "orbitmq" / "pipeline").rglob("*.py")
    raised |= {name for job in jobs for name in RAISED.findall(job.read_text())}
    table = (ROOT / "docs" / "spark.md").read_text().split("## Errors")[1]
    assert set(NAME.findall(table)) == raised == set(NAME.findall(orbitmq.errors.SourceError.__doc__ or ""))


ORDERS: list[dict[str, Any]] = [
    {"id": 1, "city": "Köln", "total": 9.90, "placed": "2026-11-21T10:30:00Z"},
    {"id": 2, "city": "Berlin", "total": 30.50, "placed": "2026-11-21T10:31:00Z"},
    {"id": 3, "total": 4, "voucher": "SUMMER"},
]


def test_the_programs_about_bodies_print_what_the_guide_shows(spark: SparkSession, tmp_path: Path) -> None:
    section = (ROOT / "docs" / "spark.md").read_text().split("## Bodies as columns")[1].split("\n## ")[0]
    writing = (ROOT / "docs" / "spark-writes.md").read_text().split("**Bodies from columns:**")[1].split("\n## ")[0]
    page = tmp_path / "page.md"
    page.write_text(section + writing)
    names: dict[str, Any] = {"spark": spark}
    with Cluster() as cluster:
        for topic in ("orders", "paid"):
            cluster.create_topic(topic)
        with Producer("order-service", cluster.namesrv_address) as producer:
            for order in ORDERS:
                producer.send(Message("orders", json.dumps(order).encode(), keys=str(order["id"])))
        spark.createDataFrame([], "x INT")  # makes it this thread's session; a write looks for its sink there
        for block, expected in steps(page):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block.text.replace("localhost:9876", cluster.namesrv_address), "spark.md", "exec"), names)
            assert printed.getvalue().strip() == (expected or "").strip()
        assert sorted(row.value.city or "" for row in names["cities"].collect()) == ["", "Berlin", "Köln"]
        paid = names["spark"].read.format("orbitmq").option("nameServer", cluster.namesrv_address).load("paid")
        assert sorted((row["keys"], bytes(row.body)) for row in paid.collect()) == [
            ("1", b'{"id":1,"total":9.90}'), ("2", b'{"id":2,"total":30.50}'), ("3", b'{"id":3,"total":4.00}'),
        ]  # fmt: skip
