"""The largest of many values, found in steps. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from orbitmq.metrics.model import Sample, Values

ITEMS_A_STEP = 20  # looked at before others may get their turn; each may have cost some reading


def largest(count: int, found: Iterable[tuple[float, Values]]) -> Iterator[Sample | None]:
    """The samples of the `count` largest above 0; None meanwhile, after every few that were looked at. So `found` is to
    give zeros, too: what it passes over in silence keeps others from their turn.
    """
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
