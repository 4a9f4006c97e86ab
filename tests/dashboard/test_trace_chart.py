"""Traces as bars: where each begins, how long it is, in the order of time."""

from __future__ import annotations

from orbitmq.admin.traces import Traced
from orbitmq.dashboard.trace_chart import NARROWEST, WIDTH, charts

SENT = Traced(
    kind="Pub", at_ms=1000, msg_id="A", group="makers", topic="Orders", client_host="h:1", cost_ms=500, success=True,
    offset_msg_id="0A",
)  # fmt: skip


def begun(request: str, at_ms: int, retries: int, msg_id: str = "A") -> Traced:
    return Traced(
        kind="SubBefore", at_ms=at_ms, msg_id=msg_id, group="eaters", client_host="h:2", request_id=request,
        retries=retries,
    )  # fmt: skip


def ended(request: str, cost_ms: int, *, success: bool, msg_id: str = "A") -> Traced:
    return Traced(
        kind="SubAfter", at_ms=None, msg_id=msg_id, group=None, client_host="h:2", request_id=request,
        cost_ms=cost_ms, success=success, outcome=0 if success else 2,
    )  # fmt: skip


def test_sends_checks_and_attempts_stand_on_one_line_of_time() -> None:
    decided = Traced(
        kind="EndTransaction", at_ms=1600, msg_id="A", group="makers", client_host="h:1", state="COMMIT_MESSAGE",
        from_check=True,
    )  # fmt: skip
    (chart,) = charts(
        [begun("2", 2500, 1), SENT, decided, begun("1", 2000, 0), ended("1", 0, success=False),
         ended("2", 500, success=True)]
    )  # fmt: skip
    assert (chart.msg_id, chart.topic, chart.offset_msg_id, chart.span_ms) == ("A", "Orders", "0A", 2000)
    assert [(bar.what, bar.group, bar.since_ms, bar.cost_ms, bar.status) for bar in chart.bars] == [
        ("sent", "makers", 0, 500, "success"),
        ("decided, on check", "makers", 600, None, "COMMIT_MESSAGE"),
        ("consumed, attempt 1", "eaters", 1000, 0, "failed"),
        ("consumed, attempt 2", "eaters", 1500, 500, "success"),
    ]
    assert [bar.ending for bar in chart.bars] == [None, None, "raised an error", None]
    assert [(bar.x, bar.width) for bar in chart.bars] == [(0, 250), (300, NARROWEST), (500, NARROWEST), (750, 250)]


def test_a_key_of_several_messages_has_a_chart_for_each() -> None:
    other = begun("3", 5000, 0, msg_id="B,C")
    assert [chart.msg_id for chart in charts([SENT, other])] == ["A", "B", "C"]


def test_an_attempt_without_an_end_is_open() -> None:
    (chart,) = charts([begun("1", 2000, 0)])
    (bar,) = chart.bars
    assert (bar.status, bar.cost_ms, bar.x) == ("unknown", None, 0)
    assert (chart.topic, chart.span_ms) == (None, 0)


def test_an_end_without_a_begin_stands_last_and_within_the_line() -> None:
    (chart,) = charts([SENT, ended("9", 10, success=True)])
    assert [bar.what for bar in chart.bars] == ["sent", "consumed"]
    assert chart.bars[1].begin_ms is None
    assert all(bar.x + bar.width <= WIDTH for bar in chart.bars)


def test_nothing_has_no_chart() -> None:
    assert charts([]) == []
