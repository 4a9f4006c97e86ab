"""Stars stand for any letters and for no topic of the system, names for themselves."""

from __future__ import annotations

import pickle

import pytest

from orbitmq.message.topics import AUTO_CREATE_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, TRACE_TOPIC
from orbitmq.spark.topic_names import topic_names

TOPICS = ("orders", "orders-eu", "shop%orders", "a|b", "x.y", "broker-a")
SYSTEM = (
    "%RETRY%g",
    "%DLQ%g",
    "c_REPLY_TOPIC",
    "rmq_sys_x",
    AUTO_CREATE_TOPIC,
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TRACE_TOPIC,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", {"orders"}),
        (" orders , a|b ", {"orders", "a|b"}),
        ("orders*", {"orders", "orders-eu"}),
        ("*orders", {"orders", "shop%orders"}),
        ("*", {"orders", "orders-eu", "shop%orders", "a|b", "x.y"}),
        ("x*y,%DLQ%g", {"x.y", "%DLQ%g"}),
        ("x.*", {"x.y"}),
        ("%*", set()),
        ("broker-a", {"broker-a"}),
        ("", set()),
    ],
)
def test_names_and_stars(text: str, expected: set[str]) -> None:
    names = pickle.loads(pickle.dumps(topic_names(text, frozenset({"broker-a"}))))  # as it comes to a task
    assert {topic for topic in (*TOPICS, *SYSTEM) if topic in names} == expected
    assert bool(names) == bool(text)
