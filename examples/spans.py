"""Spans of OpenTelemetry: the one of a listener belongs to the trace of the sender. Needs `orbitmq[telemetry]`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from orbitmq.client.telemetry import instrument

TOPIC = "ExampleSpans"

spans = InMemorySpanExporter()  # an application sends them to its collector
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))


async def main() -> None:
    producer = Producer("example-spans")
    instrument(producer, provider)
    async with producer:
        with provider.get_tracer("shop").start_as_current_span("checkout"):
            await producer.send(Message(TOPIC, b"hello"))

    done = asyncio.Event()
    consumer = PushConsumer("example-spans-readers", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe(TOPIC)
    instrument(consumer, provider)

    @consumer.on_message
    async def handle(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        done.set()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async with consumer:
        await asyncio.wait_for(done.wait(), 10)

    finished = {span.name: span for span in spans.get_finished_spans()}
    trace = finished["checkout"].context.trace_id
    for name in ("checkout", f"send {TOPIC}", f"process {TOPIC}"):
        span = finished[name]
        print(f"{name}: {'in the trace of checkout' if span.context.trace_id == trace else 'elsewhere'}")


asyncio.run(main())
