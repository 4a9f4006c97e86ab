"""Failed messages are delivered again, and finally go to the dead letter topic of the group, where you can inspect
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)

TOPIC = "ExampleRetries"
GROUP = "example-retries-readers"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def main() -> None:
    async with Producer("example-retries") as producer:
        await producer.send(Message(TOPIC, b"cannot be done", keys="bad"))

    dead = asyncio.Event()
    consumer = PushConsumer(GROUP, consume_from_where=FIRST, max_reconsume_times=1)  # 16 unless given
    consumer.subscribe(TOPIC)

    @consumer.on_message
    async def handle(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        message = messages[0]
        print(f"attempt {message.reconsume_times + 1} of {message.keys!r} from {message.topic}")
        context.delay_level_when_next_consume = 1  # 1 s; 0 lets the broker wait ever longer, 10 s at first
        if message.reconsume_times == 1:
            dead.set()
        return ConsumeConcurrentlyStatus.RECONSUME_LATER  # an exception, or no answer at all, counts the same

    async with consumer:
        await asyncio.wait_for(dead.wait(), 10)

    async with LitePullConsumer("example-undertakers", consume_from_where=FIRST) as undertaker:
        undertaker.subscribe(f"%DLQ%{GROUP}")
        (letter,) = await undertaker.poll(timeout=5.0)
        print(f"dead letter: {letter.body.decode()!r}, sent to {letter.properties['RETRY_TOPIC']}")


asyncio.run(main())
