"""Threads and nodes follow from computation, waiting and peak."""

from __future__ import annotations

import pytest

from orbitmq.client.core.capacity import THREADS_MAX, Times, nodes_for, threads_for


@pytest.mark.parametrize(
    ("cores", "compute_s", "wait_s", "threads"),
    [(1, 0.010, 0.0, 1), (1, 0.010, 0.090, 10), (4, 0.010, 0.090, 40), (2, 0.004, 0.001, 3), (1, 0.001, 60, 1000)],
)
def test_threads_keep_every_core_busy(cores: float, compute_s: float, wait_s: float, threads: int) -> None:
    assert threads_for(cores, compute_s, wait_s) == threads


def test_waiting_alone_takes_as_many_threads_as_there_may_be() -> None:
    assert threads_for(1, 0, 1) == THREADS_MAX
    assert threads_for(1, 0, 0) == 1


def test_nodes_share_the_peak() -> None:
    assert [nodes_for(peak, 1000) for peak in (0, 1, 1000, 1001, 5000)] == [1, 1, 1, 2, 5]


@pytest.mark.parametrize("wrong", [(0, 1, 1), (1, -1, 1), (1, 1, -1)])
def test_impossible_figures_are_refused(wrong: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        threads_for(*wrong)
    with pytest.raises(ValueError, match="node_per_s 0"):
        nodes_for(1, 0)


def test_times_add_up_to_a_recommendation() -> None:
    times = Times().add(10, 0.010, 0.100).add(10, 0.010, 0.100)
    assert (times.messages, times.compute_ms, times.wait_ms) == (20, 1.0, pytest.approx(9.0))
    assert times.threads() == 10
    assert times.threads(cores=4) == 40
    assert times.throughput(5) == pytest.approx(500)
    assert times.throughput(20) == pytest.approx(1000), "more threads than the core can feed do not help"
    assert times.nodes(2500, threads=10) == 3
    assert Times().threads() == 1
    with pytest.raises(ValueError, match="node_per_s 0"):
        Times().nodes(1, 1)


def test_clocks_that_disagree_make_no_negative_waiting() -> None:
    assert Times().add(1, 0.002, 0.001).wait_s == 0
