"""The last step of the tutorial: what Spark shows of the messages that were sent before."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from pyspark.sql import SparkSession

from orbitmq.client import Message
from orbitmq.client.sync import Producer
from orbitmq.testing import Cluster
from tests.support.tutorial import ADDRESS, steps

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


def test_the_program_of_the_tutorial_shows_the_orders(spark: SparkSession) -> None:
    row = list(steps(TUTORIAL))
    programs = {block.text.split("\n", 1)[0]: block.text for block, _ in row if block.language == "python"}
    (expected,) = [prints for block, prints in row if block.text == "python orders.py\n"]
    printed = io.StringIO()
    with Cluster() as cluster:

        def run(program: str) -> None:
            exec(
                compile(program.replace(ADDRESS, cluster.namesrv_address), program[:20], "exec", dont_inherit=True), {}
            )

        with contextlib.redirect_stdout(io.StringIO()):
            run(programs["# send.py"])
        with Producer("order-service", cluster.namesrv_address) as producer:
            producer.send(Message("orders", b'{"amount": 990}', tags="OrderRefunded", keys="O-2026-000043"))
        with contextlib.redirect_stdout(printed):
            run(programs["# orders.py"])
    assert printed.getvalue().strip() == (expected or "").strip()
