"""The broker of taskiq on a live orbitmq: what is sent, received, acknowledged and given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest
from taskiq import AckableMessage, BrokerMessage, TaskiqEvents, TaskiqMessage, TaskiqMiddleware, TaskiqResult
from taskiq.acks import AcknowledgeType
from taskiq.exceptions import SendTaskError
from taskiq.receiver import Receiver

from orbitmq.client import SimpleConsumer, renewals
from orbitmq.errors import ConfigurationError, InvalidStateError, MessageIllegal
from orbitmq.integrations.taskiq import OrbitMQBroker
from orbitmq.message.topics import dlq_topic
from orbitmq.testing import Cluster
from tests.support.loops import until
from tests.support.popping import is_renewed


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@asynccontextmanager
async def started(cluster: Cluster, queue: str, **settings: Any) -> AsyncIterator[OrbitMQBroker]:
    broker = OrbitMQBroker(cluster.namesrv_address, queue=queue, **settings)
    await broker.startup()
    try:
        yield broker
    finally:
        await broker.shutdown()


@asynccontextmanager
async def working(broker: OrbitMQBroker, **settings: Any) -> AsyncIterator[None]:
    """A worker of taskiq in this process."""
    finish = asyncio.Event()
    receiver = Receiver(broker, max_async_tasks=4, run_startup=False, **settings)
    running = asyncio.create_task(receiver.listen(finish))
    try:
        yield
    finally:
        finish.set()
        await running


def message(body: bytes = b"body", **labels: Any) -> BrokerMessage:
    return BrokerMessage(task_id="id", task_name="module:task", message=body, labels=labels)


async def one(broker: OrbitMQBroker) -> AckableMessage:
    listening = broker.listen()
    try:
        async with asyncio.timeout(20):
            return await anext(listening)
    finally:
        await listening.aclose()


async def acknowledge(given: AckableMessage) -> None:
    acknowledged = given.ack()
    assert acknowledged is not None
    await acknowledged


async def left(cluster: Cluster, queue: str) -> list[bytes]:
    async with SimpleConsumer(queue, cluster.namesrv_address) as consumer:
        consumer.subscribe(queue)
        return [message.body for message in await consumer.receive(timeout=1)]


async def test_a_task_that_is_acknowledged_is_delivered_once(cluster: Cluster) -> None:
    async with started(cluster, "Once") as broker:
        await broker.kick(message(b"\x00any bytes"))
        given = await one(broker)
        assert given.data == b"\x00any bytes"
        await acknowledge(given)
    assert await left(cluster, "Once") == []


async def test_a_task_that_is_not_acknowledged_goes_back_when_its_worker_stops(cluster: Cluster) -> None:
    async with started(cluster, "Back", visibility_timeout=3600) as broker:
        await broker.kick(message())
        await one(broker)
    assert await left(cluster, "Back") == [b"body"]


async def test_a_task_may_take_longer_than_its_visibility(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewals, "RENEWALS", 600)  # each of them soon
    async with started(cluster, "Longer", visibility_timeout=60) as broker:
        await broker.kick(message())
        given = await one(broker)
        for _ in range(2):
            cluster.advance(40)
            await until(is_renewed(cluster, "Longer", 60))
        assert await left(cluster, "Longer") == []
        assert await left(cluster, "Longer") == []
        await acknowledge(given)


async def test_a_listener_that_is_cancelled_keeps_no_task(cluster: Cluster) -> None:
    async with started(cluster, "Cancelled", visibility_timeout=3600) as broker:
        listening = broker.listen()
        waiting = asyncio.create_task(anext(listening))
        await until(lambda: bool(broker._receiving))
        await broker.kick(message())
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert await left(cluster, "Cancelled") == [b"body"]


async def test_a_task_with_a_delay_or_an_eta_comes_when_it_is_due(cluster: Cluster) -> None:
    async with started(cluster, "Due") as broker:
        eta = datetime.now(UTC) + timedelta(seconds=7200)
        await broker.kick(message(b"eta", eta=eta))
        await broker.kick(message(b"delay", delay="3600.0"))
        await broker.kick(message(b"now", delay=0))
        came = []
        for seconds in (0, 3600, 3600):
            cluster.advance(seconds)
            given = await one(broker)
            came.append(given.data)
            await acknowledge(given)
        assert came == [b"now", b"delay", b"eta"]
        assert cluster._clock.now_ms() > eta.timestamp() * 1000 - 10


@pytest.mark.parametrize(("label", "value"), [("delay", "soon"), ("eta", "soon"), ("eta", "2030-01-01T00:00:00")])
async def test_a_label_that_is_no_time_is_named(cluster: Cluster, label: str, value: str) -> None:
    async with started(cluster, "Labels") as broker:
        with pytest.raises(MessageIllegal, match=f"label {label}"):
            await broker.kick(message(**{label: value}))


async def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(ConfigurationError, match="visibility_timeout"):
        OrbitMQBroker("127.0.0.1:9876", visibility_timeout=0)
    with pytest.raises(ConfigurationError, match="max_reconsume_times"):
        OrbitMQBroker("127.0.0.1:9876", max_redeliveries=-1)


async def test_a_broker_may_be_started_again(cluster: Cluster) -> None:
    async with started(cluster, "Again", visibility_timeout=3600) as broker:
        await broker.kick(message())
        await one(broker)
        await broker.shutdown()
        await broker.startup()
        await acknowledge(await one(broker))
        with pytest.raises(InvalidStateError, match="running"):
            await broker.startup()
        await broker.kick(message(b"next"))
    assert await left(cluster, "Again") == [b"next"]


async def test_a_broker_that_could_not_start_may_be_tried_again(cluster: Cluster) -> None:
    broker = OrbitMQBroker(cluster.namesrv_address, queue="Tried")
    broker.is_worker_process = True
    failing = AsyncMock(side_effect=[ConnectionError("no result backend"), None])
    broker.add_event_handler(TaskiqEvents.WORKER_STARTUP, failing)
    with pytest.raises(ConnectionError):
        await broker.startup()
    assert (broker._producer.is_running, broker._consumer.is_running) == (False, False)
    await broker.startup()
    await broker.kick(message())
    await acknowledge(await one(broker))
    await broker.shutdown()


@pytest.mark.parametrize("when", list(AcknowledgeType)[:3])
async def test_a_worker_runs_each_task(cluster: Cluster, when: AcknowledgeType) -> None:
    queue, ran = f"Worked-{when.value}", list[int]()
    async with started(cluster, queue) as broker:

        @broker.task(task_name=queue)
        async def note(number: int) -> None:
            ran.append(number)

        async with working(broker, ack_type=when):
            for number in range(30):
                await note.kiq(number)
            await until(lambda: len(ran) == 30)
        assert sorted(ran) == list(range(30))
    assert await left(cluster, queue) == []


class Failing(TaskiqMiddleware):
    """Raises the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def post_execute(self, message: TaskiqMessage, result: TaskiqResult[Any]) -> None:
        self.calls += 1
        if self.calls == 1:
            raise ConnectionError("the service of a middleware is away")


