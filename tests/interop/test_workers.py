"""Workers and reads of a whole topic at RocketMQ's brokers and at orbitmq."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter

from orbitmq.client import Message, MessageExt, Producer, PullConsumer, SimpleConsumer
from orbitmq.client.worker import UNFINISHED, Ending, Worker, WorkerPlan
from orbitmq.message.topics import dlq_topic
from tests.interop.conftest import System
from tests.support.loops import until


async def filled(system: System, topic: str, *bodies: str) -> None:
    async with Producer("p", system.namesrv_address) as producer:
        await producer.create_topic(topic)
        for body in bodies:
            await producer.send(Message(topic, body.encode()))


async def test_a_worker_renews_retries_buries_and_gives_back(five: System) -> None:
    topic = f"Worker-{uuid.uuid4().hex[:8]}"
    await filled(five, topic, "fine", "long", "twice", "wrong", "unfinished")
    calls: Counter[str] = Counter()

    async def work(message: MessageExt) -> None:
        what = message.body.decode()
        calls[what] += 1
        if what == "long":
            await asyncio.sleep(12)
        elif what == "unfinished":
            await asyncio.sleep(3600)
        elif what == "wrong":
            raise LookupError(what)
        elif what == "twice" and calls[what] == 1:
            raise ValueError(what)

    plan = WorkerPlan(
        work, topic, five.namesrv_address, topic, "*", concurrency=8, timeout=600, grace=0, retry_delays=(0.1,),
        dead_letter=(LookupError,), settings={"invisible_ms": 10_000},
    )  # fmt: skip
    ending = Ending()
    worker = Worker(plan, ending)
    running = asyncio.create_task(worker.run())
    await until(
        lambda: worker.status.done >= 3 and worker.status.failed >= 2 and calls["unfinished"],
        lambda: f"{worker.status} {calls}: the end of five messages",
    )
    # Of those that take long, the broker of a busy machine may have a renewal too late, and deliver them again.
    assert (calls["fine"], calls["twice"], calls["wrong"]) == (1, 2, 1)
    ending.signal()
    assert await running == UNFINISHED
    async with SimpleConsumer(topic, five.namesrv_address) as consumer:
        consumer.subscribe(topic)
        found: dict[bytes, MessageExt] = {}
        while b"unfinished" not in found:
            found |= {message.body: message for message in await consumer.receive(timeout=30)}
        # On a busy machine the broker may have had a renewal too late.
        assert found.keys() <= {b"unfinished", b"long"}
        for message in found.values():
            await consumer.ack(message)
    async with SimpleConsumer(f"{topic}-undertaker", five.namesrv_address) as consumer:
        consumer.subscribe(dlq_topic(topic))
        (message,) = await consumer.receive(timeout=30)
        assert message.body == b"wrong"


async def test_a_whole_topic_is_read(system: System, label: str) -> None:
    await filled(system, label, *map(str, range(200)))
    async with PullConsumer(label, system.namesrv_address) as consumer:
        read = consumer.read_all(label)
        assert sorted([int(message.body) async for message in read]) == list(range(200))
        await filled(system, label, "200")
        assert [message.body async for message in consumer.read_all(label, start=read.ends)] == [b"200"]
        assert [message async for message in consumer.read_all(label, until=dict.fromkeys(read.ends, 0))] == []
