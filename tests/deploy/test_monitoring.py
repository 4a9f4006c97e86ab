"""Boards and rules stand on metrics that exist; each alert fires and clears on made-up series, says promtool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from orbitmq.metrics.model import MetricType
from orbitmq.metrics.table_exporter import EXPORTER
from orbitmq.metrics.table_native import BROKER, NAMESRV, PROCESS

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
BOARDS = sorted(MONITORING.glob("grafana-*.json"))
RULES = MONITORING / "rules.yml"
TESTS = sorted(MONITORING.glob("rules-test*.yml"))
OF_THE_OPERATOR = {"orbitmq:group_lag_messages:own_limit", "orbitmq:group_consumers:expected"}
"""Series that rules of the operator's may give."""
NAME = re.compile(r"(?<![\w\"])(?:rocketmq|orbitmq)[\w:]*")
CHOICE = re.compile(r'__name__=~"(\w+)\(([\w|]+)\)"')


def _names() -> set[str]:
    found = set()
    for metric in (*BROKER, *NAMESRV, *PROCESS, *EXPORTER):
        ends = ("_bucket", "_count", "_sum") if metric.kind is MetricType.HISTOGRAM else ("",)
        found |= {metric.name + end for end in ends}
    return found


def _asked(expression: str) -> set[str]:
    """Metrics an expression names."""
    chosen = {start + end for start, ends in CHOICE.findall(expression) for end in ends.split("|")}
    return set(NAME.findall(CHOICE.sub("", expression))) | chosen


def _rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def _promtool(*arguments: str | Path) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed; `make services` does it")
    ended = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("board", BOARDS, ids=lambda path: path.stem)
def test_a_board_shows_metrics_that_exist(board: Path) -> None:
    found = json.loads(board.read_text())
    expressions = [target["expr"] for panel in found["panels"] for target in panel["targets"]]
    expressions += [variable["definition"] for variable in found["templating"]["list"] if "definition" in variable]
    assert len(expressions) > 20
    assert set().union(*map(_asked, expressions)) <= _names()


@pytest.mark.parametrize("board", BOARDS, ids=lambda path: path.stem)
def test_the_panels_of_a_board_do_not_lie_over_each_other(board: Path) -> None:
    panels = json.loads(board.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_the_guide_names_every_file_and_no_other() -> None:
    guide = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w-]+\.(?:json|yml))`", guide)) - {"tools.yml"}
    assert named == {path.name for path in MONITORING.iterdir()}


def test_rules_stand_on_metrics_that_exist() -> None:
    rules = _rules()
    recorded = {rule["record"] for rule in rules if "record" in rule}
    asked = set().union(*(_asked(rule["expr"]) for rule in rules))
    assert asked <= _names() | recorded | OF_THE_OPERATOR
    assert {name for name in asked if ":" in name} >= OF_THE_OPERATOR


def test_every_alert_says_how_bad_what_and_what_to_do() -> None:
    for rule in _rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in {"critical", "warning", "info"}
            assert rule["annotations"].keys() == {"summary", "action"}


def test_every_alert_has_a_test_in_which_it_fires_and_clears() -> None:
    fired, cleared = set(), set()
    for case in (case for file in TESTS for case in yaml.safe_load(file.read_text())["tests"]):
        for look in case["promql_expr_test"]:
            name = re.search(r'alertname="(\w+)"', look["expr"])
            assert name is not None
            (fired if look["exp_samples"] else cleared).add(name[1])
    alerts = {rule["alert"] for rule in _rules() if "alert" in rule}
    assert fired == cleared == alerts


def test_prometheus_takes_rules_and_configuration() -> None:
    _promtool("check", "config", MONITORING / "prometheus.yml")


def test_each_alert_fires_and_clears() -> None:
    _promtool("test", "rules", *TESTS)
