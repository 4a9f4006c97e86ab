"""What a person decides: a switch of the master, a stop, and an election of one that may lack messages."""

from __future__ import annotations

from orbitmq.failover.agreed import Agreed, Boundary
from orbitmq.failover.replica import Fence, Follow, Halt, Lead, Propose, Replica, Role, Timing, View

AGREED = Agreed(3, "a", ("a", "b"), (Boundary(1, 0), Boundary(3, 500)))
HELD = View(AGREED, 10, ("a/1", 3), 20)
VACANT = View(AGREED, 10, None, 21)


def follower(me: str) -> Replica:
    replica = Replica(me, f"{me}/1")
    assert replica.seen(HELD, 0) == [Follow(AGREED)]
    replica.history = AGREED.history
    return replica


def test_one_that_is_not_in_sync_is_elected_by_a_persons_word_alone() -> None:
    replica = follower("c")
    assert replica.take_over(1) == [], "there is a master"
    assert replica.seen(VACANT, 10) == []
    assert replica.tick(100_000) == [], "one that may lack messages does not stand by itself"
    assert replica.take_over(100_001) == [Halt()]
    (proposal,) = replica.halted(700, 100_002)
    wanted = Agreed(4, "c", ("c",), (Boundary(1, 0), Boundary(3, 500), Boundary(4, 700)))
    assert proposal == Propose(wanted, 10, takes_lease=True)
    commands = replica.seen(View(wanted, 22, ("c/1", 4), 22), 100_010)
    assert commands[0] == Lead(wanted)


def test_a_persons_word_is_for_one_election() -> None:
    replica = follower("c")
    replica.seen(VACANT, 10)
    replica.take_over(20)
    replica.halted(700, 21)
    other = AGREED.elect("b", 600, AGREED.history)
    assert replica.seen(View(other, 23, ("b/1", 4), 23), 30) == [Follow(other)]
    assert replica.seen(View(other, 23, None, 24), 40) == []
    assert replica.tick(100_000) == []


def test_a_master_that_stops_gives_up_at_once() -> None:
    timing = Timing()
    replica = Replica("a", "a/1", timing, founds=True)
    (found,) = replica.seen(View(None, 0, None, 1), 0)
    assert isinstance(found, Propose)
    replica.kept(0)
    replica.seen(View(found.agreed, 2, ("a/1", 1), 2), 1)
    assert replica.role is Role.MASTER
    assert replica.resign("it stops", 2) == [Fence("it stops")]
    assert replica.role is Role.HALTING
    assert replica.resign("it stops", 2) == []


def test_a_slave_has_its_time_from_when_it_can_connect() -> None:
    """A master that takes long to begin must not exclude those who wait for it."""
    replica = follower("b")
    replica.seen(VACANT, 10)
    replica.halted(500, 11)
    elected = AGREED.elect("b", 500, AGREED.history).with_in_sync(["b", "c"])
    replica.kept(20)
    replica.seen(View(elected, 30, ("b/1", 4), 30), 20)
    assert replica.role is Role.MASTER
    late = 20 + 2 * replica.timing.gone_ms
    assert replica.tick(late) == [], "slaves cannot connect yet"
    replica.opened(late)
    replica.kept(late)
    assert replica.tick(late + replica.timing.gone_ms / 2) == []
    (change,) = replica.tick(late + replica.timing.gone_ms + 1)
    assert isinstance(change, Propose)
    assert change.agreed.in_sync == ("b",)


# ---------------------------------------------------------------------------------------------------------- maintenance


def test_no_other_one_is_elected_in_maintenance() -> None:
    replica = follower("b")
    maintained = AGREED.in_maintenance(True)
    replica.seen(View(maintained, 11, ("a/1", 3), 21), 5)
    assert replica.seen(View(maintained, 11, None, 22), 10) == []
    assert replica.tick(100_000) == []
    assert replica.role is Role.FOLLOWING, "what it has can be read"


def test_the_last_master_is_elected_again_in_maintenance() -> None:
    """By a new process of the same store."""
    replica = Replica("a", "a/2")
    replica.log_end, replica.history = 600, AGREED.history
    replica.seen(View(AGREED.in_maintenance(True), 11, None, 22), 10)
    (proposal,) = replica.tick(10_000)
    assert isinstance(proposal, Propose)
    assert (proposal.agreed.master, proposal.agreed.epoch, proposal.agreed.maintenance) == ("a", 4, True)


def test_the_one_that_an_operator_switches_to_is_elected_in_maintenance() -> None:
    replica = follower("b")
    handed = AGREED.in_maintenance(True).hand_over("b")
    replica.seen(View(handed, 11, ("a/1", 3), 21), 5)
    assert replica.seen(View(handed, 11, None, 22), 10) == [Halt()]


def test_maintenance_ends_with_the_election_of_one_in_sync() -> None:
    replica = follower("b")
    maintained = AGREED.in_maintenance(True)
    replica.seen(View(maintained, 11, ("a/1", 3), 21), 5)
    assert replica.end_maintenance(6) == [], "the master ends it"
    replica.seen(View(maintained, 11, None, 22), 10)
    assert replica.end_maintenance(10_000) == [Halt()]
    (proposal,) = replica.halted(600, 10_001)
    assert isinstance(proposal, Propose)
    assert (proposal.agreed.master, proposal.agreed.maintenance) == ("b", False)


def test_one_that_is_not_in_sync_does_not_end_maintenance() -> None:
    replica = follower("c")
    replica.seen(View(AGREED.in_maintenance(True), 11, None, 22), 10)
    assert replica.end_maintenance(10_000) == []


def test_a_master_begins_and_ends_maintenance() -> None:
    replica = Replica("a", "a/1", founds=True)
    (found,) = replica.seen(View(None, 0, None, 1), 0)
    assert isinstance(found, Propose)
    replica.kept(0)
    replica.seen(View(found.agreed, 2, ("a/1", 1), 2), 1)
    (change,) = replica.maintain(True)
    assert change == Propose(found.agreed.in_maintenance(True), 2)
    assert replica.maintain(False) == [], "the last one is not decided"
    assert isinstance(change, Propose)
    replica.seen(View(change.agreed, 3, ("a/1", 1), 3), 2)
    assert replica.maintain(False) == [Propose(found.agreed, 3)]
