"""Write message traces as RocketMQ does, and read them: what was sent and consumed when, where, how fast."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from orbitmq.client import (
    ConcurrentContext,
    ConsumeBegun,
    ConsumeConcurrentlyStatus,
    ConsumeEnded,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    Published,
    PushConsumer,
    decode_trace,
)

TOPIC, TRACES = "ExampleTraced", "ExampleTraces"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def main() -> None:
    async with Producer("example-trace", enable_trace=True, trace_topic=TRACES) as producer:
        await producer.send(Message(TOPIC, b"hello", keys="O-1"))

    done = asyncio.Event()
    consumer = PushConsumer("example-trace-readers", consume_from_where=FIRST, enable_trace=True, trace_topic=TRACES)
    consumer.subscribe(TOPIC)

    @consumer.on_message
    async def handle(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        done.set()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async with consumer:
        await asyncio.wait_for(done.wait(), 10)

    lines: set[str] = set()
    async with LitePullConsumer("example-trace-lookers", consume_from_where=FIRST) as looker, asyncio.timeout(10):
        looker.subscribe(TRACES)
        while len(lines) < 3:
            for batch in await looker.poll(1.0):
                lines |= {told(record) for record in decode_trace(batch.body)}
    print("\n".join(sorted(lines)))


def told(record: object) -> str:
    if isinstance(record, Published):
        return f"1 {record.keys} sent by {record.group}"
    if isinstance(record, ConsumeBegun):
        return f"2 {record.keys} came to {record.group}"
    if isinstance(record, ConsumeEnded):
        return f"3 {record.keys} consumed: {record.success}"
    return "4 something else"


asyncio.run(main())
