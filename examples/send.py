"""Send messages and wait for the broker's receipt, one by one and many together.

    python examples/send.py

The address of the name server comes from the environment variable NAMESRV_ADDR, or as second argument of the producer.
"""

from __future__ import annotations

import asyncio

from orbitmq.client import Message, Producer

TOPIC = "ExampleSend"


async def main() -> None:
    async with Producer("example-send") as producer:
        receipt = await producer.send(Message(TOPIC, b'{"amount": 4990}', tags="OrderPaid", keys="O-1"))
        print(f"{receipt.status.name}: message {receipt.msg_id}")
        print(f"it is number {receipt.queue_offset} in queue {receipt.queue.queue_id} of {receipt.queue.broker_name}")

        receipts = await asyncio.gather(*(producer.send(Message(TOPIC, b"x", keys=str(n))) for n in range(100)))
        print(f"{len(receipts)} more went together to {len({one.queue for one in receipts})} queues")


asyncio.run(main())
