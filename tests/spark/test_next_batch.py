"""From a stream's offset and what its brokers hold to the next batch: new, held and lost queues."""

from __future__ import annotations

import logging

import pytest

from orbitmq.errors import SourceError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.next_batch import ClusterSnapshot, NextBatch, next_batch
from orbitmq.spark.stream_offset import StreamOffset

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
B0 = MessageQueue("orders", "broker-b", 0)
START = StreamOffset({A0: 50, A1: 5}, {A0: 20, A1: 5})


def all_of(found: NextBatch) -> StreamOffset:
    return found.advanced(found.waiting)


def test_a_batch_takes_what_waits_and_repeats_the_beginning_of_what_was_never_read() -> None:
    found = next_batch(START, ClusterSnapshot({A0: (0, 80), A1: (0, 5)}), strict=True)
    assert found.waiting == {A0: 30}
    assert all_of(found) == StreamOffset({A0: 80, A1: 5}, {A1: 5})


def test_new_queues_begin_with_their_first_message() -> None:
    found = next_batch(START, ClusterSnapshot({A0: (0, 50), A1: (0, 5), B0: (7, 9)}), strict=True)
    assert all_of(found) == StreamOffset({A0: 50, A1: 5, B0: 9}, {A1: 5, B0: 7})


def test_a_run_with_a_target_reads_no_further_and_takes_no_new_queues() -> None:
    seen = ClusterSnapshot({A0: (0, 80), A1: (0, 9), B0: (7, 9)})
    assert all_of(next_batch(START, seen, strict=True, target={A0: 60, A1: 5})).at == {A0: 60, A1: 5}


def test_queues_of_brokers_that_do_not_answer_stay_where_they_are() -> None:
    found = next_batch(START, ClusterSnapshot({A1: (0, 9)}, held=frozenset({A0})), strict=True)
    assert all_of(found).at == {A0: 50, A1: 9}


@pytest.mark.parametrize(
    ("seen", "told", "end"),
    [
        (
            ClusterSnapshot({A0: (57, 80), A1: (0, 5)}),
            "queue 0 of topic orders on broker-a: the stream is at 50, the broker has 57 to 80; 7 messages are lost",
            StreamOffset({A0: 80, A1: 5}, {A0: 57, A1: 5}, lost=7),
        ),
        (
            ClusterSnapshot({A0: (0, 3), A1: (0, 5)}),
            "the stream is at 50, the broker has 0 to 3; the queue was recreated",
            StreamOffset({A0: 3, A1: 5}, {A0: 0, A1: 5}),
        ),
        (
            ClusterSnapshot({A1: (0, 5)}, gone=frozenset({A0})),
            "queue 0 of topic orders on broker-a no longer exists, the stream was at 50",
            StreamOffset({A1: 5}, {A1: 5}),
        ),
    ],
    ids=["deleted by retention", "recreated", "queue removed"],
)
def test_lost_messages_end_the_query_or_are_counted(
    seen: ClusterSnapshot, told: str, end: StreamOffset, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SourceError, match=r"^ORBITMQ_DATA_LOSS: ") as caught:
        next_batch(START, seen, strict=True)
    assert told in str(caught.value)
    with caplog.at_level(logging.WARNING):
        assert all_of(next_batch(START, seen, strict=False)) == end
    assert told in caplog.text


def test_counts_of_lost_messages_add_up() -> None:
    before = StreamOffset({A0: 50}, {}, lost=3)
    assert next_batch(before, ClusterSnapshot({A0: (57, 80)}), strict=False).lost == 10


def test_queues_the_options_no_longer_name_are_left_out() -> None:
    assert all_of(next_batch(START, ClusterSnapshot({A1: (0, 5)}), strict=True)).at == {A1: 5}


def test_new_queues_begin_where_their_archive_ended(caplog: pytest.LogCaptureFixture) -> None:
    archived = {A0: 10, B0: 8}
    found = next_batch(START, ClusterSnapshot({A0: (0, 50), A1: (0, 5), B0: (7, 9)}), strict=True, archived=archived)
    assert all_of(found) == StreamOffset({A0: 50, A1: 5, B0: 9}, {A1: 5, B0: 8})
    seen = ClusterSnapshot({A0: (0, 50), A1: (0, 5), B0: (9, 12)})
    with pytest.raises(SourceError, match="the stream is at 8, the broker has 9 to 12; 1 messages are lost"):
        next_batch(START, seen, strict=True, archived=archived)
    assert next_batch(START, seen, strict=False, archived=archived).at[B0] == 9
