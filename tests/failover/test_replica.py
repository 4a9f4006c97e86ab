"""What a replica decides in an order of events that simulations seldom have."""

from __future__ import annotations

from dataclasses import replace

from orbitmq.failover.agreed import Agreed, Boundary
from orbitmq.failover.replica import Follow, Halt, Propose, Replica, View

AGREED = Agreed(3, "a", ("a", "b"), (Boundary(1, 0), Boundary(3, 500)))
HELD = View(AGREED, 10, ("a/1", 3), 20)
VACANT = View(AGREED, 10, None, 21)
RENEWED = View(AGREED, 10, ("a/1", 3), 22)


def follower(me: str) -> Replica:
    replica = Replica(me, f"{me}/1")
    assert replica.seen(HELD, 0) == [Follow(AGREED)]
    replica.history = AGREED.history
    return replica


def test_one_that_has_stopped_for_a_lease_that_was_renewed_after_all_follows_again() -> None:
    """As the holder of a Lease of Kubernetes may do, as long as it is taken by no other."""
    replica = follower("b")
    assert replica.seen(VACANT, 10) == [Halt()]
    assert replica.seen(RENEWED, 20) == []
    assert replica.halted(600, 30) == []
    assert replica.seen(replace(RENEWED, read_at=23), 40) == [Follow(AGREED)]
    assert replica.seen(replace(RENEWED, read_at=24), 50) == [], "once"


def test_one_that_may_be_elected_yet_does_not_follow_again() -> None:
    """Its log must not grow: where it ended is in what it has asked for."""
    replica = follower("b")
    replica.seen(VACANT, 10)
    (proposal,) = replica.halted(600, 20)
    assert isinstance(proposal, Propose)
    assert replica.seen(RENEWED, 30) == []
    without = AGREED.with_in_sync(["a"])
    assert replica.seen(View(without, 25, ("a/1", 3), 25), 1000) == [Follow(without)], "it can happen no more"


def test_a_master_that_was_fenced_does_not_return_in_its_epoch() -> None:
    replica = Replica("a", "a/2")
    proposed = AGREED.elect("a", 700, AGREED.history)
    replica.seen(View(proposed, 30, ("a/2", 4), 30), 0)
    replica.resign("its disk is full", 10)
    replica.halted(700, 20)
    assert replica.seen(View(proposed, 30, ("a/2", 4), 31), 30) == []
