"""A trace leads from the sender to the listener, whatever lies between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PullSchedule,
    PushConsumer,
    sync,
)
from orbitmq.client.telemetry import instrument
from orbitmq.errors import BrokerError, MessageIllegal
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, fake_system, refuse
from tests.support.loops import run, until

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Spans:
    """A provider, and what it has collected."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("tests")

    def of(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.kind is kind]


def producer_of(system: FakeSystem, spans: Spans, **settings: Any) -> Producer:
    producer = Producer("p", system.address, **settings)
    instrument(producer, spans.provider)
    return producer


def ids(span: ReadableSpan | trace.SpanContext | None) -> tuple[int, int]:
    assert span is not None
    context = span.get_span_context() if isinstance(span, ReadableSpan) else span
    assert context is not None
    return context.trace_id, context.span_id


def test_the_listener_s_span_is_a_child_of_the_send_in_the_application_s_trace() -> None:
    async def scenario() -> None:
        spans, inside = Spans(), list[trace.SpanContext]()

        async def listen(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
            await asyncio.sleep(0)
            inside.append(trace.get_current_span().get_span_context())
            return SUCCESS

        async with fake_system() as system:
            system.topics["T"] = 1
            consumer = PushConsumer("g", system.address, consume_from_where=FIRST)
            consumer.subscribe("T")
            consumer.set_listener(listen)
            instrument(consumer, spans.provider)
            message = Message("T", b"x", keys="k")
            async with consumer, producer_of(system, spans) as producer:
                with spans.tracer.start_as_current_span("order") as order:
                    result = await producer.send(message)
                await until(lambda: spans.of(SpanKind.CONSUMER))
        (sent,), (processed,) = spans.of(SpanKind.PRODUCER), spans.of(SpanKind.CONSUMER)
        assert ids(sent.parent) == ids(order.get_span_context())
        assert ids(processed.parent) == ids(sent)
        assert ids(inside[0]) == ids(processed), "what the listener does belongs to its span"
        assert (sent.name, processed.name) == ("send T", "process T")
        assert sent.attributes is not None
        assert sent.attributes["messaging.message.id"] == result.msg_id
        assert sent.attributes["messaging.system"] == "rocketmq"
        assert processed.attributes is not None
        assert processed.attributes["messaging.consumer.group.name"] == "g"
        (received,) = spans.of(SpanKind.CLIENT)
        assert [ids(link.context) for link in received.links] == [ids(sent)]
        assert "traceparent" not in message.properties, "the caller's message stays as it was"

    run(scenario())


def test_a_batch_listener_s_span_is_linked_to_every_send() -> None:
    async def scenario() -> None:
        spans = Spans()

        async def listen(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
            return SUCCESS

        async with fake_system() as system:
            system.topics["T"] = 1
            async with producer_of(system, spans) as producer:
                for _ in range(3):
                    await producer.send(Message("T", b"x"))
            consumer = PushConsumer("g", system.address, consume_from_where=FIRST, consume_batch_max_size=3)
            consumer.subscribe("T")
            consumer.set_listener(listen)
            instrument(consumer, spans.provider)
            async with consumer:
                await until(lambda: spans.of(SpanKind.CONSUMER))
        (processed,) = spans.of(SpanKind.CONSUMER)
        assert processed.parent is None
        assert {ids(link.context) for link in processed.links} == {ids(span) for span in spans.of(SpanKind.PRODUCER)}

    run(scenario())


def test_every_way_to_send_has_its_span_and_carries_it() -> None:
    async def scenario() -> None:
        spans = Spans()
        async with fake_system() as system, producer_of(system, spans) as producer:
            await producer.send_async(Message("T", b"1"))
            await producer.send_oneway(Message("T", b"2"))
            await producer.send_batch([Message("T", b"3"), Message("T", b"4")])
            with pytest.raises(MessageIllegal):
                producer.send_async(Message("T", b""))
            await until(lambda: sum(map(len, system.messages.values())) == 4)
            carried = {unit.body: unit.properties for units in system.messages.values() for unit in units}
        sent = spans.of(SpanKind.PRODUCER)
        assert len(sent) == 3
        for span, bodies in zip(sent, ([b"1"], [b"2"], [b"3", b"4"]), strict=True):
            assert all(f"{ids(span)[0]:032x}-{ids(span)[1]:016x}" in carried[body] for body in bodies)
        assert sent[2].attributes is not None
        assert sent[2].attributes["messaging.batch.message_count"] == 2

    run(scenario())


def test_failures_are_seen_on_the_spans() -> None:
    async def scenario() -> None:
        spans = Spans()

        async def listen(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
            if messages[0].body == b"bad":
                raise RuntimeError("a bug")
            return ConsumeConcurrentlyStatus.RECONSUME_LATER

        async with fake_system() as system:
            system.topics["T"] = 1
            async with producer_of(system, spans, retry_times=1) as producer:
                system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE, times=1)
                await producer.send(Message("T", b"bad"))
                system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SYSTEM_BUSY, times=1)
                with pytest.raises(BrokerError):
                    await producer.send(Message("T", b"x"))
                await producer.send(Message("T", b"later"))
            consumer = PushConsumer("g", system.address, consume_from_where=FIRST)
            consumer.subscribe("T")
            consumer.set_listener(listen)
            instrument(consumer, spans.provider)
            async with consumer:
                await until(lambda: len(spans.of(SpanKind.CONSUMER)) == 2)
        retried, refused, _ = spans.of(SpanKind.PRODUCER)
        assert (retried.status.status_code, refused.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
        assert [event.name for event in retried.events] == ["attempt failed"]
        assert {span.status.description for span in spans.of(SpanKind.CONSUMER)} == {"a bug", "RECONSUME_LATER"}

    run(scenario())


def test_threads_bring_their_trace_along() -> None:
    async def scenario() -> None:
        spans = Spans()
        async with fake_system() as system:

            def work() -> tuple[int, int]:
                producer = sync.Producer("p", system.address)
                instrument(producer, spans.provider)
                with producer, spans.tracer.start_as_current_span("order") as order:
                    producer.send(Message("T", b"1"))
                    producer.send_async(Message("T", b"2")).result()
                return ids(order.get_span_context())

            order = await asyncio.to_thread(work)
        assert [ids(span.parent) for span in spans.of(SpanKind.PRODUCER)] == [order, order]

    run(scenario())


def test_a_pull_consumer_has_spans_of_what_it_received() -> None:
    async def scenario() -> None:
        spans = Spans()
        async with fake_system() as system:
            system.topics["T"] = 1
            system.put("T", 0, b"untraced")
            consumer = LitePullConsumer("g", system.address, consume_from_where=FIRST)
            consumer.subscribe("T")
            instrument(consumer, spans.provider)
            async with consumer:
                assert len(await consumer.poll(timeout=20)) == 1
        (received,) = spans.of(SpanKind.CLIENT)
        assert (received.name, received.links) == ("receive T", ())

    run(scenario())


@pytest.mark.parametrize("kind", [PullConsumer, PullSchedule])
def test_a_consumer_that_is_told_what_to_pull_has_them_as_well(kind: type[PullConsumer]) -> None:
    async def scenario() -> None:
        spans = Spans()
        async with fake_system() as system:
            system.topics["T"] = 1
            system.put("T", 0, b"untraced")
            consumer = kind("g", system.address)
            instrument(consumer, spans.provider)
            async with consumer:
                assert len((await consumer.pull(MessageQueue("T", BROKER, 0), "*", 0, 32)).messages) == 1
            instrument(sync.PullSchedule("h", system.address), spans.provider)
        (received,) = spans.of(SpanKind.CLIENT)
        assert received.name == "receive T"

    run(scenario())


def test_what_makes_no_spans_is_refused() -> None:
    nothing: Any = object()
    with pytest.raises(TypeError, match="object creates no spans; pass a producer or a consumer"):
        instrument(nothing)
