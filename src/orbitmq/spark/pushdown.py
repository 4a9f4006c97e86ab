"""Reduces a read by the conditions of a query. Pure except for Spark's condition classes.

Conditions only reduce what is read. The reader returns all of them to Spark, which applies them again. So a read may
return more rows than the conditions select, but never fewer.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeGuard

from orbitmq.message.model import MessageQueue
from orbitmq.spark.versions import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

PLAIN_TAG = re.compile(r"[\w-]+")  # a tag that needs no quoting in a tag expression
FAR = 1 << 62  # greater than every offset and every time
COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
Condition = EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual | In
QUEUE_COLUMNS = {"topic": "topic", "brokerName": "broker_name", "queueId": "queue_id"}


@dataclass(frozen=True)
class Pushed:
    """The ranges to read, from the first value to before the second."""

    queue_conditions: tuple[Condition, ...] = ()
    offsets: tuple[int, int] = (0, FAR)
    times_ms: tuple[int, int] = (0, FAR)
    values: dict[str, frozenset[str]] = field(default_factory=dict)
    """Column -> its allowed values."""

    def includes(self, queue: MessageQueue) -> bool:
        """Whether the queue can have rows of the query."""
        return all(_holds(each, getattr(queue, QUEUE_COLUMNS[each.attribute[0]])) for each in self.queue_conditions)

    @property
    def plain_tags(self) -> frozenset[str]:
        """The tags for the filter of the broker, empty when it cannot filter by them."""
        tags = self.values.get("tags", frozenset())
        return tags if all(map(PLAIN_TAG.fullmatch, tags)) else frozenset()


NOTHING_PUSHED = Pushed()


def pushed(conditions: Iterable[Filter]) -> Pushed:
    """The ranges for a conjunction of conditions. Unsupported conditions are ignored."""
    queue_conditions: list[Condition] = []
    offsets = times_ms = (0, FAR)
    values: dict[str, frozenset[str]] = {}
    for each in filter(_compares, conditions):
        column = str(each.attribute[0])
        if column in QUEUE_COLUMNS:
            queue_conditions.append(each)
        elif column == "queueOffset":
            offsets = _narrowed(offsets, each, lambda value: (value, value + 1))
        elif column == "storeTimestamp":
            times_ms = _narrowed(times_ms, each, _milliseconds)
        elif column in {"tags", "keys"} and isinstance(each, EqualTo | EqualNullSafe | In):
            wanted = frozenset(each.value if isinstance(each, In) else [each.value]) - {None}
            values[column] = values.get(column, wanted) & wanted
    return Pushed(tuple(queue_conditions), offsets, times_ms, values)


def _compares(condition: Filter) -> TypeGuard[Condition]:
    """Whether the condition compares a column with values that are not null."""
    if not isinstance(condition, Condition) or len(condition.attribute) != 1:
        return False
    return isinstance(condition, In) or condition.value is not None


def _holds(condition: Condition, value: object) -> bool:
    if isinstance(condition, In):
        return value in condition.value
    return COMPARE[type(condition)](value, condition.value)


def _narrowed(
    bounds: tuple[int, int], condition: Condition, place: Callable[[Any], tuple[int, int]]
) -> tuple[int, int]:
    """`place` gives the first whole number at or above a value, and the first one above it."""
    low, high = bounds
    if isinstance(condition, In):
        places = [place(value) for value in condition.value if value is not None]
        return max(low, min((at for at, _ in places), default=FAR)), min(
            high, max((end for _, end in places), default=0)
        )
    at, above = place(condition.value)
    match condition:
        case GreaterThan():
            return max(low, above), high
        case GreaterThanOrEqual():
            return max(low, at), high
        case LessThan():
            return low, min(high, at)
        case LessThanOrEqual():
            return low, min(high, above)
    return max(low, at), min(high, above)


def _milliseconds(time: datetime) -> tuple[int, int]:
    seconds = int(time.replace(microsecond=0).timestamp())
    whole, rest = divmod(seconds * 1_000_000 + time.microsecond, 1000)
    return whole + (rest > 0), whole + 1
