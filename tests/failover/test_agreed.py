"""Where two logs part, compared with logs themselves."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.failover.agreed import Agreed, Boundary, common_end, first, reached

Log = list[tuple[int, int]]  # epoch and number of each entry


def history_of(log: Log) -> list[Boundary]:
    """The epochs of a log, each where its first entry is."""
    return [Boundary(log[at][0], at) for at in range(len(log)) if not at or log[at][0] != log[at - 1][0]]


@st.composite
def logs(draw: st.DrawFn) -> tuple[Log, Log]:
    """Two logs that elections may have left: in each epoch one of them is the master's, and the other has a part of
    what it wrote, all of what it wrote, or nothing.
    """
    both: list[Log] = [[], []]
    for epoch in range(1, draw(st.integers(2, 6))):
        leader = draw(st.integers(0, 1))
        other = 1 - leader
        follows = draw(st.booleans())
        if follows:
            end = common_length(*both)
            del both[other][end:]
            both[other] += both[leader][end : draw(st.integers(end, len(both[leader])))]
        start = len(both[leader])
        both[leader] += [(epoch, number) for number in range(draw(st.integers(0, 4)))]
        if follows and len(both[other]) == start:
            both[other] += both[leader][start : draw(st.integers(start, len(both[leader])))]
    return both[0], both[1]


def common_length(one: Log, other: Log) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@given(logs())
def test_logs_are_cut_where_they_part(both: tuple[Log, Log]) -> None:
    own, agreed = both
    history = [*history_of(agreed), Boundary(99, len(agreed))]  # it has just been elected
    assert common_end(history_of(own), len(own), history) == common_length(own, agreed)


def test_what_is_known_may_not_reach_back() -> None:
    assert common_end([Boundary(3, 700)], 900, [Boundary(5, 800)]) is None
    assert common_end([], 900, [Boundary(1, 0)]) is None, "a log of which no epoch is known"
    assert common_end([], 0, [Boundary(5, 800)]) == 0, "an empty one copies all that there is"


def test_an_elected_log_has_the_epochs_that_it_has_bytes_of() -> None:
    agreed = Agreed(2, "a", ("a", "b"), (Boundary(1, 0), Boundary(2, 50)))
    assert agreed.elect("b", 40, agreed.history).history == (Boundary(1, 0), Boundary(3, 40))
    assert agreed.elect("b", 60, agreed.history).history == (Boundary(1, 0), Boundary(2, 50), Boundary(3, 60))
    assert agreed.elect("b", 0, agreed.history).history == (Boundary(3, 0),)
    assert all(a.start < b.start for a, b in pairwise(agreed.elect("b", 60, agreed.history).history))


def test_the_former_master_has_to_join_again() -> None:
    agreed = Agreed(4, "a", ("a", "b", "c"), (Boundary(4, 0),), successor="c")
    assert agreed.elect("c", 10, agreed.history).in_sync == ("b", "c")
    assert agreed.elect("a", 10, agreed.history).in_sync == ("a", "b", "c")
    assert agreed.elect("c", 10, agreed.history).successor == ""
    assert first("x").in_sync == ("x",)


def test_only_what_was_reached_counts() -> None:
    assert reached([Boundary(1, 0), Boundary(2, 5)], 5) == [Boundary(1, 0)]
