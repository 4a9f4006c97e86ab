"""Conditions of a query narrow what is read, and never below what the query wants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from orbitmq.message.model import MessageQueue
from orbitmq.spark.pushdown import COMPARE, FAR, NOTHING_PUSHED, Pushed, pushed

QUEUE = MessageQueue("orders", "broker-a", 3)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARISONS = st.sampled_from([EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual])


def condition(column: str, values: st.SearchStrategy[object]) -> st.SearchStrategy[Filter]:
    compared = st.builds(lambda kind, value: kind((column,), value), COMPARISONS, values)
    return compared | st.builds(lambda found: In((column,), found), st.lists(values, max_size=3))


def holds(each: Filter, value: object) -> bool:
    return value in each.value if isinstance(each, In) else COMPARE[type(each)](value, each.value)


@given(st.lists(condition("queueOffset", st.integers(0, 20)), max_size=4), st.integers(0, 20))
def test_no_offset_the_query_wants_is_left_out(conditions: list[Filter], offset: int) -> None:
    low, high = pushed(conditions).offsets
    if all(holds(each, offset) for each in conditions):
        assert low <= offset < high


TIMES = st.integers(0, 5000).map(lambda us: EPOCH + timedelta(microseconds=us))


@given(st.lists(condition("storeTimestamp", TIMES), max_size=3), st.integers(0, 5))
def test_no_time_the_query_wants_is_left_out(conditions: list[Filter], milliseconds: int) -> None:
    low, high = pushed(conditions).times_ms
    if all(holds(each, EPOCH + timedelta(milliseconds=milliseconds)) for each in conditions):
        assert low <= milliseconds < high


@given(st.lists(condition("queueId", st.integers(0, 5)), max_size=3), st.integers(0, 5))
def test_queues_are_those_the_query_wants(conditions: list[Filter], queue_id: int) -> None:
    wanted = all(holds(each, queue_id) for each in conditions)
    assert pushed(conditions).includes(MessageQueue("orders", "broker-a", queue_id)) == wanted


def test_bounds_are_as_tight_as_they_can_be() -> None:
    assert pushed([GreaterThan(("queueOffset",), 4), LessThanOrEqual(("queueOffset",), 9)]).offsets == (5, 10)
    assert pushed([EqualTo(("queueOffset",), 4)]).offsets == (4, 5)
    assert pushed([GreaterThan(("storeTimestamp",), EPOCH + timedelta(microseconds=1500))]).times_ms == (2, FAR)
    assert pushed([LessThan(("storeTimestamp",), EPOCH + timedelta(microseconds=1500))]).times_ms == (0, 2)
    assert not pushed([EqualTo(("topic",), "payments")]).includes(QUEUE)
    assert pushed([In(("brokerName",), ["broker-a", "broker-b"])]).includes(QUEUE)


def test_values_of_equal_columns_are_those_of_all_conditions() -> None:
    found = pushed([In(("tags",), ["A", "B", None]), EqualTo(("tags",), "A"), EqualTo(("keys",), "k 1")])
    assert found.values == {"tags": {"A"}, "keys": {"k 1"}}
    assert found.plain_tags == {"A"}
    assert pushed([EqualTo(("tags",), "A || B")]).plain_tags == frozenset()


@pytest.mark.parametrize(
    "each",
    [
        IsNotNull(("tags",)),
        Not(EqualTo(("tags",), "A")),
        StringStartsWith(("tags",), "A"),
        EqualTo(("properties", "x"), "A"),
        EqualNullSafe(("tags",), None),
        EqualTo(("body",), b"x"),
    ],
    ids=str,
)
def test_conditions_that_say_nothing_here_change_nothing(each: Filter) -> None:
    assert pushed([each]) == NOTHING_PUSHED == Pushed()
