"""orbitmq and RocketMQ's own filter judge the same expressions and properties alike."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.expressions import outcome, random_expressions, random_properties
from tests.support.java_rocketmq import run_driver

SEED = 4907
EXPRESSIONS = 6000
PROPERTY_SETS = 25


def test_random_expressions_have_rocketmqs_outcome(tmp_path: Path) -> None:
    expressions = list(random_expressions(SEED, EXPRESSIONS))
    property_sets = random_properties(SEED, PROPERTY_SETS)
    cases = tmp_path / "cases.jsonl"
    cases.write_text("\n".join(map(json.dumps, (property_sets, *expressions))) + "\n")
    rows = run_driver("filter", "--cases", cases)
    assert [row["expression"] for row in rows] == expressions

    wrong = {
        row["expression"]: (row.get("results"), found)
        for row in rows
        if (found := outcome(row["expression"], property_sets)) != row.get("results")
    }
    compiled = [row["results"] for row in rows if row["compiled"]]
    assert not wrong, f"{len(wrong)} differ, such as {next(iter(wrong.items()))}"
    assert EXPRESSIONS / 4 < len(compiled) < EXPRESSIONS * 3 / 4, "legal and illegal ones"
    outcomes = [result for results in compiled for result in results]
    assert min(outcomes.count(kind) for kind in (True, False, None, "error")) > len(outcomes) / 50, "of all four kinds"
