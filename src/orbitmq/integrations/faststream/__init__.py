"""orbitmq and Apache RocketMQ as a broker of FastStream (`orbitmq[faststream]`).

    from faststream import FastStream
    from orbitmq.integrations.faststream import RocketMQBroker

    broker = RocketMQBroker("127.0.0.1:9876")
    app = FastStream(broker)

    @broker.subscriber("orders", group="billing")
    @broker.publisher("invoices")
    async def bill(order: Order) -> Invoice: ...

`annotations` has what handlers take from FastStream's context.
"""

# `from __future__ import annotations` would hide the module of that name.
from orbitmq.integrations.faststream.annotations import RocketMQMessage
from orbitmq.integrations.faststream.broker import RocketMQBroker
from orbitmq.integrations.faststream.registrator import RocketMQPublish, RocketMQRoute, RocketMQRouter
from orbitmq.integrations.faststream.response import RocketMQResponse
from orbitmq.integrations.faststream.testing import TestRocketMQBroker

__all__ = [
    "RocketMQBroker",
    "RocketMQMessage",
    "RocketMQPublish",
    "RocketMQResponse",
    "RocketMQRoute",
    "RocketMQRouter",
    "TestRocketMQBroker",
]
