"""Look at every send and every call of a listener, and forbid sends that must not be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ConsumeFromWhere,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    SendContext,
)

TOPIC = "ExampleHooks"


class Watcher:
    """Hooks run inside the client: they must not wait, and what they raise is logged and changes nothing."""

    def before(self, context: SendContext | ConsumeContext) -> None:
        """What can be known before is in the context."""

    def after(self, context: SendContext | ConsumeContext) -> None:
        if isinstance(context, SendContext):
            print(f"sent: {context.result.status.name if context.result else context.error}")
        else:
            print(f"listener said {context.status.name if context.status else context.error}")


def forbid(context: SendContext) -> None:
    """What this one raises is what the sender gets."""
    if b"card number" in context.message.body:
        raise PermissionError("no card numbers in messages")


async def main() -> None:
    async with Producer("example-hooks") as producer:
        producer.add_send_hook(Watcher())
        producer.add_forbidden_hook(forbid)
        await producer.send(Message(TOPIC, b"hello"))
        try:
            await producer.send(Message(TOPIC, b"card number 4711"))
        except PermissionError as error:
            print(f"forbidden: {error}")

    done = asyncio.Event()
    consumer = PushConsumer("example-hooks-readers", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe(TOPIC)
    consumer.add_consume_hook(Watcher())

    @consumer.on_message
    async def handle(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        done.set()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async with consumer:
        await asyncio.wait_for(done.wait(), 10)


asyncio.run(main())
