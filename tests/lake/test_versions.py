"""Durations are read and written in the forms of users and tables, and the versions that go are those nobody reads."""

from __future__ import annotations

import re

import pytest

from orbitmq.errors import LakeError
from orbitmq.lake.versions import (
    DAY_MS,
    DURATION,
    HOUR_MS,
    duration_ms,
    duration_text,
    interval,
    interval_ms,
    replaced_before,
)


@pytest.mark.parametrize(("text", "milliseconds"), [("36h", 36 * HOUR_MS), ("7d", 7 * DAY_MS), ("1h", HOUR_MS)])
def test_durations_are_written_in_hours_or_days(text: str, milliseconds: int) -> None:
    assert re.fullmatch(DURATION, text)
    assert duration_ms(text) == milliseconds
    assert duration_text(milliseconds) == text
    assert interval_ms(interval(milliseconds)) == milliseconds


@pytest.mark.parametrize("text", ["0d", "7", "d", "1.5d", "-1d", "7 d", "7w", "1000000d"])
def test_other_durations_are_none(text: str) -> None:
    assert not re.fullmatch(DURATION, text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("interval 1 week", 7 * DAY_MS),
        ("INTERVAL 2 Days", 2 * DAY_MS),
        ("3 hours", 3 * HOUR_MS),
        ("interval 90 minutes", 90 * 60_000),
        ("interval 5 milliseconds", 5),
    ],
)
def test_intervals_of_other_engines_are_read(text: str, milliseconds: int) -> None:
    assert interval_ms(text) == milliseconds
    with pytest.raises(LakeError, match=r"'interval 1 month' is no interval of time; set it again with .*--keep-vers"):
        interval_ms("interval 1 month")


def test_a_version_is_old_from_the_moment_it_is_replaced() -> None:
    history = [(1, 100), (2, 200), (3, 300)]
    assert replaced_before(history, 200) == set()
    assert replaced_before(history, 201) == {1}, "whoever opened it last did so just before"
    assert replaced_before(history, 1000) == {1, 2}, "the last one is current"
    assert replaced_before([*history, (1, 400)], 1000) == {2, 3}, "it is current again"
    assert replaced_before([*history, (1, 400), (4, 500)], 450) == {2, 3}
    assert replaced_before([], 1000) == set()
