"""Read queues by hand: any queue, from any offset, alone or in a group. Mostly `lite_pull.py` is the better choice."""

from __future__ import annotations

import asyncio

from orbitmq.client import Message, Producer, PullConsumer, PullStatus

TOPIC = "ExamplePull"
COUNT = 12


async def main() -> None:
    async with Producer("example-pull") as producer:
        await producer.create_topic(TOPIC)  # a consumer of its own finds no queue before name servers know the topic
        receipt = await producer.send_batch([Message(TOPIC, f"{n}".encode(), tags=f"Tag{n % 2}") for n in range(COUNT)])
        queue, first = receipt.queue, receipt.queue_offset

    async with PullConsumer("example-pull-readers") as consumer:
        print(f"{len(await consumer.fetch_queues(TOPIC))} queues")
        while await consumer.max_offset(queue) < first + COUNT:  # a receipt can come before its message is readable
            await asyncio.sleep(0.01)
        result = await consumer.pull(queue, "*", first, 5)
        print(f"{result.status.name}: {b' '.join(message.body for message in result.messages).decode()}")
        result = await consumer.pull(queue, "Tag1", result.next_begin_offset, 32)
        print(f"{result.status.name}: {b' '.join(message.body for message in result.messages).decode()}")

        consumer.update_offset(
            queue, result.next_begin_offset
        )  # the broker gets the offset within 5 s, and at shutdown
        print(f"the group goes on {await consumer.fetch_offset(queue) - first} further")

        result = await consumer.pull(queue, "*", result.next_begin_offset, 32)
        assert result.status is PullStatus.NO_NEW_MSG
        print(result.status.value)


asyncio.run(main())
