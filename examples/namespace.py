"""Share a cluster between tenants: a namespace is part of every topic and group, and no application sees it."""

from __future__ import annotations

import asyncio

from orbitmq.client import ConsumeFromWhere, LitePullConsumer, Message, Producer

TOPIC = "ExampleShared"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def main() -> None:
    for tenant in ("north", "south"):
        async with Producer("example-shop", namespace=tenant) as producer:
            await producer.send(Message(TOPIC, f"for {tenant}".encode()))

    for tenant in ("north", "south"):
        async with LitePullConsumer("example-readers", namespace=tenant, consume_from_where=FIRST) as consumer:
            consumer.subscribe(TOPIC)
            (message,) = await consumer.poll(timeout=5.0)
            print(f"{tenant} got {message.body.decode()!r} from {message.topic}")

    async with LitePullConsumer("example-operators", consume_from_where=FIRST) as operator:
        operator.subscribe(f"north%{TOPIC}")
        (message,) = await operator.poll(timeout=5.0)
        print(f"without a namespace the topic is called {message.topic}")


asyncio.run(main())
