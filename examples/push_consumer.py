"""Consume with a listener: several at a time, a failure comes again, shutdown waits for listeners that run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)

TOPIC = "ExamplePush"
COUNT = 20


async def main() -> None:
    async with Producer("example-push") as producer:
        await producer.send_batch([Message(TOPIC, b"%d" % n) for n in range(COUNT)])

    consumer = PushConsumer(
        "example-push-readers",
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_threads=8,  # listeners at a time
        await_termination_ms=2000,  # how long shutdown waits for them
    )
    consumer.subscribe(TOPIC)
    begun: list[bytes] = []
    ended: list[bytes] = []

    @consumer.on_message  # a plain function would be called on threads
    async def handle(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        begun.extend(message.body for message in messages)
        await asyncio.sleep(0.05)  # a database, say
        ended.extend(message.body for message in messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async with consumer:
        async with asyncio.timeout(10):
            while len(ended) < COUNT // 2:  # leave while others are at work
                await asyncio.sleep(0.01)
    print(f"begun {len(begun)}, ended {len(ended)}: nothing was cut off")
    print("each came once" if len(set(begun)) == len(begun) else "some came more than once")


asyncio.run(main())
