"""Counts values by size. Pure; knows nothing of what is measured."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from math import inf


class Histogram:
    """`bounds`: upper ends of the buckets in ascending order; beyond the last one comes infinity."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """`count` things of this size each."""
        self._counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def counts(self) -> Iterator[tuple[float, int]]:
        """Each bound, infinity the last one, and how many were not above it."""
        total = 0
        for bound, count in zip((*self.bounds, inf), self._counts, strict=True):
            total += count
            yield bound, total
