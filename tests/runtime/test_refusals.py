"""Each refusal counts, and a flood of them makes a few lines."""

from __future__ import annotations

import logging

import pytest

from orbitmq.runtime.refusals import LOG_SECONDS, Limit, Refusals


def test_a_flood_of_refusals_is_one_line_a_while_for_each_limit(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    log, refusals = logging.getLogger("tests"), Refusals(lambda: now[0])
    for number in range(1000):
        refusals.note(Limit.TOPICS, log, "event=topic_refused topic=%s", f"t{number}")
    refusals.note(Limit.GROUPS, log, "event=group_refused group=%s", "g")
    now[0] += LOG_SECONDS
    refusals.note(Limit.TOPICS, log, "event=topic_refused topic=%s", "last")
    assert [record.message for record in caplog.records] == [
        "event=topic_refused topic=t0 refused=1",
        "event=group_refused group=g refused=1",
        "event=topic_refused topic=last refused=1000",
    ]
    assert refusals.counts[Limit.TOPICS] == 1001
    assert refusals.counts[Limit.GROUPS] == 1
    assert refusals.counts[Limit.OFFSETS] == 0
