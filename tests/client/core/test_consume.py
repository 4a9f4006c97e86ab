"""Nothing a listener did not confirm is forgotten."""

from __future__ import annotations

import pytest

from orbitmq.client.core.consume import as_the_listener_sees, chunks, first_failed, retry_copies
from orbitmq.client.core.model import ACK_ALL, ConcurrentContext, ConsumeConcurrentlyStatus
from orbitmq.message.model import MessageExt, MessageQueue

SUCCESS, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER


def context(ack_index: int = ACK_ALL) -> ConcurrentContext:
    return ConcurrentContext(MessageQueue("T", "b", 0), ack_index=ack_index)


@pytest.mark.parametrize(
    ("status", "ack_index", "expected"),
    [
        (SUCCESS, ACK_ALL, 3),
        (SUCCESS, 0, 1),
        (SUCCESS, -1, 0),
        (SUCCESS, -9, 0),
        (LATER, ACK_ALL, 0),
        (LATER, 2, 0),
        (None, ACK_ALL, 0),
    ],
)
def test_what_is_behind_the_acknowledged_index_failed(
    status: ConsumeConcurrentlyStatus | None, ack_index: int, expected: int
) -> None:
    assert first_failed(status, context(ack_index), 3) == expected


def test_chunks_keep_the_order() -> None:
    messages = [MessageExt("T", b"x", queue_offset=n) for n in range(5)]
    assert [[m.queue_offset for m in chunk] for chunk in chunks(messages, 2)] == [[0, 1], [2, 3], [4]]


def test_a_retry_copy_remembers_where_it_came_from() -> None:
    original = MessageExt(
        "T",
        b"body",
        flag=3,
        reconsume_times=2,
        offset_msg_id="OFFSETID",
        properties={"TAGS": "a", "TRAN_MSG": "true", "UNIQ_KEY": "U"},
    )
    copy = next(retry_copies(original, "g", 16))
    assert (copy.topic, copy.body, copy.flag, copy.delay_level) == ("%RETRY%g", b"body", 3, 5)
    assert copy.properties == {
        "TAGS": "a",
        "WAIT": "true",
        "UNIQ_KEY": "U",
        "ORIGIN_MESSAGE_ID": "OFFSETID",
        "RETRY_TOPIC": "T",
        "RECONSUME_TIME": "3",
        "MAX_RECONSUME_TIMES": "16",
        "DELAY": "5",
    }
    assert "RETRY_TOPIC" not in original.properties


def test_each_further_copy_needs_less_room_and_the_last_ones_are_dead() -> None:
    own = {"TAGS": "a", "UNIQ_KEY": "U", "k": "v"}
    again = {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "O", "WAIT": "false", "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0"}
    original = MessageExt(
        "T", b"b", reconsume_times=2, properties={**own, **again, "DELAY": "4", "CLUSTER": "C", "TRAN_MSG": "true"}
    )
    counts = {"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16"}
    dead = {"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "2"}
    assert [copy.properties for copy in retry_copies(original, "g", 16)] == [
        {**own, **again, **counts, "DELAY": "5"},
        {**own, **counts, "RETRY_TOPIC": "T", "DELAY": "5"},
        {**own, **dead, "RETRY_TOPIC": "T"},
        {**own, **dead},
    ]


def test_a_second_retry_keeps_the_first_origin() -> None:
    again = MessageExt("%RETRY%g", b"b", properties={"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "FIRST"})
    copy = next(retry_copies(again, "g", 16))
    assert (copy.properties["RETRY_TOPIC"], copy.properties["ORIGIN_MESSAGE_ID"]) == ("T", "FIRST")
    assert as_the_listener_sees(again, "g").topic == "T"
    foreign = MessageExt("%RETRY%other", b"b", properties={"RETRY_TOPIC": "T"})
    assert as_the_listener_sees(foreign, "g").topic == "%RETRY%other"