def forgive() -> None:
    """taskiq leaves the error of a middleware to the event loop, which reports it."""
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)


async def test_a_task_whose_middleware_raises_is_delivered_again(cluster: Cluster) -> None:
    async with started(cluster, "Middleware", visibility_timeout=0.5) as broker:
        forgive()
        broker.add_middlewares(failing := Failing())

        @broker.task(task_name="middleware")
        async def note() -> None: ...

        async with working(broker):
            await note.kiq()
            await until(lambda: failing.calls == 2)
    assert await left(cluster, "Middleware") == []


async def test_a_task_whose_middleware_raised_goes_back_when_its_worker_stops(cluster: Cluster) -> None:
    async with started(cluster, "Raised", visibility_timeout=3600) as broker:
        forgive()
        broker.add_middlewares(failing := Failing())

        @broker.task(task_name="raised")
        async def note() -> None: ...

        async with working(broker):
            await note.kiq()
            await until(lambda: failing.calls == 1)
    assert len(await left(cluster, "Raised")) == 1


async def test_a_task_that_taskiq_never_acknowledges_is_a_dead_letter(cluster: Cluster) -> None:
    async with started(cluster, "Never", visibility_timeout=0.2, max_redeliveries=1) as broker:
        forgive()

        @broker.task(task_name="never", ack_type="never")
        async def note() -> None: ...

        async with working(broker):
            await note.kiq()
            await until(lambda: cluster.message_count(dlq_topic("Never")) == 1)


async def test_a_task_that_no_worker_survives_is_a_dead_letter(cluster: Cluster) -> None:
    async with started(cluster, "Deadly", visibility_timeout=0.1, max_redeliveries=1) as broker:
        await broker.kick(message())
    for _ in range(2):
        async with started(cluster, "Deadly", max_redeliveries=1) as broker:
            await one(broker)
    async with started(cluster, "Deadly", max_redeliveries=1) as broker:
        listening = broker.listen()
        waiting = asyncio.create_task(anext(listening))
        await until(lambda: cluster.message_count(dlq_topic("Deadly")) == 1)
        waiting.cancel()


async def test_workers_go_on_when_their_broker_is_back() -> None:
    with Cluster() as own:
        ran = list[int]()
        async with started(own, "Away") as broker:

            @broker.task(task_name="away")
            async def note(number: int) -> None:
                ran.append(number)

            async with working(broker):
                await note.kiq(1)
                await until(lambda: ran == [1])
                await asyncio.to_thread(own.kill)
                with pytest.raises(SendTaskError):
                    await note.kiq(2)
                await asyncio.to_thread(own.restart)
                await note.kiq(3)
                await until(lambda: 3 in ran)
