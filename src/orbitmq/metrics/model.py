"""What a metric and its samples are. Pure; knows no concrete metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from orbitmq.runtime.histogram import Histogram


class MetricType(StrEnum):
    """Prometheus' types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of a table. `name` is what a query says; that of a counter ends with `_total`."""

    name: str
    kind: MetricType
    labels: tuple[str, ...]
    unit: str
    """What one of it is: messages, bytes, ms, s; empty for a plain number."""
    text: str
    """Its help: one sentence."""
    source: str
    """Where the value comes from."""
    rocketmq: bool = True
    """Whether the name is one that Apache RocketMQ or its exporter uses."""


class Buckets(NamedTuple):
    """The buckets of a histogram: upper bound and number of values up to it, the last bound infinite; and the sum."""

    counts: Sequence[tuple[float, int]]
    sum: float

    @classmethod
    def of(cls, histogram: Histogram) -> Buckets:
        """As they are now."""
        return cls(tuple(histogram.counts()), histogram.sum)


Values: TypeAlias = tuple[str, ...]
"""Of the labels, in the order they are declared."""
Sample: TypeAlias = tuple[Values, float | Buckets]
Reader: TypeAlias = Callable[[], Iterable[Sample | None]]
"""Gives the samples of one metric one by one; None where it has worked a while and has none yet, so that others may get
their turn. It must bear that what it looks at changes between two of them."""
Readers: TypeAlias = Mapping[str, Reader]
"""Metric's name -> reader."""


def gauge(name: str, labels: str, unit: str, text: str, source: str, *, rocketmq: bool = True) -> Metric:
    """A value that goes up and down; `labels` are separated by blanks."""
    return Metric(name, MetricType.GAUGE, tuple(labels.split()), unit, text, source, rocketmq)


def counter(name: str, labels: str, unit: str, text: str, source: str, *, rocketmq: bool = True) -> Metric:
    """A value that only grows until the process restarts."""
    assert name.endswith("_total")
    return Metric(name, MetricType.COUNTER, tuple(labels.split()), unit, text, source, rocketmq)


def histogram(name: str, labels: str, unit: str, text: str, source: str, *, rocketmq: bool = True) -> Metric:
    """How many there were of which size."""
    return Metric(name, MetricType.HISTOGRAM, tuple(labels.split()), unit, text, source, rocketmq)
