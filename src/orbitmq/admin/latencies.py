"""Latencies counted in buckets, and their percentiles. Pure.

Buckets are 1/32 of a power of two wide, so a reported time is at most 3.2 % too long, from 1 us to a minute, in a few
KiB of memory for any number of samples.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

_PARTS_BITS = 5
"""A power of two has 32 buckets."""
_SHARES = {"p50_ms": 0.5, "p75_ms": 0.75, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}


class Bucket(Struct, frozen=True, rename="camel"):
    """Samples no longer than this bucket's bound and longer than the bound before; empty buckets are left out."""

    up_to_ms: float
    count: int


class Latency(Struct, frozen=True, rename="camel", kw_only=True):
    """The percentiles, in milliseconds; the largest is exact."""

    count: int
    mean_ms: float
    p50_ms: float
    p75_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    buckets: list[Bucket]


class Latencies:
    """Takes times in seconds, one after the other."""

    __slots__ = ("_counts", "_longest", "_sum")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._sum = 0.0
        self._longest = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        """`count` things that took so long."""
        self._counts[_bucket(round(seconds * 1e6))] += count
        self._sum += seconds * count
        self._longest = max(self._longest, seconds)

    def read(self) -> Latency | None:
        """None when there was nothing."""
        total = sum(self._counts.values())
        if not total:
            return None
        ordered = sorted(self._counts.items())
        longest_ms = round(self._longest * 1000, 3)
        found: dict[str, float] = {
            name: min(_end_ms(_at(ordered, share * total)), longest_ms) for name, share in _SHARES.items()
        }
        return Latency(
            count=total,
            mean_ms=round(self._sum * 1000 / total, 3),
            max_ms=longest_ms,
            buckets=[Bucket(_end_ms(bucket), count) for bucket, count in ordered],
            **found,
        )


def _at(ordered: list[tuple[int, int]], wanted: float) -> int:
    """The bucket in which that many have been seen."""
    seen = 0
    for bucket, count in ordered:
        seen += count
        if seen >= wanted:
            return bucket
    return ordered[-1][0]


def _bucket(microseconds: int) -> int:
    """Numbers grow with times: below 64 us every microsecond has its own, after that each power of two has 32."""
    value = max(0, microseconds)
    shift = max(0, value.bit_length() - _PARTS_BITS - 1)
    return (shift << _PARTS_BITS) + (value >> shift)


def _end_ms(bucket: int) -> float:
    """The longest time in the bucket."""
    shift = max(0, (bucket >> _PARTS_BITS) - 1)
    value = bucket - (shift << _PARTS_BITS)
    return (((value + 1) << shift) - 1) / 1000
