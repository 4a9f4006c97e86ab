"""The ledger knows of each half message whether it is open, and which copy stands for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.transactions import ledger as module
from orbitmq.broker.transactions.ledger import STEPS, TRIM_BYTES, OffsetSet, Ledger, HalfState

ONE = ("u1", 1, b"host")
TWO = ("u2", 1, b"host")


def made(position: int = 0) -> Ledger:
    ledger = Ledger()
    ledger.begin(position, 0)
    return ledger


@given(
    base=st.integers(0, 1000),
    offsets=st.sets(st.integers(0, 2000)),
    runs=st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 400)), max_size=5),
)
def test_the_set_is_a_set(base: int, offsets: set[int], runs: list[tuple[int, int]]) -> None:
    offsets = offsets | {start + number for start, length in runs for number in range(length)}
    decided = OffsetSet(base)
    for offset in offsets:
        decided.add(offset)
    kept = {offset for offset in offsets if offset >= base & ~7}
    assert {offset for offset in range(2500) if offset in decided} == kept
    for offset in range(base, 2500, 7):
        expected = next(number for number in range(offset, 3000) if number not in kept)
        assert decided.first_missing(offset) == expected


def test_memory_is_given_back_and_nothing_that_counts_with_it() -> None:
    decided = OffsetSet(5)
    end = 8 * TRIM_BYTES + 100
    for offset in range(5, end + 8):
        decided.add(offset)
    decided.forget_below(end)
    assert len(decided._bits) < 20
    assert end in decided
    assert end + 7 in decided
    assert end + 8 not in decided
    decided.add(5)
    assert 5 not in decided


def test_a_decision_counts_once() -> None:
    ledger = made()
    assert ledger.state(3, ONE) == (HalfState.OPEN, 3)
    ledger.decide(3, ONE)
    assert ledger.state(3, ONE)[0] is HalfState.DECIDED
    assert ledger.state(4, TWO) == (HalfState.OPEN, 4)


def test_the_position_is_that_of_the_oldest_open_message() -> None:
    ledger = made(10)
    for offset in (11, 12, 14):
        ledger.decide(offset, None)
    assert ledger.position == 10
    ledger.decide(10, None)
    assert ledger.position == 13
    ledger.pass_over(13)
    assert ledger.position == 15
    ledger.pass_over(3)
    assert ledger.position == 15


def test_a_long_run_of_decided_messages_is_passed_at_once() -> None:
    ledger = made()
    count = 100 * STEPS + 3
    for offset in range(1, count):
        ledger.decide(offset, None)
    ledger.decide(0, None)
    assert ledger.position == count


def test_what_names_an_old_copy_counts_for_the_newest() -> None:
    ledger = made()
    ledger.copied(5, ONE)
    ledger.pass_over(0)
    ledger.copied(8, ONE)
    assert ledger.state(0, ONE) == (HalfState.OPEN, 8)
    assert ledger.state(5, ONE) == (HalfState.OPEN, 8)
    assert ledger.state(8, ONE) == (HalfState.OPEN, 8)
    ledger.decide(8, ONE)
    for offset in (0, 5, 8):
        assert ledger.state(offset, ONE)[0] is HalfState.DECIDED
    assert ledger.is_decided(ONE)
    assert not ledger.is_decided(TWO)


def test_without_identity_an_old_copy_is_over() -> None:
    ledger = made()
    ledger.copied(5, None)
    ledger.pass_over(0)
    assert ledger.state(0, None) == (HalfState.OVER, 0)
    assert ledger.state(5, None) == (HalfState.OPEN, 5)


def test_a_message_that_was_given_up_may_still_be_decided_once() -> None:
    ledger = made()
    ledger.give_up(ONE)
    ledger.pass_over(0)
    assert ledger.state(0, ONE) == (HalfState.OPEN, 0)
    ledger.decide(0, ONE)
    assert ledger.state(0, ONE)[0] is HalfState.DECIDED


def test_what_was_decided_before_the_start_is_over() -> None:
    assert made(100).state(99, ONE) == (HalfState.OVER, 99)


def test_a_restored_ledger_knows_decisions_and_copies() -> None:
    """Half queue from 10 on: 10 and its copy 12, 11 and its copy 13; 13 is decided."""
    ledger = made(10)
    ledger.restore_decision(13)
    ledger.restore_copy(12, ONE)
    ledger.restore_copy(13, TWO)
    ledger.advance()
    assert ledger.position == 10
    assert ledger.state(10, ONE) == (HalfState.OPEN, 12)
    assert ledger.state(11, TWO)[0] is HalfState.DECIDED
    assert ledger.state(12, ONE) == (HalfState.OPEN, 12)


def test_a_restored_copy_of_a_decided_message_is_decided() -> None:
    """RocketMQ writes the op message for the first place although a copy exists."""
    ledger = made(10)
    ledger.restore_decision(10)
    ledger.restore_copy(12, ONE, origin=10)
    ledger.restore_copy(13, None, origin=10)
    ledger.restore_copy(14, ONE)
    ledger.advance()
    for offset, identity in ((12, ONE), (13, None), (14, ONE)):
        assert ledger.state(offset, identity)[0] is HalfState.DECIDED


def test_no_more_copies_are_remembered_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COPIES_MAX", 2)
    ledger = made()
    for number in range(3):
        ledger.copied(10 + number, (f"u{number}", 1, b""))
        ledger.pass_over(number)
    assert ledger.state(0, ("u0", 1, b"")) == (HalfState.OVER, 0)
    assert ledger.state(2, ("u2", 1, b"")) == (HalfState.OPEN, 12)
    assert ledger.state(10, ("u0", 1, b"")) == (HalfState.OPEN, 10), "the copy itself can still be decided"


@given(st.sets(st.integers(0, 300)), st.integers(0, 100), st.integers(0, 320))
def test_undecided_messages_are_counted_in_pieces(decided: set[int], first: int, end: int) -> None:
    ledger = Ledger()
    ledger.begin(first, 0)
    for offset in decided:
        ledger.restore_decision(offset)
    assert sum(ledger.undecided(end)) == len(set(range(first, end)) - decided)


def test_counting_them_takes_no_long_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 2)
    ledger = Ledger()
    ledger.begin(3, 0)
    ledger.restore_decision(40)
    pieces = list(ledger.undecided(100))
    assert sum(pieces) == 96
    assert max(pieces) <= 3 * 8


def test_op_messages_are_passed_over_when_what_they_decide_is_over() -> None:
    ledger = made()
    assert not ledger.pass_ops()
    for op_offset, offset in enumerate((1, 2, 0)):
        ledger.op_stored(op_offset, offset)
        ledger.decide(offset, None)
        assert ledger.pass_ops() is (offset != 0), "while 0 is open the first of them is needed"
    assert (ledger.position, ledger.op_position) == (3, 3)
    ledger.op_stored(3, 4)
    assert ledger.pass_ops()
    assert ledger.op_position == 3


def test_op_messages_that_others_have_stored_are_left_to_who_reads_them() -> None:
    ledger = made(10)
    ledger.op_stored(5, 3)
    assert not ledger.pass_ops(), "what decides 0 to 4 is not known"
    assert ledger.op_position == 0
    ledger.op_position = 5
    ledger.op_stored(7, 4)
    assert not ledger.pass_ops(), "nor what 5 and 6 do: the queue has gone on without us"
    assert ledger.op_position == 5
    ledger.op_position = 8
    ledger.op_stored(8, 9)
    assert not ledger.pass_ops()
    assert ledger.op_position == 9
    ledger.op_stored(0, 9)
    assert not ledger.pass_ops(), "the queue has begun anew"
    assert ledger.op_position == 9


def test_only_so_many_op_messages_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPS_MAX", 3)
    ledger = made()
    for offset in range(5):
        ledger.op_stored(offset, offset + 1)
    assert len(ledger._ops) == 3
    ledger.position = 9
    assert not ledger.pass_ops()
    assert ledger.op_position == 0
    ledger.op_position = 2
    assert not ledger.pass_ops()
    assert ledger.op_position == 5
