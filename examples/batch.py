"""Send many messages of one topic in one request: one receipt, one queue, stored one behind the other."""

from __future__ import annotations

import asyncio

from orbitmq.client import Message, MessageIllegal, Producer

TOPIC = "ExampleBatch"


async def main() -> None:
    async with Producer("example-batch") as producer:
        messages = [Message(TOPIC, f"reading {n}".encode(), keys=str(n)) for n in range(50)]
        receipt = await producer.send_batch(messages)
        ids = receipt.msg_id.split(",")
        print(f"{receipt.status.name}: {len(ids)} messages, {len(set(ids))} ids, one queue")

        try:  # a batch has one topic, no delays, and 4 MiB at most: cut larger ones into pieces
            await producer.send_batch([Message(TOPIC, b"a"), Message(TOPIC, b"b", delay_level=1)])
        except MessageIllegal as error:
            print(f"refused before it was sent: {error}")


asyncio.run(main())
