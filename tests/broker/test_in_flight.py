"""How many requests are under way, and since when."""

from __future__ import annotations

import pytest

from orbitmq.broker.in_flight import InFlight
from orbitmq.runtime.clock import ManualClock


def test_the_oldest_counts_while_it_lasts() -> None:
    clock = ManualClock()
    work = InFlight(clock)
    assert (len(work), work.oldest_ms) == (0, 0)
    first, second = work.one(), work.one()
    with second:
        clock.advance(10)
        with first:
            clock.advance(5)
            assert (len(work), work.oldest_ms) == (2, 15)
        assert (len(work), work.oldest_ms) == (1, 15)
    assert len(work) == 0


def test_one_that_fails_is_over() -> None:
    work = InFlight(ManualClock())
    with pytest.raises(ValueError, match="broken"), work.one():
        raise ValueError("broken")
    assert len(work) == 0
