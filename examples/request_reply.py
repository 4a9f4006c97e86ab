"""Ask a question by message and wait for the answer of whoever consumes it."""

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
    RequestTimeout,
    create_reply_message,
)

TOPIC = "ExampleRequest"


async def main() -> None:
    async with Producer("example-askers") as asking, Producer("example-answerers") as answering:
        await asking.create_topic(TOPIC)  # so that the consumer finds it at once
        consumer = PushConsumer("example-prices", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer.subscribe(TOPIC, "price")

        @consumer.on_message
        async def answer(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
            for question in messages:
                reply = create_reply_message(question, b"49.90 for " + question.body)
                await answering.send(reply)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        async with consumer:
            reply = await asking.request(Message(TOPIC, b"a kettle", tags="price"), timeout=5.0)
            print(f"the answer: {reply.body.decode()}")

            try:
                await asking.request(Message(TOPIC, b"anybody?", tags="nobody-reads-this"), timeout=0.3)
            except RequestTimeout as error:
                print(f"code {error.code}: nobody answered in time")


asyncio.run(main())
