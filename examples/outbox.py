"""Keep messages on disk while no broker takes them, and send them in their order when one does again."""

from __future__ import annotations

import asyncio
import logging
import tempfile

from orbitmq.client import Message, OrbitMQError, Producer, SendStatus
from orbitmq.client.outbox import Loss, Outbox, OutboxLimits
from orbitmq.testing import Cluster

TOPIC = "ExampleOutbox"


def lost(loss: Loss) -> None:
    """Told of every message that is given up, with the reason. Nothing is lost silently."""
    print(f"lost {loss.keys}: {loss.reason.name}")


async def main(cluster: Cluster, directory: str) -> None:
    limits = OutboxLimits(messages_max=3)
    outbox = Outbox(directory, limits=limits, on_loss=lost, raises=False, next_pause=lambda entry: 0.2)
    async with Producer("example-outbox", cluster.namesrv_address, outbox=outbox, send_timeout_ms=300) as producer:
        await producer.send(Message(TOPIC, b"0", keys="O-0"))
        await asyncio.to_thread(cluster.kill)
        for number in (1, 2, 3, 4):
            try:
                result = await producer.send(Message(TOPIC, b"%d" % number, keys=f"O-{number}"), sharding_key="orders")
            except OrbitMQError:
                print(f"O-{number} was sent nowhere and kept nowhere")
            else:
                assert result.status is SendStatus.STORED_LOCALLY
        print(f"broker down: {len(outbox)} wait on disk")

        await asyncio.to_thread(cluster.restart)
        async with asyncio.timeout(10):
            while len(outbox):
                await asyncio.sleep(0.02)
        print(f"broker back: {outbox.delivered} sent, the topic has {cluster.message_count(TOPIC)}")


logging.getLogger("orbitmq").setLevel(logging.CRITICAL)  # of a broker that is killed here on purpose
with Cluster() as started, tempfile.TemporaryDirectory() as place:
    asyncio.run(main(started, place))
