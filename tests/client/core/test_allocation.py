"""Members compute the same assignment as Java members of the group would."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.core.allocation import (
    AllocateAveragely,
    AllocateByCircle,
    AllocateByConfig,
    AllocateByMachineRoom,
    AllocateConsistentHash,
    AllocateMachineRoomNearby,
    AllocateStrategy,
    allocate,
)
from orbitmq.errors import ConfigurationError
from orbitmq.message.model import MessageQueue
from tests.support.golden import vectors


def queue_room(queue: MessageQueue) -> str:
    return queue.broker_name.split("@")[0]


def client_room(client_id: str) -> str:
    return client_id.split("-")[0]


def nearby(inner: AllocateStrategy | None = None, *, fallback_to_all: bool = False) -> AllocateMachineRoomNearby:
    return AllocateMachineRoomNearby(inner or AllocateAveragely(), queue_room, client_room, fallback_to_all)


SIMPLE = {s.name: s for s in (AllocateAveragely(), AllocateByCircle(), AllocateConsistentHash())}
UNDER_TEST: dict[str, AllocateStrategy] = {
    **SIMPLE,
    "CONSISTENT_HASH_vnode3": AllocateConsistentHash(3),
    "MACHINE_ROOM_NEARBY-AVG": nearby(),
}
EVERYWHERE: dict[str, AllocateStrategy] = {
    **SIMPLE,
    "nearby": nearby(),
    "nearby with fallback": nearby(AllocateByCircle(), fallback_to_all=True),
    "rooms": AllocateByMachineRoom(["r0", "r1", "r2"]),
}


def queue(text: str) -> MessageQueue:
    topic, broker, number = text.split("|")
    return MessageQueue(topic, broker, int(number))


@pytest.mark.parametrize("strategy", [*UNDER_TEST, "MACHINE_ROOM"])
def test_allocation_equals_java(strategy: str) -> None:
    cases = [case for case in vectors()["allocate"] if strategy in case.get("result", {}) and case["mqAll"]]
    assert len(cases) > 20
    for case in cases:
        under_test = UNDER_TEST.get(strategy) or AllocateByMachineRoom(case["consumerIdcs"])
        for client, expected in case["result"][strategy].items():
            mine = allocate(under_test, "g", client, [queue(q) for q in case["mqAll"]], case["cidAll"])
            assert mine == [queue(q) for q in expected], (case["mqAll"], case["cidAll"], client)


def test_java_names_the_strategies_like_this() -> None:
    strategies: list[AllocateStrategy] = [*SIMPLE.values(), nearby(), AllocateByConfig([]), AllocateByMachineRoom([])]
    assert [strategy.name for strategy in strategies] == [
        "AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY-AVG", "CONFIG", "MACHINE_ROOM",
    ]  # fmt: skip


def test_a_client_outside_the_group_gets_nothing() -> None:
    (edge,) = [case for case in vectors()["allocate"] if case.get("currentCID") == "x"]
    for name, expected in edge["edge"].items():
        assert allocate(SIMPLE[name], "g", edge["currentCID"], [queue("T|b|0")], edge["cidAll"]) == expected


@given(st.integers(1, 40), st.integers(1, 12), st.sampled_from(sorted(EVERYWHERE)))
def test_every_queue_has_exactly_one_owner(queue_count: int, member_count: int, strategy: str) -> None:
    queues = [MessageQueue("T", f"r{n % 3}@broker", n // 3) for n in range(queue_count)]
    members = [f"r{n % 4}-10.0.0.{n}@{n}" for n in range(member_count)]
    owned: list[Any] = [q for member in members for q in allocate(EVERYWHERE[strategy], "g", member, queues, members)]
    assert sorted(owned) == sorted(queues)


def test_the_ring_is_the_one_of_the_sheet() -> None:
    queues = [MessageQueue("TopicA", f"broker-{b}", n) for b in "ab" for n in range(4)]
    members = [f"192.168.1.1{n}@100{n + 1}" for n in range(3)]
    owned = [allocate(AllocateConsistentHash(), "g", member, queues, members) for member in members]
    assert [[f"{q.broker_name[-1]}{q.queue_id}" for q in part] for part in owned] == [
        ["a0", "a2", "b1", "b2", "b3"], ["a1", "b0"], ["a3"],
    ]  # fmt: skip


def test_the_hash_and_the_points_of_the_ring_can_be_chosen() -> None:
    queues = [MessageQueue("T", "b", n) for n in range(4)]
    by_last = AllocateConsistentHash(1, lambda text: int(text.rstrip("]")[-1]) if "]" in text else int(text[0]))
    assert allocate(by_last, "g", "1", queues, ["1", "3"]) == queues[:2]
    assert allocate(by_last, "g", "3", queues, ["1", "3"]) == queues[2:]
    assert allocate(AllocateConsistentHash(0), "g", "1", queues, ["1"]) == []
    with pytest.raises(ConfigurationError, match="virtual_nodes -1"):
        AllocateConsistentHash(-1)


def test_configured_queues_are_read_whoever_else_is_there() -> None:
    queues = [MessageQueue("T", "b", n) for n in range(4)]
    mine = AllocateByConfig([queues[2], queues[0], MessageQueue("other", "b", 0)])
    assert allocate(mine, "g", "b", queues, ["a", "b"]) == [queues[0], queues[2]]


def test_what_failed_comes_again_to_members_with_configured_queues() -> None:
    retry = [MessageQueue("%RETRY%g", "b", n) for n in range(2)]
    mine = AllocateByConfig([MessageQueue("T", "b", 0)])
    assert [allocate(mine, "g", member, retry, ["a", "b"]) for member in "ab"] == [retry[:1], retry[1:]]
    assert allocate(AllocateByConfig(retry), "g", "a", retry, ["a", "b"]) == retry


def test_a_member_far_from_all_queues_gets_some_only_with_the_fallback() -> None:
    queues = [MessageQueue("T", f"{room}@b", n) for room in ("r0", "r1") for n in range(4)]
    members = ["r0-a", "r1-b", "r9-far"]
    assert allocate(nearby(), "g", "r9-far", queues, members) == []
    shares = [allocate(nearby(fallback_to_all=True), "g", member, queues, members) for member in members]
    assert Counter(queue_room(q) for q in shares[2]) == {"r0": 2, "r1": 2}
    assert {queue_room(q) for q in shares[0]} == {"r0"}
    assert {queue_room(q) for q in shares[1]} == {"r1"}


def test_a_room_nobody_knows_is_an_error() -> None:
    unknown = AllocateMachineRoomNearby(AllocateAveragely(), queue_room, lambda _: "")
    with pytest.raises(ConfigurationError, match="machine room of a is unknown"):
        allocate(unknown, "g", "a", [MessageQueue("T", "r@b", 0)], ["a"])


def test_members_agree_whatever_order_they_learn_things_in() -> None:
    """Queues go by topic, broker and number, not by the text of the number; client ids by UTF-16 unit, as in Java."""
    queues = [MessageQueue("T", "b", n) for n in range(12)]
    members = ["a\uffff", "a\U0001f680", "B"]
    owned = {one: allocate(AllocateAveragely(), "g", one, queues[::-1], members) for one in members}
    assert owned == {"B": queues[:4], "a\U0001f680": queues[4:8], "a\uffff": queues[8:]}
