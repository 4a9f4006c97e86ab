"""Queues are summed up by topic and by member, and what is not known of one is not known of the sum."""

from __future__ import annotations

import msgspec

from orbitmq.admin.progress import GroupQueue, QueueState
from orbitmq.admin.shares import QueueSpread, by_client, by_topic


def queue(topic: str, number: int, **more: object) -> GroupQueue:
    made = GroupQueue(
        topic, "b", number, QueueState.BEHIND, lag_messages=3, expired_messages=0, delay_ms=10, client_id="x"
    )
    return msgspec.structs.replace(made, **more)


def test_topics_keep_their_order_and_have_sums_and_the_longest_wait() -> None:
    found = by_topic([queue("T", 0, delay_ms=70, last_consumed_at_ms=5), queue("S", 0), queue("T", 1, lag_messages=4)])
    assert [(one.name, one.queues, one.lag_messages, one.delay_ms) for one in found] == [
        ("T", 2, 7, 70),
        ("S", 1, 3, 10),
    ]
    assert [one.last_consumed_at_ms for one in found] == [5, None]


def test_a_sum_with_an_unknown_part_is_unknown_and_tells_the_least() -> None:
    (found,) = by_topic([queue("T", 0), queue("T", 1, lag_messages=None, delay_ms=None, expired_messages=None)])
    assert (found.lag_messages, found.known_lag_messages, found.delay_ms, found.expired_messages) == (
        None,
        3,
        None,
        None,
    )


def test_a_topic_has_the_least_the_mean_and_the_most_of_its_queues() -> None:
    queues = [queue("T", 0, lag_messages=0, delay_ms=0), queue("T", 1, lag_messages=7, delay_ms=50), queue("S", 0)]
    found = by_topic([*queues, queue("S", 1, lag_messages=None, delay_ms=None)])
    assert [(one.lag_by_queue, one.delay_by_queue) for one in found] == [
        (QueueSpread(0, 3.5, 7), QueueSpread(0, 25, 50)),
        (None, None),
    ]


def test_queues_nobody_has_belong_to_no_member() -> None:
    found = by_client([queue("T", 0), queue("T", 1, client_id="y"), queue("T", 2, client_id=None)])
    assert {name: one.queues for name, one in found.items()} == {"x": 1, "y": 1}
