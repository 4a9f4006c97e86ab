"""Consumers read from a slave when the master says so, when they are told to, and when the master is gone."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Iterator
from typing import TypeAlias

import pytest
import uvloop

from orbitmq.client import BrokerError, PullConsumer, PushConsumer
from tests.support.java_rocketmq import ROCKETMQ_4, ROCKETMQ_5, JavaBroker, JavaNameServer
from tests.support.loops import until
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.python_client import FIRST, Collector, send

COUNT = 200
# No message counts as in memory, so that whoever is behind at all is sent to a slave.
_OPTIONS = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": 0}
# Of a slave: it hears with its registration where its master is, and reports after the time between two signs of life.
_SOON = {"registerNameServerPeriod": 10_000, "haSendHeartbeatInterval": 500}

NameServer: TypeAlias = JavaNameServer | OrbitNameServer
AnyBroker: TypeAlias = JavaBroker | OrbitBroker


@pytest.fixture(params=["orbitmq", ROCKETMQ_4, ROCKETMQ_5])
def names(request: pytest.FixtureRequest) -> Iterator[NameServer]:
    with OrbitNameServer() if request.param == "orbitmq" else JavaNameServer(request.param) as running:
        yield running


def made_broker(names: NameServer, **config: object) -> AnyBroker:
    if isinstance(names, OrbitNameServer):
        return OrbitBroker(names.address, **_OPTIONS, **config)
    return JavaBroker(names.address, names.version, **_OPTIONS, **config)  # type: ignore[arg-type]


def _give_topics(master: AnyBroker, slave: AnyBroker) -> None:
    """A slave of RocketMQ 5 asks for them a minute after its start; what it does then is not the matter here."""
    config = slave.store_dir / "config"
    config.mkdir(parents=True)
    shutil.copy(master.store_dir / "config/topics.json", config)


async def everything_is_at(slave: AnyBroker, topic: str) -> None:
    """Wait until the slave has all messages: they are pulled from it alone."""
    reader = PullConsumer("reader", slave.namesrv_address, pull_from_broker_id=1, poll_namesrv_interval_ms=200)
    async with reader, asyncio.timeout(60):
        queues = await reader.fetch_queues(topic)
        await until(lambda: len(reader._instance.routes.addresses(slave.name)) == 2, "the route to the slave")
        for queue in queues:
            offset = 0
            while offset < COUNT // len(queues):
                with contextlib.suppress(BrokerError):  # it learns of new topics three seconds after its start
                    offset = (await reader.pull(queue, "*", offset, 32)).next_begin_offset
                    continue
                await asyncio.sleep(0.1)
        assert reader._instance.remoting.connection(slave.address) is not None


def test_a_slave_is_read_when_told_and_when_the_master_is_gone(names: NameServer, label: str) -> None:
    async def scenario(master: AnyBroker, slave: AnyBroker) -> list[str]:
        await send(names.address, label, "before", 4, "sync")
        _give_topics(master, slave)
        await asyncio.to_thread(slave.__enter__)
        collector = Collector()
        consumer = PushConsumer(
            label, names.address, consume_from_where=FIRST, poll_namesrv_interval_ms=200, pull_batch_size=8
        )
        consumer.subscribe(label)
        consumer.set_listener(collector)
        async with consumer:
            await collector.until(4)
            consumer.suspend()
            await send(names.address, label, label, COUNT - 4, "sync")
            await everything_is_at(slave, label)
            consumer.resume()
            assert consumer._puller is not None
            advised = consumer._puller._advised
            await until(lambda: 1 in advised.values(), "the master sends who is behind to the slave")
            await asyncio.to_thread(master.kill)
            await collector.until(COUNT)
        return [row["properties"]["index"] for row in collector.rows if row["properties"]["run"] == label]

    with (
        made_broker(names) as master,
        contextlib.ExitStack() as stack,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        slave = made_broker(names, brokerId=1, brokerRole="SLAVE", **_SOON)
        stack.push(slave.__exit__)
        got = runner.run(scenario(master, slave))
    assert set(got) == {str(index) for index in range(COUNT - 4)}
