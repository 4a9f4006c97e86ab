"""Where consumption starts: the stored offset, else what the group wants of old messages."""

from __future__ import annotations

import pytest

from orbitmq.client.core.offsets import StartLookup, start_position
from orbitmq.wire.bodies import ConsumeFromWhere as Where

LAST, FIRST, TIME = Where.CONSUME_FROM_LAST_OFFSET, Where.CONSUME_FROM_FIRST_OFFSET, Where.CONSUME_FROM_TIMESTAMP


@pytest.mark.parametrize("where", Where)
@pytest.mark.parametrize("topic", ["T", "%RETRY%g"])
def test_a_stored_offset_wins(topic: str, where: Where) -> None:
    assert start_position(topic, 0, where) == 0
    assert start_position(topic, 42, where) == 42


@pytest.mark.parametrize(
    ("where", "topic", "expected"),
    [
        (LAST, "T", StartLookup.MAX_OFFSET),
        (LAST, "%RETRY%g", 0),
        (Where.CONSUME_FROM_MAX_OFFSET, "T", StartLookup.MAX_OFFSET),
        (FIRST, "T", StartLookup.MIN_OFFSET),
        (FIRST, "%RETRY%g", 0),
        (TIME, "T", StartLookup.OFFSET_OF_TIME),
        (TIME, "%RETRY%g", StartLookup.MAX_OFFSET),
    ],
)
def test_a_new_group_starts_where_it_wants(where: Where, topic: str, expected: int | StartLookup) -> None:
    assert start_position(topic, -1, where) == expected
