"""How far a stream is behind the ends of its queues, by topic, and how the progress of a query carries it. Pure.

The stream looks at the ends of all queues when it plans a batch. What the batch leaves unread is the lag. Spark passes
nothing of a Python source on to the progress of its query but offsets, so the lag is beside the offsets of
`latestOffset`, which Spark only shows:

    {"behind": {"orders": {"messages": {"avg": 2.5, "max": 5, "min": 0}, "queues": 2, "seconds": {...}}},
     "lookedAtMs": 1763760000000, "q": {...}, "source": "orbitmq topic orders, from 127.0.0.1:9876", "v": 1}
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from orbitmq.message.model import MessageQueue

TOPICS_MAX = 100  # in a report, those furthest behind: Spark keeps a hundred reports of each query in memory
DIGITS = 3


class Spread(NamedTuple):
    """The smallest (`min`), the mean (`avg`) and the largest (`max`) of the queues of a topic."""

    min: float
    avg: float
    max: float


@dataclass(frozen=True)
class TopicLag:
    """The lag of a stream in one topic, of which it reads so many `queues`."""

    topic: str
    queues: int
    messages: Spread
    """Messages of a queue that the stream has not read."""
    seconds: Spread | None
    """How long the next message of a queue has been stored; 0 without one. None if that of a queue is not known."""


@dataclass(frozen=True)
class LagReport:
    """What one source of a query reports about itself."""

    source: str
    """Its topics and name servers, for people."""
    looked_at_ms: int
    topics: Sequence[TopicLag]

    def as_json(self) -> dict[str, Any]:
        return {
            "behind": {lag.topic: _form(lag) for lag in self.topics},
            "lookedAtMs": self.looked_at_ms,
            "source": self.source,
        }

    @classmethod
    def of_json(cls, text: object) -> LagReport | None:
        """None for the offset of another source, which may be anything."""
        try:
            form: Any = json.loads(text) if isinstance(text, str) else text
            topics = [_parsed(topic, lag) for topic, lag in form["behind"].items()]
            return cls(str(form["source"]), int(form["lookedAtMs"]), topics)
        except (AttributeError, KeyError, TypeError, ValueError):
            return None


def topic_lags(
    waiting: Mapping[MessageQueue, int], stored_at_ms: Mapping[MessageQueue, int], now_ms: int
) -> list[TopicLag]:
    """The lag of each topic, the furthest behind first, at most TOPICS_MAX.

    `waiting` are the unread messages of every queue, `stored_at_ms` the times of the first ones, as far as known.
    """
    queues: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in waiting:
        queues[queue.topic].append(queue)
    lags = [_lag(topic, some, waiting, stored_at_ms, now_ms) for topic, some in queues.items()]
    return sorted(lags, key=lambda lag: (-lag.messages.max, lag.topic))[:TOPICS_MAX]


def summed(reports: Iterable[LagReport]) -> list[TopicLag]:
    """The lag of a query: of all its sources, one entry for each topic."""
    found: dict[str, TopicLag] = {}
    for lag in (lag for report in reports for lag in report.topics):
        found[lag.topic] = _sum(found[lag.topic], lag) if lag.topic in found else lag
    return list(found.values())


def _lag(
    topic: str,
    queues: Sequence[MessageQueue],
    waiting: Mapping[MessageQueue, int],
    stored_at_ms: Mapping[MessageQueue, int],
    now_ms: int,
) -> TopicLag:
    seconds = None
    if all(queue in stored_at_ms for queue in queues if waiting[queue]):
        # The clocks of brokers differ, and a message from the future waits no time.
        waits = [max(now_ms - stored_at_ms[queue], 0) if waiting[queue] else 0 for queue in queues]
        seconds = spread_of([wait_ms / 1000 for wait_ms in waits])
    return TopicLag(topic, len(queues), spread_of([waiting[queue] for queue in queues]), seconds)


def spread_of(values: Sequence[float]) -> Spread:
    """Of at least one value."""
    return Spread(min(values), round(sum(values) / len(values), DIGITS), max(values))


def _sum(one: TopicLag, other: TopicLag) -> TopicLag:
    seconds = None
    if one.seconds is not None and other.seconds is not None:
        seconds = _joined(one.seconds, one.queues, other.seconds, other.queues)
    messages = _joined(one.messages, one.queues, other.messages, other.queues)
    return TopicLag(one.topic, one.queues + other.queues, messages, seconds)


def _joined(one: Spread, queues: int, other: Spread, more: int) -> Spread:
    mean = (one.avg * queues + other.avg * more) / (queues + more)
    return Spread(min(one.min, other.min), round(mean, DIGITS), max(one.max, other.max))


def _form(lag: TopicLag) -> dict[str, Any]:
    form = {"messages": lag.messages._asdict(), "queues": lag.queues}
    return form if lag.seconds is None else {**form, "seconds": lag.seconds._asdict()}


def _parsed(topic: str, form: Mapping[str, Any]) -> TopicLag:
    seconds = form.get("seconds")
    spread = None if seconds is None else Spread(**seconds)
    return TopicLag(topic, int(form["queues"]), Spread(**form["messages"]), spread)
