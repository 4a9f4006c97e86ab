"""A first offset for groups of Java's consumers: RocketMQ forgets one of two first ones that come at the same time, as
those of a consumer with several queues do. Where a test looks at offsets, one is there before.
"""

from __future__ import annotations

import asyncio

from orbitmq.message.model import MessageQueue
from orbitmq.net.remoting import Remoting
from orbitmq.operations.offsets import update_consumer_offset


def make_known(broker: str, topic: str, group: str, name: str = "broker-a") -> None:
    """Have the broker at the address `broker` know an offset of the group in the topic: 0 of its first queue."""

    async def commit() -> None:
        remoting = Remoting()
        try:
            await update_consumer_offset(remoting, broker, group, MessageQueue(topic, name, 0), 0)
        finally:
            await remoting.close()

    asyncio.run(commit())
