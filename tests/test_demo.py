"""The demo's data set is what its script writes, and big enough to mean something."""

from __future__ import annotations

import gzip
import json

import pytest

from demo import make_orders, run


def test_the_committed_events_are_those_the_script_makes() -> None:
    with gzip.open(make_orders.FILE, "rt", encoding="utf-8") as lines:
        committed = [json.loads(line) for line in lines]
    assert len(committed) >= 10_000
    assert committed == make_orders.events()


@pytest.mark.parametrize("change", [{"event": "OrderRefunded"}, {"amount_cents": 1}, None])
def test_one_lost_or_altered_event_makes_the_demo_fail(change: dict[str, object] | None) -> None:
    events = make_orders.events()[:50]
    expected = run.figures(events)
    assert run.report({"file": expected, "sent": run.figures(list(events))})
    arrived = events[:-1] + ([{**events[-1], **change}] if change else [])
    assert not run.report({"file": expected, "sent": run.figures(arrived)})
