"""Avoid a broker for a while that failed or was slow: `latency_fault`, compared with a producer without it."""

from __future__ import annotations

import asyncio

from orbitmq.client import Message, Producer
from orbitmq.testing import Cluster, Fault

TOPIC = "ExampleFaults"
COUNT = 24


async def send_some(producer: Producer, fault: Fault) -> str:
    before = fault.hits
    for _ in range(COUNT):  # what fails at one broker is sent to the other, either way
        await producer.send(Message(TOPIC, b"..."))
    return f"{COUNT} sent, {fault.hits - before} attempts failed on the way"


async def main(cluster: Cluster, fault: Fault) -> None:
    await asyncio.to_thread(cluster.create_topic, TOPIC)
    async with Producer("example-in-turn", cluster.namesrv_address) as producer:
        print(f"in turn: {await send_some(producer, fault)}")

    async with Producer("example-tolerant", cluster.namesrv_address, latency_fault=True) as producer:
        print(f"with latency_fault: {await send_some(producer, fault)}")
        worst = max(producer.faults.values(), key=lambda broker: broker.available_from_ms)
        print(f"left out for a while: {worst.broker_name}")


with Cluster(brokers=2) as started:
    broken = started.disconnect("send", times=None, broker="broker-b")
    asyncio.run(main(started, broken))
