"""How many messages a flush takes along, and that none of them waits for a flush that does not come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.store.flush_waits import LINGER_FLUSHES, LINGER_MAX_S, CommitGroup

FLUSH_S = 0.0005
LINGER_S = FLUSH_S * LINGER_FLUSHES


class Bench:
    """A group with a clock that is turned, and the thread that flushes it done by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.group = CommitGroup(self.look_at_clock)
        self.came = self.taken = 0
        self.comes_meanwhile = 0
        self.is_woken = False

    def look_at_clock(self) -> float:
        """Somebody may come while the other thread does."""
        while self.comes_meanwhile:
            self.comes_meanwhile -= 1
            self.join()
        return self.now_s

    def join(self, count: int = 1) -> bool:
        woken = False
        for _ in range(count):
            self.came += 1
            woken = self.group.join()
            self.is_woken |= woken
        return woken

    def flush(self, meanwhile: int = 0, seconds: float = FLUSH_S) -> None:
        self.taken = self.came
        self.group.begin()
        self.now_s += seconds
        self.join(meanwhile)
        self.group.end()


def test_one_who_sends_alone_is_never_kept_waiting() -> None:
    bench = Bench()
    for _ in range(3):
        assert bench.join()
        assert bench.group.linger_s() == 0
        bench.flush()
        assert bench.group.linger_s() is None


def test_who_comes_first_after_a_flush_waits_for_most_of_the_others() -> None:
    bench = Bench()
    assert bench.join(64)
    bench.flush()
    assert not bench.join(41)
    assert bench.group.linger_s() == LINGER_S
    assert bench.join(), "the 42nd of 64"
    assert bench.group.linger_s() == 0


def test_who_comes_during_a_flush_wakes_nobody_and_waits_for_those_it_told() -> None:
    bench = Bench()
    bench.join(32)
    bench.is_woken = False
    bench.flush(meanwhile=32)
    assert not bench.is_woken
    assert bench.group.linger_s() == LINGER_S
    assert not bench.join(9)
    assert bench.join()


def test_when_enough_came_during_a_flush_the_next_one_follows_at_once() -> None:
    bench = Bench()
    bench.join()
    bench.flush(meanwhile=9)
    assert bench.group.linger_s() == 0


def test_nobody_waits_longer_than_a_few_flushes_take() -> None:
    bench = Bench()
    bench.join(10)
    bench.flush()
    assert not bench.join()
    bench.now_s += LINGER_S / 2
    assert bench.group.linger_s() == LINGER_S / 2
    bench.now_s += LINGER_S / 2
    assert bench.group.linger_s() == 0


def test_for_a_slow_disk_nobody_waits_longer_than_the_limit() -> None:
    bench = Bench()
    bench.join(10)
    bench.flush(seconds=1)
    assert not bench.join()
    assert bench.group.linger_s() == pytest.approx(LINGER_MAX_S)


def test_after_a_pause_the_first_is_flushed_at_once() -> None:
    bench = Bench()
    bench.join(64)
    bench.flush()
    bench.now_s += 1
    assert bench.group.linger_s() is None
    assert bench.join()
    assert bench.group.linger_s() == 0


WHATEVER = st.lists(
    st.tuples(st.sampled_from(["come", "step", "pass"]), st.integers(0, 5), st.integers(0, 3)), max_size=60
)


@given(WHATEVER)
def test_nobody_is_forgotten(history: list[tuple[str, int, int]]) -> None:
    """Whoever waits has woken the thread that flushes, or that is to look again by itself; whenever it comes."""
    bench, pause_s = Bench(), None
    for what, count, meanwhile in history:
        if what == "come":
            bench.join(count)
        elif what == "pass":
            bench.now_s += count * FLUSH_S / 4
        else:  # a step of the thread, as `LogFlusher` takes it
            bench.is_woken, bench.comes_meanwhile = False, meanwhile
            if bench.group.linger_s() == 0:
                bench.flush(meanwhile)
            bench.comes_meanwhile = meanwhile
            pause_s = bench.group.linger_s()
            bench.look_at_clock()
        assert bench.came == bench.taken or bench.is_woken or pause_s is not None
