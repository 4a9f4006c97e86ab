"""Leave a slow broker out for a while: `latency_fault`, beside a producer that takes the brokers in turn."""

from __future__ import annotations

import asyncio

from orbitmq.client import Message, Producer
from orbitmq.testing import Cluster

TOPIC = "ExampleFaults"
COUNT = 6


async def send_some(producer: Producer) -> str:
    receipts = [await producer.send(Message(TOPIC, b"...")) for _ in range(COUNT)]
    slow = [one for one in receipts if one.queue.broker_name == "broker-b"]
    return f"{len(slow)} of {COUNT} went to the slow broker"


async def main(cluster: Cluster) -> None:
    await asyncio.to_thread(cluster.create_topic, TOPIC)
    address = cluster.namesrv_address
    async with Producer("example-in-turn", address) as producer:
        print(f"in turn: {await send_some(producer)}")

    # A broker that took 200 ms is left out for 5 s; the defaults begin at 550 ms and 30 s.
    async with Producer(
        "example-tolerant", address, latency_fault=True, latency_max="200", not_available_duration="5000"
    ) as producer:
        print(f"with latency_fault: {await send_some(producer)}")
        slow = [fault.broker_name for fault in producer.faults.values() if fault.latency_ms >= 200]
        print(f"seen to be slow: {', '.join(slow)}")


with Cluster(brokers=2) as started:
    started.delay("send", 0.25, times=None, broker="broker-b")
    asyncio.run(main(started))
