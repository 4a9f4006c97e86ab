"""The largest of many values, found step by step. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from orbitmq.metrics.model import Sample, Values

ITEMS_A_STEP = 20  # examined before other tasks get a turn; each may need some reading


def largest(count: int, found: Iterable[tuple[float, Values]]) -> Iterator[Sample | None]:
    """The samples of the `count` largest values above 0. Before them it yields None after every few values, so that
    other tasks get a turn; therefore `found` should include zeros instead of skipping them."""
    heap: list[tuple[float, Values]] = []
    for number, entry in enumerate(found if count else ()):
        if entry[0] > 0 and len(heap) < count:
            heapq.heappush(heap, entry)
        elif entry[0] > 0:
            heapq.heappushpop(heap, entry)
        if number % ITEMS_A_STEP == 0:
            yield None
    for value, labels in sorted(heap, reverse=True):
        yield labels, value
