"""A histogram counts what was not above each bound."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.runtime.histogram import Histogram

BOUNDS = (1.0, 5.0, 10.0)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5))))
def test_each_bucket_holds_what_was_not_above_its_bound(values: list[tuple[int, int]]) -> None:
    histogram = Histogram(BOUNDS)
    for value, count in values:
        histogram.observe(value, count)
    every = [value for value, count in values for _ in range(count)]
    assert tuple(histogram.counts()) == tuple(
        (bound, sum(value <= bound for value in every)) for bound in (*BOUNDS, inf)
    )
    assert histogram.sum == sum(every)
