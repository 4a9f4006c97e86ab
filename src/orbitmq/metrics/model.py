"""Metrics and their samples. Pure; knows no concrete metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from orbitmq.runtime.histogram import Histogram


class MetricType(StrEnum):
    """The types of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of a table. `name` is that of queries; the name of a counter ends with `_total`."""

    name: str
    kind: MetricType
    labels: tuple[str, ...]
    unit: str
    """The unit of its value: messages, bytes, ms, s; empty for a plain number."""
    text: str
    """Its help: one sentence."""
    source: str
    """The source of the value."""
    rocketmq: bool = True
    """Whether Apache RocketMQ or its exporter uses the same name."""


class Buckets(NamedTuple):
    """The buckets of a histogram: upper bound and number of values up to it, the last bound infinite; and the sum."""

    counts: Sequence[tuple[float, int]]
    sum: float

    @classmethod
    def of(cls, histogram: Histogram) -> Buckets:
        """Its current buckets."""
        return cls(tuple(histogram.counts()), histogram.sum)


Values: TypeAlias = tuple[str, ...]
"""Values of the labels in declared order, and the value."""
Sample: TypeAlias = tuple[Values, float | Buckets]
Reader: TypeAlias = Callable[[], Iterable[Sample | None]]
"""Yields the samples of one metric one by one, and None if it has worked for a while without one, so that other tasks
get a turn. What it reads may change between two of them."""
Readers: TypeAlias = Mapping[str, Reader]
"""Name of a metric -> reader."""


def gauge(name: str, labels: str, unit: str, text: str, source: str, *, rocketmq: bool = True) -> Metric:
    """A value that goes up and down; `labels` are separated by blanks."""
    return Metric(name, MetricType.GAUGE, tuple(labels.split()), unit, text, source, rocketmq)


def counter(name: str, labels: str, unit: str, text: str, source: str, *, rocketmq: bool = True) -> Metric:
    """A value that only increases until the process restarts."""
    assert name.endswith("_total")
    return Metric(name, MetricType.COUNTER, tuple(labels.split()), unit, text, source, rocketmq)


def histogram(name: str, labels: str, unit: str, text: str, source: str, *, rocketmq: bool = True) -> Metric:
    """How many values are in each bucket."""
    return Metric(name, MetricType.HISTOGRAM, tuple(labels.split()), unit, text, source, rocketmq)
