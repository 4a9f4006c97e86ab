"""Figures of clients for Prometheus: sends, pulls, listeners, delays, the outbox. Needs `orbitmq[telemetry]`."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, generate_latest

from orbitmq.client import ConsumeFromWhere, LitePullConsumer, Message, Producer
from orbitmq.client.metrics import ClientMetrics

TOPIC = "ExampleMetrics"

registry = CollectorRegistry()  # left out, it is the global one, which prometheus_client.start_http_server shows
metrics = ClientMetrics(registry)


async def main() -> None:
    producer = Producer("example-metrics")
    metrics.watch(producer)
    async with producer:
        for number in range(7):
            await producer.send(Message(TOPIC, b"%d" % number))

    consumer = LitePullConsumer(
        "example-metrics-readers", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    metrics.watch(consumer)
    consumer.subscribe(TOPIC)
    async with consumer:
        received = 0
        while received < 7:
            received += len(await consumer.poll(5.0))

    for line in generate_latest(registry).decode().splitlines():
        if line.startswith(("orbitmq_client_send_attempts_total", "orbitmq_client_received_messages_total")):
            print(line)


asyncio.run(main())
