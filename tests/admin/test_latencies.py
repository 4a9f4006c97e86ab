"""Percentiles from buckets are at most a thirtieth too long, the largest is exact, a time has one bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.admin.latencies import Latencies, Latency, _bucket, _end_ms

TIMES_US = st.integers(0, 120_000_000)


def read(*times_us: int) -> Latency:
    mine = Latencies()
    for one in times_us:
        mine.add(one / 1e6)
    found = mine.read()
    assert found is not None
    return found


@given(TIMES_US)
def test_a_bucket_ends_at_its_time_or_at_most_a_thirtieth_later(time_us: int) -> None:
    end_us = round(_end_ms(_bucket(time_us)) * 1000)
    assert time_us <= end_us <= time_us * (1 + 1 / 32)
    assert _bucket(end_us) == _bucket(time_us) != _bucket(end_us + 1)


@given(st.lists(TIMES_US, min_size=1, max_size=200))
def test_percentiles_are_those_of_the_times(times_us: list[int]) -> None:
    found, ordered = read(*times_us), sorted(times_us)
    assert (found.count, found.max_ms) == (len(times_us), ordered[-1] / 1000)
    assert sum(bucket.count for bucket in found.buckets) == len(times_us)
    for told, share in ((found.p50_ms, 0.5), (found.p90_ms, 0.9), (found.p99_ms, 0.99), (found.p999_ms, 0.999)):
        exact = next(one for number, one in enumerate(ordered, 1) if number >= share * len(ordered)) / 1000
        assert exact <= told <= max(exact * (1 + 1 / 32), exact) or told == pytest.approx(exact)


def test_nothing_measured_is_unknown() -> None:
    assert Latencies().read() is None
    many = Latencies()
    many.add(0.001, 999)
    many.add(1.0)
    found = many.read()
    assert found is not None
    assert (found.p99_ms, found.p999_ms, found.max_ms, found.mean_ms) == (
        pytest.approx(1.007),
        pytest.approx(1.007),
        1000.0,
        1.999,
    )
