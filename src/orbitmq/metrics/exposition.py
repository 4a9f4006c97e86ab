"""Renders metrics as Prometheus' text format, in portions that hold the event loop for a few milliseconds each.

A reader that fails removes its own metric from the page and no other. Knows no metric.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from orbitmq.metrics.model import Buckets, Metric, MetricType, Reader, Sample

_log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TURN_SECONDS = 0.003  # of reading, before a portion is written and other tasks get a turn
PORTION_SAMPLES = 200  # written in one turn: some two milliseconds
SERIES_MAX = 50_000  # of one metric: some 10 MB. Clients choose names; further series are left out, as a failure

Failed = Callable[[str], object]
"""Called with the name of an incomplete metric."""


async def expose(
    table: Iterable[Metric],
    readers: Mapping[str, Reader],
    common: Mapping[str, str],
    failed: Failed,
    *,
    timer: Callable[[], float] = time.perf_counter,
    series_max: int = SERIES_MAX,
) -> AsyncIterator[bytes]:
    """The text of every metric of the table, in pieces; the `common` labels come before those of each series."""
    for metric in table:
        is_first = True
        for portion in _portions(metric, readers[metric.name], failed, timer, series_max):
            if portion or is_first:
                yield _text(metric, portion, common, with_head=is_first)
                is_first = False
            await asyncio.sleep(0)


def _portions(
    metric: Metric, reader: Reader, failed: Failed, timer: Callable[[], float], series_max: int
) -> Iterator[list[Sample]]:
    """The samples of a reader, in lists of one turn each; an empty list is a turn without samples."""
    portion: list[Sample] = []
    count, begun = 0, timer()
    try:
        for sample in reader():
            if sample is not None:
                count += 1
                if count > series_max:
                    _log.warning("event=series_left_out metric=%s limit=%d", metric.name, series_max)
                    failed(metric.name)
                    break
                portion.append(sample)
            if len(portion) >= PORTION_SAMPLES or timer() - begun >= TURN_SECONDS:
                yield portion
                portion, begun = [], timer()
    except Exception:  # a bug in one metric must not affect the others
        _log.exception("event=metric_failed metric=%s", metric.name)
        failed(metric.name)
    yield portion


class _One(Collector):
    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterable[Family]:
        return (self._family,)


def _text(metric: Metric, samples: Sequence[Sample], common: Mapping[str, str], *, with_head: bool) -> bytes:
    """The text of a portion; the first one of a metric also has the lines with help and type."""
    name = metric.name.removesuffix("_total") if metric.kind is MetricType.COUNTER else metric.name
    family = Family(name, metric.text, str(metric.kind))
    for values, value in samples:
        labels = {**common, **dict(zip(metric.labels, values, strict=True))}
        if isinstance(value, Buckets):
            _add_buckets(family, name, labels, value)
        else:
            family.add_sample(metric.name, labels, value)
    text = generate_latest(_One(family))
    return text if with_head else text.split(b"\n", 2)[2]


def _add_buckets(family: Family, name: str, labels: dict[str, str], buckets: Buckets) -> None:
    for bound, count in buckets.counts:
        family.add_sample(
            f"{name}_bucket", {**labels, "le": "+Inf" if bound == float("inf") else str(float(bound))}, count
        )
    family.add_sample(f"{name}_count", labels, buckets.counts[-1][1])
    family.add_sample(f"{name}_sum", labels, buckets.sum)
