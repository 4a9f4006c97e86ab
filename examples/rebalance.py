"""Commit before queues go to another member, so that consumed messages are not delivered again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from orbitmq.client import ConsumeFromWhere, LitePullConsumer, Message, MessageQueue, Producer

TOPIC = "ExampleRebalance"
COUNT = 60
done: list[bytes] = []


def member(name: str) -> LitePullConsumer:
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = LitePullConsumer("example-rebalance-readers", consume_from_where=first, auto_commit=False)
    consumer.subscribe(TOPIC)

    @consumer.on_assigned
    def tell(queues: Sequence[MessageQueue]) -> None:
        print(f"{name} gets {len(queues)} queues")

    @consumer.on_revoked
    async def commit(queues: Sequence[MessageQueue]) -> None:
        await consumer.commit(queues=queues, wait=True)
        print(f"{name} gives {len(queues)} queues up")

    return consumer


async def main() -> None:
    async with Producer("example-rebalance") as producer:
        for n in range(COUNT):
            await producer.send(Message(TOPIC, f"{n}".encode()))
    for name, enough in (("one", COUNT // 2), ("another", COUNT)):
        async with member(name) as consumer:
            while len(done) < enough:
                done.extend(message.body for message in await consumer.poll())
    print(f"{len(done)} deliveries of {len(set(done))} messages")


asyncio.run(main())
