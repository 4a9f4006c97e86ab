"""How many timer messages wait for each topic. Knows no store.

The entry of a queue does not say for which topic its message waits, so the messages have to be read. That is done only
when a slave of RocketMQ 5 asks, for those that came since it asked before; what leaves after that is subtracted.
"""

from __future__ import annotations

from orbitmq.broker.timers.pending import is_recall, place_of
from orbitmq.message.config import DataVersion
from orbitmq.message.properties import REAL_TOPIC, EncodedProperties
from orbitmq.message.unit import Unit
from orbitmq.runtime.clock import Clock
from orbitmq.wire.bodies import TimerCount, TimerMetrics, TimerMetricsVersion


class TimerCounts:
    """What waits in the log below `end` is counted. A topic without any is left out."""

    def __init__(self, clock: Clock) -> None:
        self.end = 0
        self._clock = clock
        self._version = DataVersion(0, clock.now_ms())
        self._of_topic: dict[str, TimerCount] = {}

    def enter(self, key: int, unit: Unit | None) -> None:
        """The next message in the log that waits."""
        self.end = place_of(key) + 1
        self._add(key, unit, 1)

    def leave(self, key: int, unit: Unit | None) -> None:
        """One waits no more, or elsewhere in the log."""
        if place_of(key) < self.end:
            self._add(key, unit, -1)

    def metrics(self) -> TimerMetrics:
        version = self._version
        return TimerMetrics(TimerMetricsVersion(version.counter, 0, version.timestamp), self._of_topic)

    def _add(self, key: int, unit: Unit | None, number: int) -> None:
        """A recall counts as one fewer, as at RocketMQ, until both are due."""
        topic = EncodedProperties(unit.properties.encode()).get(REAL_TOPIC) if unit is not None else None
        if topic is None:
            return
        now_ms = self._clock.now_ms()
        before = self._of_topic.pop(topic, None)
        count = (before.count if before is not None else 0) + (-number if is_recall(key) else number)
        if count:
            self._of_topic[topic] = TimerCount(count, now_ms)
        self._version = self._version.next(now_ms)
