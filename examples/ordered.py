"""Keep the order of what belongs together: one sharding key is one queue, and one listener at a time reads a queue."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from orbitmq.client import (
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    Message,
    MessageExt,
    OrderlyContext,
    Producer,
    PushConsumer,
)

TOPIC = "ExampleOrdered"
ORDERS = ["O-1", "O-2", "O-3"]
STEPS = ["created", "paid", "packed", "shipped"]


async def main() -> None:
    async with Producer("example-ordered") as producer:
        for step in STEPS:  # each send is awaited: two sends in flight have no order
            for order in ORDERS:
                await producer.send(Message(TOPIC, step.encode(), keys=order), sharding_key=order)

    seen: dict[str, list[str]] = defaultdict(list)
    complete = asyncio.Event()
    consumer = PushConsumer("example-ordered-readers", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe(TOPIC)

    @consumer.on_message_orderly
    async def follow(messages: Sequence[MessageExt], context: OrderlyContext) -> ConsumeOrderlyStatus:
        for message in messages:
            seen[message.keys].append(message.body.decode())
        if all(len(seen[order]) >= len(STEPS) for order in ORDERS):
            complete.set()
        return ConsumeOrderlyStatus.SUCCESS

    async with consumer:
        await asyncio.wait_for(complete.wait(), 10)
    for order in ORDERS:
        print(f"{order}: {' > '.join(seen[order])}")


asyncio.run(main())
