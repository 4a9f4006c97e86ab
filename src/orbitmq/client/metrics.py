"""Prometheus metrics of clients: what was sent, pulled and consumed, how long it took, what waits in the outbox.

    metrics = ClientMetrics()
    metrics.watch(producer)
    prometheus_client.start_http_server(9000)

Labels are the group and the topic, of which an application has few. Nothing is labelled by message or queue.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable
from typing import TYPE_CHECKING

from orbitmq.client import consumer, lite_pull, producer, pull, push, sync
from orbitmq.client.core.hooks import ConsumeContext, ReceiveContext, SendContext
from orbitmq.client.core.model import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from orbitmq.client.reading_consumer import ReadingConsumer
from orbitmq.client.simple import SimpleConsumer
from orbitmq.errors import BrokerError

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError("metrics need the Prometheus client: pip install 'orbitmq[telemetry]'") from error

if TYPE_CHECKING:
    from orbitmq.client.outbox import Outbox
    from orbitmq.client.outbox.sync import Outbox as SyncOutbox

__all__ = ["ClientMetrics"]

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LABELS = ("group", "topic")
_DONE = frozenset(
    {ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.COMMIT}
)


class ClientMetrics:
    """The metrics of any number of clients in one registry, by default the global one."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._sends = Counter(
            "orbitmq_client_send_attempts", "Attempts to send.", (*_LABELS, "outcome"), registry=registry
        )
        self._send_seconds = Histogram(
            "orbitmq_client_send_attempt_seconds",
            "Latency of an attempt to send.",
            _LABELS,
            buckets=SECONDS,
            registry=registry,
        )
        self._received = Counter("orbitmq_client_received_messages", "Messages pulled.", _LABELS, registry=registry)
        self._pull_seconds = Histogram(
            "orbitmq_client_pull_seconds",
            "Latency of a pull that returned messages, including the time that the broker held it.",
            _LABELS, buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._consumed = Counter(
            "orbitmq_client_consumed_messages", "Messages passed to the listener.", (*_LABELS, "outcome"),
            registry=registry,
        )  # fmt: skip
        self._consume_seconds = Histogram(
            "orbitmq_client_listener_seconds",
            "Duration of a call of the listener.",
            _LABELS,
            buckets=SECONDS,
            registry=registry,
        )
        self._delay_seconds = Histogram(
            "orbitmq_client_delivery_delay_seconds", "Time from store to delivery.", _LABELS, buckets=SECONDS,
            registry=registry,
        )  # fmt: skip
        self._expired = _ExpiredCollector()
        registry.register(self._expired)

    def watch(
        self,
        client: producer.Producer
        | push.PushConsumer
        | lite_pull.LitePullConsumer
        | pull.PullConsumer
        | sync.Producer
        | sync.PushConsumer
        | sync.LitePullConsumer
        | sync.PullConsumer,
    ) -> None:
        """Collect metrics of a client; call it before the client's start.

        Of a producer: attempts to send and their latency. Of every consumer, `PullSchedule` included: messages pulled,
        the latency of pulls that returned some, and the age of messages at delivery. Of a push consumer also the calls
        of its listener, of push and lite pull consumers the messages that had expired. The lag of a group is not
        included, since only the brokers know it: see `lag`.

        TypeError for another object, InvalidStateError for a consumer that has started.
        """
        core: object = getattr(client, "core", client)
        if isinstance(core, producer.Producer):
            core.add_send_hook(_Sends(self._sends, self._send_seconds))
        elif isinstance(core, consumer.Consumer):
            delays = _Delays(self._delay_seconds)
            is_push = isinstance(core, push.PushConsumer)
            core.add_consume_hook(_Calls(self._consumed, self._consume_seconds, delays) if is_push else delays)
            core.add_receive_hook(self._receive)
            if isinstance(core, ReadingConsumer | SimpleConsumer):
                self._expired.consumers.append(core)
        else:
            raise TypeError(f"{type(client).__name__} has no such metrics; pass a producer or a consumer")

    def watch_outbox(self, outbox: Outbox | SyncOutbox, name: str) -> None:
        """Collect metrics of an outbox under a name."""
        self._registry.register(_OutboxCollector(outbox, name))

    def _receive(self, context: ReceiveContext) -> None:
        group, topic = context.group, context.queue.topic
        self._received.labels(group, topic).inc(len(context.messages))
        self._pull_seconds.labels(group, topic).observe(context.cost_ms / 1000)


class _Sends:
    def __init__(self, count: Counter, seconds: Histogram) -> None:
        self._count = count
        self._seconds = seconds

    def before(self, context: SendContext) -> None:
        """Nothing is known yet."""

    def after(self, context: SendContext) -> None:
        group, topic = context.group, context.message.topic
        self._count.labels(group, topic, _send_outcome(context)).inc()
        self._seconds.labels(group, topic).observe(context.cost_ms / 1000)


def _send_outcome(context: SendContext) -> str:
    """The status, "oneway", the response code of a refusal, or the error that prevented a response."""
    if context.error is None:
        return "oneway" if context.result is None else context.result.status.name.lower()
    if isinstance(context.error, BrokerError):
        return f"code_{context.error.code}"
    return type(context.error).__name__


class _Delays:
    def __init__(self, delay: Histogram) -> None:
        self._delay = delay

    def before(self, context: ConsumeContext) -> None:
        for message in context.messages:
            delay_s = max(0, context.began_ms - message.store_timestamp) / 1000
            self._delay.labels(context.group, message.topic).observe(delay_s)

    def after(self, context: ConsumeContext) -> None:
        """Nothing to measure."""


class _Calls:
    def __init__(self, count: Counter, seconds: Histogram, delays: _Delays) -> None:
        self._count = count
        self._seconds = seconds
        self._delays = delays

    def before(self, context: ConsumeContext) -> None:
        self._delays.before(context)

    def after(self, context: ConsumeContext) -> None:
        group, topic = context.group, context.messages[0].topic
        outcome = "done" if context.status in _DONE else "failed"
        self._count.labels(group, topic, outcome).inc(len(context.messages))
        self._seconds.labels(group, topic).observe(context.cost_ms / 1000)


class _ExpiredCollector(Collector):
    """Asks the consumers on every scrape."""

    def __init__(self) -> None:
        self.consumers: list[ReadingConsumer | SimpleConsumer] = []

    def collect(self) -> Iterable[Metric]:
        found: Counts[tuple[str, str]] = Counts()
        for one in self.consumers:
            for topic, count in list(one.expired.items()):
                found[one.group, topic] += count
        expired = CounterMetricFamily(
            "orbitmq_client_expired_messages", "Messages that had expired and were not delivered.", labels=_LABELS
        )
        for labels, count in found.items():
            expired.add_metric(labels, count)
        return (expired,)


class _OutboxCollector(Collector):
    """Reads an outbox on every scrape."""

    def __init__(self, outbox: Outbox | SyncOutbox, name: str) -> None:
        self._outbox = outbox
        self._name = name

    def collect(self) -> Iterable[Metric]:
        box, label = self._outbox, [self._name]
        waiting = GaugeMetricFamily("orbitmq_outbox_messages", "Messages that wait in the outbox.", labels=["outbox"])
        waiting.add_metric(label, len(box))
        size = GaugeMetricFamily("orbitmq_outbox_bytes", "Bytes of the waiting messages on disk.", labels=["outbox"])
        size.add_metric(label, box.size)
        stored = CounterMetricFamily(
            "orbitmq_outbox_stored", "Messages stored since the outbox was opened.", labels=["outbox"]
        )
        stored.add_metric(label, box.stored)
        sent = CounterMetricFamily("orbitmq_outbox_delivered", "Messages sent from the outbox.", labels=["outbox"])
        sent.add_metric(label, box.delivered)
        lost = CounterMetricFamily(
            "orbitmq_outbox_lost", "Messages that the outbox lost, by reason.", labels=["outbox", "reason"]
        )
        for reason, count in box.lost.items():
            lost.add_metric([self._name, reason.name.lower()], count)
        return waiting, size, stored, sent, lost
