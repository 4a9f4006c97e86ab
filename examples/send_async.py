"""Begin sends without waiting for each: `send_async` returns at once, and refuses when too many are not finished.

A producer that is faster than its brokers would otherwise fill the memory with messages that wait. Of those that are
not refused `async_in_flight_max` are at the brokers at a time.
"""

from __future__ import annotations

import asyncio

from orbitmq.client import Message, Producer, SendResult, TooManyRequestsError

TOPIC = "ExampleSendAsync"
COUNT = 1000


async def main() -> None:
    async with Producer("example-send-async", async_sends_max=50) as producer:
        under_way: set[asyncio.Future[SendResult]] = set()
        stored = waits = 0
        for number in range(COUNT):
            message = Message(TOPIC, b"%d" % number)
            try:
                under_way.add(producer.send_async(message))
            except TooManyRequestsError:  # 50 are in flight: continue when some of them have ended
                waits += 1
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                stored += len([task.result() for task in done])  # result() raises what the send raised
                under_way.add(producer.send_async(message))
        stored += len(await asyncio.gather(*under_way))
        print(f"{stored} stored, never more than 50 in flight")
        print(f"waited for room: {'yes' if waits else 'no'}")


asyncio.run(main())
