"""Messages spread over queues, retries leave the broker that failed, keys stay together."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from orbitmq.client.core.latency import PROFILES, BrokerLatencies, FaultTable
from orbitmq.client.core.selection import (
    COUNTER_MASK,
    TURNS_MAX,
    QueueChooser,
    RoundRobin,
    Turns,
    position_of_key,
    queue_of_key,
)
from orbitmq.message.model import MessageQueue
from tests.support.golden import vectors

QUEUES = [MessageQueue("T", broker, n) for broker in ("a", "b") for n in range(3)]


def test_every_queue_gets_its_turn() -> None:
    cursor = RoundRobin(start=4)
    taken = [cursor.select(QUEUES) for _ in range(12)]
    assert taken[:3] == [QUEUES[4], QUEUES[5], QUEUES[0]]
    assert set(Counter(taken).values()) == {2}


def test_the_counter_wraps_without_a_negative_position() -> None:
    cursor = RoundRobin(start=COUNTER_MASK)
    assert cursor.select(QUEUES) == QUEUES[COUNTER_MASK % 6]
    assert cursor.select(QUEUES) == QUEUES[0]


def test_a_retry_goes_to_another_broker() -> None:
    for start in range(6):
        assert RoundRobin(start).select(QUEUES, avoid_broker="a").broker_name == "b"


def test_with_one_broker_a_retry_goes_there_again() -> None:
    assert RoundRobin(1).select(QUEUES[:3], avoid_broker="a").broker_name == "a"


# ------------------------------------------------------------------------------------------- sends side by side

MANY = [MessageQueue("T", broker, n) for broker in "abcd" for n in range(4)]


def side_by_side(turns: Turns, count: int) -> list[MessageQueue]:
    """What so many sends take that are under way at the same time."""
    taken = [turns.take(len(MANY)) for _ in range(count)]
    queues = [turn.select(MANY) for turn in taken]
    for turn in reversed(taken):
        turns.give_back(turn)
    return queues


def test_sends_one_after_the_other_take_every_queue_in_turn() -> None:
    turns = Turns(5)
    queues = [side_by_side(turns, 1)[0] for _ in range(32)]
    begin = MANY.index(queues[0])
    assert queues == [MANY[(begin + n) % 16] for n in range(32)]


@pytest.mark.parametrize("start", range(16))
def test_sends_side_by_side_do_not_come_to_one_broker_together(start: int) -> None:
    turns = Turns(start)
    for _ in range(16):
        assert len({queue.broker_name for queue in side_by_side(turns, 4)}) >= 3


def test_a_turn_leaves_the_queues_of_a_broker_behind() -> None:
    turn = RoundRobin(5)
    turn.leave(MANY, "b")
    assert turn.select(MANY) == MANY[8]
    turn.leave(MANY, "b")
    assert turn.select(MANY) == MANY[9], "those of another broker stay next"
    turn.leave(MANY[:4], "a")
    assert turn.select(MANY[:4]).broker_name == "a", "there is no other"


@pytest.mark.parametrize("count", [16, 48, TURNS_MAX, 4 * TURNS_MAX])
def test_bursts_spread_evenly(count: int) -> None:
    turns = Turns(7)
    for _ in range(3):
        assert Counter(side_by_side(turns, count)) == dict.fromkeys(MANY, count // 16)


@pytest.mark.parametrize("size", range(1, 65))
def test_new_turns_start_at_every_queue(size: int) -> None:
    turns, queues = Turns(0), [MessageQueue("T", "a", n) for n in range(size)]
    assert {turns.take(size).select(queues) for _ in range(size)} == set(queues)


def _has_a_python_form(case: dict[str, Any]) -> bool:
    """A negative Java long that fits an int hashes unlike that int; Python knows one whole number only."""
    return case["argType"] != "Long" or not -(2**31) <= int(case["arg"]) < 0


@pytest.mark.parametrize("case", [case for case in vectors()["select_queue_by_hash"] if _has_a_python_form(case)])
def test_keys_choose_the_queue_java_chooses(case: dict[str, Any]) -> None:
    key = case["arg"] if case["argType"] == "String" else int(case["arg"])
    assert position_of_key(key, case["size"]) == case["queueId"]


def test_a_key_has_one_queue() -> None:
    assert queue_of_key(QUEUES, "order-10001") == queue_of_key(QUEUES, b"order-10001") == QUEUES[478770291 % 6]


# ------------------------------------------------------------------------------------- brokers that are slow or failed


def choosing(**tables: Any) -> QueueChooser:
    return QueueChooser(Random(1), **tables)


def chosen(made: QueueChooser, count: int = 60, *, avoid: str | None = None, now_ms: int = 0) -> Counter[MessageQueue]:
    turn = made.turns("T").shared
    return Counter(made.choose(turn, QUEUES, avoid, now_ms) for _ in range(count))


def test_a_broker_that_failed_is_left_out_and_comes_back() -> None:
    made = choosing(faults=FaultTable())
    made.note("a", 5, 0, failed=True)
    made.note("b", 5, 0, failed=False)
    assert chosen(made) == dict.fromkeys(QUEUES[3:], 20)
    assert chosen(made, now_ms=600_000) == dict.fromkeys(QUEUES, 10)


def test_a_retry_prefers_another_broker_and_takes_the_same_before_one_that_is_left_out() -> None:
    made = choosing(faults=FaultTable())
    assert {queue.broker_name for queue in chosen(made, avoid="a")} == {"b"}
    made.note("b", 5, 0, failed=True)
    assert {queue.broker_name for queue in chosen(made, avoid="a")} == {"a"}


def test_when_all_are_left_out_messages_go_to_the_least_bad() -> None:
    made = choosing(faults=FaultTable())
    made.note("a", 4000, 0, failed=True)
    made.note("b", 900, 0, failed=True)
    assert {queue.broker_name for queue in chosen(made)} == {"b"}


def test_most_messages_go_to_the_fastest_and_some_find_out_about_the_others() -> None:
    made = choosing(latencies=BrokerLatencies())
    for _ in range(10):
        made.note("a", 9, 0, failed=False)
        made.note("b", 3, 0, failed=False)
    by_broker = Counter(queue.broker_name for queue in chosen(made, 3000).elements())
    assert by_broker["b"] > 2850
    assert by_broker["a"] > 0
    made.note("b", 5, 0, failed=True)
    assert Counter(queue.broker_name for queue in chosen(made, 300).elements()).most_common(1)[0][0] == "a"


def test_nothing_is_measured_unless_asked_for() -> None:
    made = choosing()
    assert not made.measures
    assert chosen(made) == dict.fromkeys(QUEUES, 10)


def test_the_later_profile_takes_a_sound_broker_then_one_in_reach_then_any() -> None:
    made = choosing(faults=FaultTable(PROFILES["v5"]))
    made.note("a", 5, 0, failed=True)
    assert {queue.broker_name for queue in chosen(made)} == {"b"}
    assert {queue.broker_name for queue in chosen(made, avoid="b")} == {"a"}, "left out, but in reach"
    made.note("a", 5, 0, failed=True, reachable=False)
    assert {queue.broker_name for queue in chosen(made, avoid="b")} == {"a", "b"}


def test_what_a_retry_takes_is_not_the_next_in_step() -> None:
    made = choosing(faults=FaultTable())
    assert len(chosen(made, 200, avoid="a")) == 3
