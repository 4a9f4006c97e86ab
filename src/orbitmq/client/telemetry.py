"""OpenTelemetry spans for clients: one per send, per pull that returned messages, and per call of the listener.

    producer = Producer("orders", "127.0.0.1:9876")
    instrument(producer)

The context of a send is propagated in the message's user properties (`traceparent` and whatever else your propagator
writes), so that the span of the listener, wherever it runs, belongs to the trace of the sender. Spans that you start in
a listener are children of the listener's span.

Needs opentelemetry-api; unless you set up an SDK, nothing is recorded.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from orbitmq import __version__
from orbitmq.client import consumer, lite_pull, producer, pull, push, sync
from orbitmq.client.core.hooks import ConsumeContext, ReceiveContext, SendContext
from orbitmq.client.core.model import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from orbitmq.message.model import Message, MessageExt

try:
    from opentelemetry import context as contexts
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
except ImportError as error:
    raise ImportError("spans need OpenTelemetry: pip install 'orbitmq[telemetry]'") from error

__all__ = ["instrument"]

Client = producer.Producer | push.PushConsumer | lite_pull.LitePullConsumer | pull.PullConsumer
SyncClient = sync.Producer | sync.PushConsumer | sync.LitePullConsumer | sync.PullConsumer

LINKS_MAX = 128  # of one span, as SDKs keep no more by default
_FAILED = frozenset(
    {
        ConsumeConcurrentlyStatus.RECONSUME_LATER,
        ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT,
        ConsumeOrderlyStatus.ROLLBACK,
        None,
    }
)


def instrument(client: Client | SyncClient, provider: TracerProvider | None = None) -> None:
    """Make a client create spans; call it before the client's start. The default of `provider` is the global one.

    A consumer without a listener, such as a `PullSchedule`, has only spans of its pulls. TypeError unless `client` is a
    producer or a consumer.
    """
    core: object = getattr(client, "core", client)
    if not isinstance(core, (producer.Producer, consumer.Consumer)):
        raise TypeError(f"{type(client).__name__} creates no spans; pass a producer or a consumer")
    tracer = (provider or trace.get_tracer_provider()).get_tracer("orbitmq.client", __version__)
    if isinstance(core, producer.Producer):
        spans = SendSpans(tracer)
        core.wrap_sends(spans.around)
        core.add_send_hook(spans)
        return
    core.add_receive_hook(ReceiveSpans(tracer))
    if isinstance(core, push.PushConsumer):
        core.add_consume_hook(ConsumeSpans(tracer))


def _named(operation: str, kind: str, topic: str) -> dict[str, str]:
    """The attributes that the semantic conventions for messaging require."""
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


class SendSpans:
    """One span per send, whatever its attempts; each failed attempt is an event of the span."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def around(self, messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
        """The span, and the messages that carry it."""
        topic = messages[0].topic if messages else ""
        attributes: dict[str, str | int] = {**_named("send", "send", topic)}
        if len(messages) > 1:
            attributes["messaging.batch.message_count"] = len(messages)
        with self._tracer.start_as_current_span(f"send {topic}", kind=SpanKind.PRODUCER, attributes=attributes):
            yield [_carrying(message) for message in messages]

    def before(self, context: SendContext) -> None:
        """Nothing is known yet."""

    def after(self, context: SendContext) -> None:
        """The hook of an attempt; it runs inside the send, whose span is the current one."""
        span = trace.get_current_span()
        if context.error is not None:
            span.add_event("attempt failed", {"server.address": context.broker_address, "error": str(context.error)})
            return
        span.set_attribute("server.address", context.broker_address)
        span.set_attribute("messaging.message.id", context.message.msg_id)
        span.set_attribute("messaging.message.body.size", len(context.message.body))
        span.set_attribute("messaging.client.group", context.group)
        if context.result is not None:
            span.set_attribute("messaging.destination.partition.id", str(context.result.queue.queue_id))


def _carrying(message: Message) -> Message:
    """A copy, since the caller's object may be sent again, in another trace."""
    carried: dict[str, str] = {}
    propagate.inject(carried)
    sent = copy.copy(message)
    sent.properties = {**message.properties, **carried}
    return sent


class ReceiveSpans:
    """One span for every pull that returned messages, linked to the spans of their senders."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def __call__(self, context: ReceiveContext) -> None:
        topic = context.queue.topic
        attributes: dict[str, str | int] = {
            **_named("receive", "receive", topic),
            "messaging.consumer.group.name": context.group,
            "messaging.destination.partition.id": str(context.queue.queue_id),
            "messaging.batch.message_count": len(context.messages),
        }
        span = self._tracer.start_span(
            f"receive {topic}",
            context=Context(),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=_links(context.messages),
            start_time=context.began_ms * 1_000_000,
        )
        span.end((context.began_ms + context.cost_ms) * 1_000_000)


class ConsumeSpans:
    """One span a call of the listener: a child of the send for one message, linked to all sends for several."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._open: dict[int, tuple[Span, object]] = {}  # of running calls: context -> span, token

    def before(self, context: ConsumeContext) -> None:
        messages = context.messages
        topic = messages[0].topic
        attributes: dict[str, str | int] = {
            **_named("process", "process", topic),
            "messaging.consumer.group.name": context.group,
            "messaging.destination.partition.id": str(context.queue.queue_id),
        }
        if len(messages) == 1:
            attributes["messaging.message.id"] = messages[0].msg_id
        else:
            attributes["messaging.batch.message_count"] = len(messages)
        span = self._tracer.start_span(
            f"process {topic}",
            context=_context_of(messages[0]) if len(messages) == 1 else Context(),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=_links(messages) if len(messages) > 1 else None,
        )
        self._open[id(context)] = span, contexts.attach(trace.set_span_in_context(span))

    def after(self, context: ConsumeContext) -> None:
        span, token = self._open.pop(id(context))
        contexts.detach(token)  # type: ignore[arg-type]
        if context.error is not None:
            span.record_exception(context.error)
            span.set_status(Status(StatusCode.ERROR, str(context.error)))
        elif context.status in _FAILED:
            span.set_status(Status(StatusCode.ERROR, context.status.name if context.status else "no answer"))
        span.end()


def _context_of(message: MessageExt) -> Context:
    return propagate.extract(message.properties, context=Context())


def _links(messages: Sequence[MessageExt]) -> list[Link]:
    found = (trace.get_current_span(_context_of(message)).get_span_context() for message in messages[:LINKS_MAX])
    return [Link(context) for context in found if context.is_valid]
