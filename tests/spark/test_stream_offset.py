"""The form of a stream's offset: equal ones are equal texts, and a first batch knows its own beginning."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import SourceError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.fetch import OffsetRange
from orbitmq.spark.stream_offset import StreamOffset, ranges

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
QUEUES = st.builds(MessageQueue, st.sampled_from("xyz"), st.sampled_from("ab"), st.integers(0, 20))
OFFSETS = st.dictionaries(QUEUES, st.integers(0, 1 << 62))


def test_the_form_is_the_documented_one() -> None:
    form = StreamOffset({A1: 5, A0: 123}, {A0: 100}, lost=7).as_json()
    assert json.dumps(form) == (
        '{"from": {"orders": {"broker-a": {"0": 100}}}, "lost": 7, '
        '"q": {"orders": {"broker-a": {"0": 123, "1": 5}}}, "v": 1}'
    )


@given(OFFSETS, OFFSETS, st.integers(0, 9), st.randoms())
def test_equal_offsets_are_equal_texts_and_come_back(
    at: dict[MessageQueue, int], begins: dict[MessageQueue, int], lost: int, random: object
) -> None:
    offset = StreamOffset(at, begins, lost)
    shuffled = list(at.items())
    random.shuffle(shuffled)
    text = json.dumps(offset.as_json())
    assert json.dumps(StreamOffset(dict(shuffled), begins, lost).as_json()) == text
    assert StreamOffset.of_json(json.loads(text)) == offset


@pytest.mark.parametrize("form", [{"v": 2, "q": {}}, {"offset": 5}, {"v": 1, "q": {"t": 5}}, [], None, {"v": 1}])
def test_the_checkpoint_of_something_else_is_refused(form: object) -> None:
    with pytest.raises(SourceError, match=r"^ORBITMQ_BAD_CHECKPOINT: "):
        StreamOffset.of_json(form)


def test_a_batch_begins_where_the_one_before_ended_unless_its_end_says_otherwise() -> None:
    start = StreamOffset({A0: 10, A1: 20})
    assert list(ranges(start, StreamOffset({A0: 15, A1: 20}))) == [OffsetRange(A0, 10, 15), OffsetRange(A1, 20, 20)]
    assert list(ranges(start, StreamOffset({A0: 15, A1: 20}, {A0: 12}))) == [
        OffsetRange(A0, 12, 15),
        OffsetRange(A1, 20, 20),
    ]
    with pytest.raises(SourceError, match=r"^ORBITMQ_BAD_CHECKPOINT: queue 1 of topic orders"):
        list(ranges(StreamOffset({A0: 10}), StreamOffset({A0: 15, A1: 20})))


def test_beginnings_are_kept_until_something_was_read() -> None:
    assert StreamOffset({A0: 10, A1: 20}, {A0: 10, A1: 15}).kept_begins == {A0: 10}
