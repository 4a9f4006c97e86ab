"""Send without waiting for any answer: for messages of which one may get lost, such as measurements."""

from __future__ import annotations

import asyncio

from orbitmq.client import Message, MessageQueue, Producer

TOPIC = "ExampleOneway"
COUNT = 100


async def main() -> None:
    async with Producer("example-oneway") as producer:
        first = await producer.send(Message(TOPIC, b"the topic exists from here on"))
        queues = await producer.fetch_publish_queues(TOPIC)
        before = await total(producer, queues)

        for number in range(COUNT):
            await producer.send_oneway(Message(TOPIC, b"%d" % number))
        print(f"{COUNT} handed to the network after {first.status.name}; no receipt, no retry")

        async with asyncio.timeout(2):
            while await total(producer, queues) < before + COUNT:
                await asyncio.sleep(0.01)
        print(f"the broker has {await total(producer, queues) - before} of them")


async def total(producer: Producer, queues: list[MessageQueue]) -> int:
    return sum([await producer.max_offset(queue) for queue in queues])


asyncio.run(main())
