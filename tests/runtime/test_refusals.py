"""Each refusal counts, and a flood of them makes a few lines."""

from __future__ import annotations

import logging

import pytest

from orbitmq.runtime.refusals import LOG_SECONDS, Limit, Refusals


def test_a_flood_of_refusals_is_one_line_a_while(caplog: pytest.LogCaptureFixture) -> None:
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


def test_limits_that_share_a_text_have_lines_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    log, refusals = logging.getLogger("tests"), Refusals(lambda: 1.0)
    for limit in (Limit.ROUTES, Limit.SETTINGS, Limit.ROUTES):
        refusals.note(limit, log, "event=%s_refused", limit)
    assert caplog.messages == ["event=routes_refused refused=1", "event=settings_refused refused=1"]


def test_each_event_of_a_limit_has_lines_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    log, refusals = logging.getLogger("tests"), Refusals(lambda: 1.0)
    for _ in range(3):
        refusals.note(Limit.MALFORMED, log, "event=bad_frame")
        refusals.note(Limit.MALFORMED, log, "event=tls_handshake_failed")
    assert caplog.messages == ["event=bad_frame refused=1", "event=tls_handshake_failed refused=1"]
    assert refusals.counts[Limit.MALFORMED] == 6


def test_what_is_no_refusal_has_few_lines_and_no_count(caplog: pytest.LogCaptureFixture) -> None:
    now = [1.0]
    caplog.set_level(logging.INFO)
    log, refusals = logging.getLogger("tests"), Refusals(lambda: now[0])
    for number in range(9):
        refusals.log(log, "event=kv_put key=%d", number, level=logging.INFO, lines=2)
    now[0] += LOG_SECONDS
    refusals.log(log, "event=kv_put key=%d", 9, level=logging.INFO, lines=2)
    assert caplog.messages == ["event=kv_put key=0", "event=kv_put key=1", "event=kv_put key=9 times=8"]
    assert not any(refusals.counts.values())
