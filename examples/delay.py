"""Deliver a message later: level 1 is 1 s, 3 is 10 s, 18 is 2 h; the broker's `messageDelayLevel` says which."""

from __future__ import annotations

import asyncio
import time
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

TOPIC = "ExampleDelay"


async def main() -> None:
    arrived = asyncio.Event()
    async with Producer("example-delay") as producer:
        sent_at = time.monotonic()
        await producer.send(Message(TOPIC, b"remind me", delay_level=1))

        consumer = PushConsumer("example-delay-readers", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer.subscribe(TOPIC)

        @consumer.on_message
        async def remind(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
            print(f"{messages[0].body.decode()!r} came after {time.monotonic() - sent_at:.1f} s")
            arrived.set()
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        async with consumer:
            await asyncio.wait_for(arrived.wait(), 10)


asyncio.run(main())
