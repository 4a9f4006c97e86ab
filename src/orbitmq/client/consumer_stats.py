"""How fast a consumer pulls and consumes, by topic: what an operator sees in its running info. Knows no queue.

The metrics and their windows are those of RocketMQ's clients. The bytes of a flow are milliseconds here.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.runtime.clock import Clock
from orbitmq.runtime.rates import HOUR, MINUTE, Flow
from orbitmq.wire.bodies import ConsumeStatus


@dataclass(slots=True)
class _Topic:
    pulled: Flow
    consumed: Flow
    failed: Flow


class ConsumerStats:
    """Of one consumer. `sample` is to be called every SAMPLE_SECONDS."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: dict[str, _Topic] = {}

    def pulled(self, topic: str, messages: int, milliseconds: int) -> None:
        """A pull brought messages."""
        _count(self._of(topic).pulled, messages, milliseconds)

    def consumed(self, topic: str, messages: int, failed: int, milliseconds: int) -> None:
        """A listener was called; `failed` of its messages come again."""
        of = self._of(topic)
        _count(of.consumed, messages - failed, milliseconds)
        _count(of.failed, failed, 0)

    def sample(self) -> None:
        now_ms = self._clock.now_ms()
        for topic in self._topics.values():
            for flow in (topic.pulled, topic.consumed, topic.failed):
                flow.sample(now_ms)

    def table(self) -> dict[str, ConsumeStatus]:
        """Topic -> rates of the last minute, and what failed in the last hour."""
        now_ms = self._clock.now_ms()
        return {name: _status(topic, now_ms) for name, topic in sorted(self._topics.items())}

    def _of(self, topic: str) -> _Topic:
        found = self._topics.get(topic)
        if found is None:
            now_ms = self._clock.now_ms()
            found = self._topics[topic] = _Topic(Flow(now_ms), Flow(now_ms), Flow(now_ms))
        return found


def _count(flow: Flow, messages: int, milliseconds: int) -> None:
    flow.messages += messages
    flow.bytes += milliseconds
    flow.calls += 1


def _status(topic: _Topic, now_ms: int) -> ConsumeStatus:
    times = topic.consumed.of_bytes(MINUTE, now_ms)
    if not times.sum:
        times = topic.consumed.of_bytes(HOUR, now_ms)
    return ConsumeStatus(
        pull_rt=topic.pulled.of_bytes(MINUTE, now_ms).average,
        pull_tps=topic.pulled.of_messages(MINUTE, now_ms).tps,
        consume_rt=times.average,
        consume_ok_tps=topic.consumed.of_messages(MINUTE, now_ms).tps,
        consume_failed_tps=topic.failed.of_messages(MINUTE, now_ms).tps,
        consume_failed_msgs=topic.failed.of_messages(HOUR, now_ms).sum,
    )
