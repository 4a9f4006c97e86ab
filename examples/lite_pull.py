"""Take messages when the program wants them: poll, commit what is done, go back and read again."""

from __future__ import annotations

import asyncio

from orbitmq.client import ConsumeFromWhere, LitePullConsumer, Message, MessageExt, Producer

TOPIC = "ExampleLitePull"
GROUP = "example-lite-pull-readers"
COUNT = 30
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def main() -> None:
    async with Producer("example-lite-pull") as producer:
        await producer.send_batch([Message(TOPIC, b"%d" % n) for n in range(COUNT)])

    async with LitePullConsumer(GROUP, consume_from_where=FIRST, auto_commit=False) as consumer:
        consumer.subscribe(TOPIC)
        messages = await take(consumer, COUNT)
        print(f"{len(messages)} messages, the first one is {messages[0].body.decode()}")
        await consumer.commit(wait=True)  # without wait the broker gets the offset within 5 s
        queue = messages[0].queue
        end = await consumer.committed(queue)
        print(f"committed: the group goes on behind {end - messages[0].queue_offset} messages")

        await consumer.seek(queue, messages[0].queue_offset + 25)
        again = await take(consumer, 5)
        print(f"after a seek: {', '.join(message.body.decode() for message in again)}")

        consumer.pause([queue])
        print(f"paused: {len(await consumer.poll(timeout=0.1))} messages")


async def take(consumer: LitePullConsumer, count: int) -> list[MessageExt]:
    taken: list[MessageExt] = []
    while len(taken) < count:
        taken += await consumer.poll(timeout=5.0)
    return taken


asyncio.run(main())
