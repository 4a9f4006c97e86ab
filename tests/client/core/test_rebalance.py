"""An assignment changes what it names and nothing else."""

from __future__ import annotations

from orbitmq.client.core.allocation import AllocateAveragely
from orbitmq.client.core.rebalance import AllocationGuard, change
from orbitmq.message.model import MessageQueue

Q = [MessageQueue("T", "b", n) for n in range(4)]
OTHER = MessageQueue("U", "b", 0)


def test_queues_of_other_topics_stay() -> None:
    step = change("T", held=[Q[0], Q[1], OTHER], assigned=[Q[1], Q[2]])
    assert (step.dropped, step.added) == ((Q[0],), (Q[2],))
    assert step
    assert not change("T", held=[Q[1], OTHER], assigned=[Q[1]])


def test_a_list_without_us_is_followed_only_when_repeated() -> None:
    membership = AllocationGuard()
    assert membership.assignment(AllocateAveragely(), "g", "me", Q, ["me", "you"]) == Q[:2]
    assert membership.assignment(AllocateAveragely(), "g", "me", Q, ["you"]) is None
    assert membership.assignment(AllocateAveragely(), "g", "me", Q, ["me"]) == Q
    assert membership.assignment(AllocateAveragely(), "g", "me", Q, ["you"]) is None
    assert membership.assignment(AllocateAveragely(), "g", "me", Q, ["you"]) == []


def test_nothing_changes_without_members_or_queues() -> None:
    assert AllocationGuard().assignment(AllocateAveragely(), "g", "me", Q, []) is None
    assert AllocationGuard().assignment(AllocateAveragely(), "g", "me", [], ["me"]) is None
