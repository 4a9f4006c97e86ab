"""Offset texts mean what Spark's Kafka source taught, and an impossible offset is told."""

from __future__ import annotations

import json

import pytest

from orbitmq.errors import SourceError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.offsets import ends, parse_offsets, starts

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
B0 = MessageQueue("orders", "broker-b", 0)
BOUNDS = {A0: (10, 100), A1: (0, 0), B0: (5, 50)}


def parsed(text: str, queues: tuple[MessageQueue, ...] = (A0, A1, B0), *, strict: bool = True) -> object:
    return parse_offsets("startingOffsets", text, queues, strict=strict)


def test_offsets_are_named_by_topic_broker_and_queue() -> None:
    text = json.dumps({"orders": {"broker-a": {"0": 23, "1": -2}, "broker-b": {"0": -1}}})
    assert parsed(text) == {A0: 23, A1: -2, B0: -1}


def test_the_broker_may_be_left_out_where_there_is_one() -> None:
    assert parsed('{"orders": {"0": 23}}', (A0, A1)) == {A0: 23}
    with pytest.raises(SourceError, match=r"^ORBITMQ_BAD_OPTION: option startingOffsets.*broker-a, broker-b"):
        parsed('{"orders": {"0": 23}}')


@pytest.mark.parametrize(
    "text",
    [
        "latest",
        "",
        "[1]",
        '{"orders": 5}',
        '{"orders": {"broker-a": {"0": "x"}}}',
        '{"orders": {"broker-a": {"0": -3}}}',
        '{"orders": {"broker-a": {"zero": 3}}}',
        '{"orders": {"broker-a": {"0": true}}}',
        '{"payments": {"0": 1}}',
    ],
)
def test_a_text_that_is_no_offsets_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match=r"^ORBITMQ_BAD_OPTION: option startingOffsets"):
        parsed(text)


def test_a_queue_that_does_not_exist_is_data_loss() -> None:
    text = '{"orders": {"broker-a": {"0": 23, "9": 4}}}'
    with pytest.raises(SourceError, match=r"^ORBITMQ_DATA_LOSS: .*queue 9 of topic orders"):
        parsed(text)
    assert parsed(text, strict=False) == {A0: 23}


def test_queues_without_an_offset_begin_at_earliest_and_end_at_latest() -> None:
    assert starts({A0: 20, B0: -2}, BOUNDS, strict=True) == {A0: 20, A1: 0, B0: 5}
    assert starts({A0: -1}, BOUNDS, strict=True)[A0] == 100
    assert ends({A0: 20, B0: -1}, BOUNDS, strict=True) == {A0: 20, A1: 0, B0: 50}


@pytest.mark.parametrize(("offset", "text"), [(3, "7 messages lost"), (101, "the broker has 10 to 100")])
def test_a_start_the_broker_does_not_have_is_data_loss(offset: int, text: str) -> None:
    with pytest.raises(SourceError, match=rf"^ORBITMQ_DATA_LOSS: .*start at {offset}, .*{text}"):
        starts({A0: offset}, BOUNDS, strict=True)
    assert starts({A0: offset}, BOUNDS, strict=False)[A0] == 10


def test_an_end_the_broker_does_not_have_yet_is_data_loss() -> None:
    with pytest.raises(SourceError, match=r"^ORBITMQ_DATA_LOSS: .*end at 101"):
        ends({A0: 101}, BOUNDS, strict=True)
    assert ends({A0: 101}, BOUNDS, strict=False)[A0] == 100


def test_a_batch_cannot_end_at_earliest() -> None:
    with pytest.raises(SourceError, match=r"^ORBITMQ_BAD_OPTION: option endingOffsets"):
        ends({A0: -2}, BOUNDS, strict=True)
