"""Names of topics and groups, and messages of kombu as messages."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.integrations.celery.routing import decoded, encoded, level_of, name_of, topic_of, topic_of_exchange
from orbitmq.message.pop import pop_retry_topic
from orbitmq.message.properties import TIMER_DELAY_MS
from orbitmq.message.topics import check_consumer_group, check_topic

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DAY_S = 86_400.0


def payload(headers: dict[str, Any] | None = None, **properties: Any) -> dict[str, Any]:
    return {"body": "[]", "headers": headers or {}, "properties": {"delivery_info": {}, **properties}}


def sent(one: dict[str, Any]) -> dict[str, str]:
    return encoded("T", one, delay_max_s=DAY_S, now=NOW).properties


@given(st.text(min_size=1), st.integers(0, 9))
def test_any_queue_has_a_topic_a_group_and_a_topic_of_retries(queue: str, level: int) -> None:
    topic = topic_of(queue, level)
    check_topic(topic)
    check_consumer_group(topic)
    check_topic(pop_retry_topic(topic, topic))
    check_topic(topic_of_exchange(queue))


def test_names_that_are_allowed_stay() -> None:
    assert name_of("celery") == topic_of("celery", 0) == "celery"
    assert topic_of("celery", 6) == "celery-priority-6"


def test_names_that_are_not_allowed_stay_apart() -> None:
    names = {name_of(queue) for queue in ("a.b", "a@b", "a-b", "a b")}
    assert len(names) == 4
    assert all(name.startswith("a-b") for name in names)


def test_a_task_can_be_found_by_its_id_and_filtered_by_its_name() -> None:
    properties = sent(payload({"id": "4f-1", "task": "shop.bill"}))
    assert (properties["KEYS"], properties["TAGS"]) == ("4f-1", "shop.bill")


@pytest.mark.parametrize(("ahead_s", "delay_ms"), [(5, "5000"), (3 * DAY_S, "86400000")])
def test_a_task_with_an_eta_is_delivered_then(ahead_s: float, delay_ms: str) -> None:
    eta = (NOW + timedelta(seconds=ahead_s)).isoformat()
    assert sent(payload({"eta": eta}))[TIMER_DELAY_MS] == delay_ms


@pytest.mark.parametrize(
    "eta",
    [(NOW - timedelta(seconds=1)).isoformat(), "2026-01-02T03:05:05", "soon", 7, None, "0001-01-01T00:00:00+14:00"],
)
def test_a_task_whose_eta_has_passed_or_is_for_the_worker_is_delivered_at_once(eta: object) -> None:
    assert TIMER_DELAY_MS not in sent(payload({"eta": eta}))


@pytest.mark.parametrize(("priority", "level"), [(0, 0), (2, 0), (3, 3), (8, 6), (9, 9), (None, 0), ("9", 0)])
def test_a_priority_reaches_the_level_below_it(priority: object, level: int) -> None:
    assert level_of(payload(priority=priority), [0, 3, 6, 9]) == level


@given(st.text())
def test_a_payload_comes_back(body: str) -> None:
    one = payload({"lang": "py"}, priority=3) | {"body": body}
    assert decoded(encoded("T", one, delay_max_s=DAY_S, now=NOW).body) == one


@given(st.binary() | st.from_type(type).map(repr).map(str.encode))
def test_other_bodies_raise_nothing_but_a_value_error(body: bytes) -> None:
    with suppress(ValueError):
        decoded(body)


@pytest.mark.parametrize(
    "body", [[], {}, {"body": "", "properties": []}, {"body": "", "properties": {"delivery_info": 1}},
             {"properties": {}}, {"body": "", "properties": {}, "headers": 1},
             {"body": "", "properties": {"delivery_info": {"exchange": [1]}}},
             {"body": "", "properties": {"body_encoding": "rot13"}}, {"body": "", "properties": {"body_encoding": []}},
             {"body": 1, "properties": {"body_encoding": "base64"}}]
)  # fmt: skip
def test_other_json_raises_a_value_error(body: object) -> None:
    with pytest.raises(ValueError, match="no message of kombu"):
        decoded(json.dumps(body).encode())


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"body": "a", "properties": {"body_encoding": "base64"}}'], ids=["deep", "base64"]
)
def test_bodies_that_would_end_a_worker_raise_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds
        decoded(body)
