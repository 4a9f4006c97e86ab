"""Members compute the same assignment as Java members of the group would."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.core.allocation import STRATEGIES, Allocate, allocate, by_consistent_hash
from orbitmq.message.model import MessageQueue
from tests.support.golden import vectors

UNDER_TEST: dict[str, Allocate] = {**STRATEGIES, "CONSISTENT_HASH_vnode3": partial(by_consistent_hash, virtual_nodes=3)}


def queue(text: str) -> MessageQueue:
    topic, broker, number = text.split("|")
    return MessageQueue(topic, broker, int(number))


@pytest.mark.parametrize("strategy", UNDER_TEST)
def test_allocation_equals_java(strategy: str) -> None:
    cases = [case for case in vectors()["allocate"] if strategy in case.get("result", {}) and case["mqAll"]]
    assert len(cases) > 20
    for case in cases:
        for client, expected in case["result"][strategy].items():
            mine = allocate(UNDER_TEST[strategy], client, [queue(q) for q in case["mqAll"]], case["cidAll"])
            assert mine == [queue(q) for q in expected], (case["mqAll"], case["cidAll"], client)


def test_a_client_outside_the_group_gets_nothing() -> None:
    (edge,) = [case for case in vectors()["allocate"] if case.get("currentCID") == "x"]
    for name, expected in edge["edge"].items():
        assert allocate(STRATEGIES[name], edge["currentCID"], [queue("T|b|0")], edge["cidAll"]) == expected


@given(st.integers(1, 40), st.integers(1, 12), st.sampled_from(sorted(STRATEGIES)))
def test_every_queue_has_exactly_one_owner(queue_count: int, member_count: int, strategy: str) -> None:
    queues = [MessageQueue("T", f"broker-{n % 3}", n // 3) for n in range(queue_count)]
    members = [f"10.0.0.{n}@{n}" for n in range(member_count)]
    owned: list[Any] = [q for member in members for q in allocate(STRATEGIES[strategy], member, queues, members)]
    assert sorted(owned) == sorted(queues)
