"""The demo's data set is what its script writes, and big enough to mean something."""

from __future__ import annotations

import gzip
import json

from demo import make_orders


def test_the_committed_events_are_those_the_script_makes() -> None:
    with gzip.open(make_orders.FILE, "rt", encoding="utf-8") as lines:
        committed = [json.loads(line) for line in lines]
    assert len(committed) >= 10_000
    assert committed == make_orders.events()
