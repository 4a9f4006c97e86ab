"""When a half message is asked about, spared, given up, or left for later."""

from __future__ import annotations

import pytest

from orbitmq.broker.transactions.half import Half
from orbitmq.broker.transactions.check_policy import HOUR_MS, CheckLimits, CheckAction, due_ms, action_for
from orbitmq.message.topics import HALF_TOPIC
from orbitmq.message.unit import Unit

NOW_MS = 1_700_000_000_000
LIMITS = CheckLimits(timeout_ms=6000, checks_max=15, age_max_ms=72 * HOUR_MS)


def half(age_ms: int, stored_ago_ms: int | None = None, **properties: str) -> Half:
    stored_ms = NOW_MS - (age_ms if stored_ago_ms is None else stored_ago_ms)
    unit = Unit(0, 0, 0, 0, 7, 100, 0, NOW_MS - age_ms, b"", stored_ms, b"", 0, 0, b"", HALF_TOPIC, "")
    return Half(unit, properties, "Orders", 1)


def action(half: Half) -> CheckAction:
    return action_for(half, LIMITS, NOW_MS - 10, NOW_MS)


@pytest.mark.parametrize(
    ("age_ms", "expected"), [(11, CheckAction.WAIT), (5999, CheckAction.WAIT), (6000, CheckAction.CHECK), (HOUR_MS, CheckAction.CHECK)]
)
def test_a_producer_is_asked_after_the_timeout(age_ms: int, expected: CheckAction) -> None:
    assert action(half(age_ms)) is expected


@pytest.mark.parametrize(("checks", "expected"), [("14", CheckAction.CHECK), ("15", CheckAction.DISCARD)])
def test_it_is_asked_only_so_often(checks: str, expected: CheckAction) -> None:
    assert action(half(7000, TRANSACTION_CHECK_TIMES=checks)) is expected


def test_an_old_message_is_given_up() -> None:
    assert action(half(72 * HOUR_MS)) is CheckAction.CHECK
    assert action(half(72 * HOUR_MS + 1)) is CheckAction.DISCARD


def test_a_copy_of_this_round_waits_for_the_next() -> None:
    assert action(half(7000, stored_ago_ms=10)) is CheckAction.WAIT
    assert action(half(7000, stored_ago_ms=11)) is CheckAction.CHECK


def test_the_last_question_can_still_be_answered() -> None:
    """RocketMQ may give a message up in the round in which it asks for the last time."""
    assert action(half(7000, stored_ago_ms=10, TRANSACTION_CHECK_TIMES="15")) is CheckAction.WAIT


@pytest.mark.parametrize(
    ("seconds", "age_ms", "expected"),
    [
        ("60", 59_999, CheckAction.SPARE),
        ("60", 60_000, CheckAction.CHECK),
        ("1", 1000, CheckAction.CHECK),
        ("0", 100, CheckAction.CHECK),
        ("-1", 5999, CheckAction.SPARE),
        ("-1", 6000, CheckAction.CHECK),
        ("soon", 5999, CheckAction.SPARE),
    ],
)
def test_the_sender_may_ask_to_be_spared(seconds: str, age_ms: int, expected: CheckAction) -> None:
    assert action(half(age_ms, CHECK_IMMUNITY_TIME_IN_SECONDS=seconds)) is expected


def test_a_message_from_a_fast_clock_is_asked_about_at_once() -> None:
    assert action(half(-5000, stored_ago_ms=20)) is CheckAction.CHECK


def test_the_time_of_the_first_question_is_known() -> None:
    assert due_ms(half(0), LIMITS) == NOW_MS + 6000
    assert due_ms(half(0, CHECK_IMMUNITY_TIME_IN_SECONDS="60"), LIMITS) == NOW_MS + 60_000
