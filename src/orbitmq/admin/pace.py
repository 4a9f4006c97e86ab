"""Progress of a group between two samples, which no single sample shows. Pure: no I/O."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from orbitmq.admin.progress import GroupProgress, label
from orbitmq.message.topics import RETRY_PREFIX

GROUPS_MAX = 20_000
"""Limit of groups; the one observed longest ago is dropped."""
SPAN_MS, SPAN_MIN_MS = 75_000, 10_000
"""Rates cover about the last minute. Consumers commit every 5 s, so a shorter span would show the commits only."""


@dataclass(frozen=True, slots=True)
class QueueMark:
    """Where a group was in one queue."""

    offset: int
    """The next message it takes; -1 while it has stored none."""
    waits: bool
    """Whether messages waited behind it."""
    since_ms: int
    """The first of the looks in a row that found just this."""
    moved_ms: int | None
    """The last look that found it further than the look before; None while there was none."""


@dataclass(slots=True)
class Pace:
    """Progress of a group over several samples."""

    marks: Mapping[str, QueueMark] = field(default_factory=dict)
    """By `topic/broker/queue`."""
    sums: deque[tuple[int, int, int]] = field(default_factory=deque)
    """Time, queues with an offset, and the sum of those offsets, the oldest first."""

    @property
    def committed_tps(self) -> float | None:
        """Messages a second that were committed over the last minute; None while the looks are too close together."""
        if not self.sums:
            return None
        (began_ms, _, first), (now_ms, _, last) = self.sums[0], self.sums[-1]
        span_ms = now_ms - began_ms
        return round(max(0, last - first) * 1000 / span_ms, 3) if span_ms >= SPAN_MIN_MS else None


class Paces:
    """Of all groups that are sampled repeatedly."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str, Pace] = OrderedDict()

    def seen(self, one: GroupProgress, now_ms: int) -> Pace:
        """Add an observation of a group and return what is known of its pace now."""
        pace = self._groups.setdefault(one.group, Pace())
        self._groups.move_to_end(one.group)
        while len(self._groups) > GROUPS_MAX:
            self._groups.popitem(last=False)
        own = [queue for queue in one.queues if not queue.topic.startswith(RETRY_PREFIX)]
        marks = {}
        for queue in own:
            offset = -1 if queue.consumer_offset is None else queue.consumer_offset
            marks[label(queue)] = _next(pace.marks.get(label(queue)), offset, bool(queue.lag_messages), now_ms)
        pace.marks = marks
        offsets = [queue.consumer_offset for queue in own if queue.consumer_offset is not None]
        if pace.sums and pace.sums[-1][1] != len(offsets):
            pace.sums.clear()
        pace.sums.append((now_ms, len(offsets), sum(offsets)))
        while now_ms - pace.sums[0][0] > SPAN_MS and len(pace.sums) > 2:
            pace.sums.popleft()
        return pace


def _next(mark: QueueMark | None, offset: int, waits: bool, now_ms: int) -> QueueMark:
    if mark is None:
        return QueueMark(offset, waits, now_ms, None)
    if (mark.offset, mark.waits) == (offset, waits):
        return mark
    moved = offset > mark.offset >= 0  # the first one that is stored may be where the group begins
    return QueueMark(offset, waits, now_ms, now_ms if moved else mark.moved_ms)
