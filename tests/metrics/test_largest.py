"""The largest of many are found, and others get their turn meanwhile."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.metrics.largest import ITEMS_A_STEP, largest


@given(st.lists(st.integers(0, 50)), st.integers(0, 5))
def test_the_largest_are_found_in_steps(values: list[int], count: int) -> None:
    told = list(largest(count, [(value, (str(number),)) for number, value in enumerate(values)]))
    samples = [sample for sample in told if sample is not None]
    assert [value for _, value in samples] == sorted(filter(None, values), reverse=True)[:count]
    assert all(values[int(labels[0])] == value for labels, value in samples)
    assert told.count(None) == (-(-len(values) // ITEMS_A_STEP) if count else 0)
