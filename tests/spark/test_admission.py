"""Limits of a batch: shared in proportion, nobody starves, bytes by the size of messages, too few messages wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message.model import MessageQueue
from orbitmq.spark.admission import MeanSize, TriggerLimits, is_due, rows_allowed, shares


def queue(number: int) -> MessageQueue:
    return MessageQueue("orders", "broker-a", number)


@given(st.dictionaries(st.builds(queue, st.integers(0, 2000)), st.integers(0, 10**9)), st.integers(0, 10**9))
def test_every_queue_that_waits_gets_some_and_the_limit_holds(waiting: dict[MessageQueue, int], rows: int) -> None:
    filled = {queue: count for queue, count in waiting.items() if count}
    taken = shares(waiting, rows)
    assert taken.keys() == filled.keys()
    assert all(1 <= taken[queue] <= filled[queue] for queue in filled)
    assert sum(taken.values()) == max(min(rows, sum(filled.values())), len(filled))


def test_a_limit_is_shared_in_proportion() -> None:
    taken = shares({queue(0): 9_001, queue(1): 1_001, queue(2): 1}, 1003)
    assert taken == {queue(0): 901, queue(1): 101, queue(2): 1}


def test_everything_is_taken_when_it_fits() -> None:
    waiting = {queue(0): 10, queue(1): 5}
    assert shares(waiting, 15) == waiting


def test_bytes_become_rows_by_the_size_of_messages() -> None:
    assert rows_allowed(1000, TriggerLimits(), 1e9) == 1000
    assert rows_allowed(1000, TriggerLimits(rows_max=300), 0) == 300
    assert rows_allowed(1000, TriggerLimits(bytes_max=50_000), 100_000) == 500
    assert rows_allowed(1000, TriggerLimits(rows_max=300, bytes_max=50_000), 100_000) == 300
    assert rows_allowed(1000, TriggerLimits(bytes_max=50_000), 50_000) == 1000


def test_the_mean_size_follows_the_messages() -> None:
    size = MeanSize()
    assert size.estimate(10) == 0
    size.add(100, 10_000)
    assert size.estimate(10) == 1000
    for _ in range(200):
        size.add(32, 32_000)
    assert 9_900 < size.estimate(10) <= 10_000


def test_a_batch_waits_for_enough_messages_but_not_for_ever() -> None:
    limits = TriggerLimits(rows_min=100, delay_max_ms=5000)
    assert not is_due(99, limits, 4999)
    assert is_due(100, limits, 0)
    assert is_due(1, limits, 5000)
    assert is_due(0, TriggerLimits(), 0)
