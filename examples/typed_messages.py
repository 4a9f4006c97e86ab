"""Bodies are values of a type: a schema is kept with the topic, an older body is read, a wrong one is a dead letter.

Needs `orbitmq[avro]`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
)
from orbitmq.client.typed import Received, SchemaIncompatible, Topic, avro_codec, typed

ID, ITEM = {"name": "id", "type": "long"}, {"name": "item", "type": "string", "default": "book"}


@dataclass
class Order:
    id: int
    item: str


def record(*fields: dict[str, str]) -> dict[str, object]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


async def send(name: str) -> None:
    first, second = Topic(name, avro_codec(record(ID))), Topic(name, avro_codec(record(ID, ITEM), Order))
    async with Producer("example-orders") as producer:
        await producer.create_topic(name, queues=1)
        for topic in (first, second):
            version = await producer.register_schema(name, topic.schema)
            print(f"version {version.number} is registered")
        try:
            await producer.register_schema(name, avro_codec(record({"name": "id", "type": "string"})).schema)
        except SchemaIncompatible as error:
            print("refused:", str(error).partition(": ")[2].partition(";")[0])
        await producer.send(first.message({"id": 1}))
        await producer.send(second.message(Order(2, "pen")))
        await producer.send(Message(name, b"no order"))


async def consume(name: str, group: str) -> None:
    orders = Topic(name, avro_codec(record(ID, ITEM), Order))
    seen = asyncio.Queue[Order]()

    async def handle(received: Sequence[Received[Order]], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        for one in received:
            await seen.put(one.value)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = PushConsumer(group, consume_threads=1, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe(name)
    consumer.set_listener(typed(consumer, orders, handle))
    async with (
        consumer,
        LitePullConsumer(f"{group}-dead", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET) as reader,
    ):
        print(await seen.get(), await seen.get())
        reader.subscribe(f"%DLQ%{group}")
        for letter in await reader.poll(60):
            print("dead letter:", letter.body, letter.properties["DEAD_LETTER_REASON"])


async def main() -> None:
    name = f"ExampleTyped-{uuid.uuid4().hex[:8]}"
    await send(name)
    await consume(name, f"example-typed-{uuid.uuid4().hex[:8]}")


if __name__ == "__main__":
    asyncio.run(main())
