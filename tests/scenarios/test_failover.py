"""A master is killed, with the settings that everybody has: consumers go on from its slave, producers leave it out,
both within one look at the routes. Prints how long it took.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

import pytest

from orbitmq.client import (
    BrokerError,
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    Message,
    MessageExt,
    OrbitMQError,
    Producer,
    PullConsumer,
    PushConsumer,
)
from tests.support.loops import PATIENCE_SECONDS, until
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.python_client import FIRST

COUNT = 400
ROUTES_S = 30.0  # how often clients look at the routes
SLACK_S = 10.0  # of a busy test machine
PAUSE_S = 0.05
ENOUGH = 30  # sends in a row without an error: every second one would go to the dead broker


class Sends:
    """Single attempts, one after the other: those to the dead broker are errors."""

    def __init__(self, name: str, names: str, *, latency_fault: bool) -> None:
        # Without retries every attempt at the dead broker shows.
        self._producer = Producer(name, names, retry_times=0, latency_fault=latency_fault)
        self.errors = self.sent = 0
        self.last_error_s = 0.0

    def __str__(self) -> str:
        return f"{self.errors} of {self.sent + self.errors}, the last after {self.last_error_s:.1f} s"

    async def begin(self) -> None:
        await self._producer.start()
        for _ in range(8):  # every queue once: it knows both brokers
            await self._producer.send(Message("T", b"0"))

    async def go_on(self, killed_at: float) -> None:
        """Until the dead broker is left out, and a while longer."""
        in_a_row = 0
        while in_a_row < ENOUGH and (passed := time.monotonic() - killed_at) < 2 * ROUTES_S:
            try:
                await self._producer.send(Message("T", b"0"))
                self.sent += 1
                in_a_row += 1
            except OrbitMQError:
                in_a_row = 0
                self.errors += 1
                self.last_error_s = passed
            await asyncio.sleep(PAUSE_S)
        await self._producer.shutdown()


class Reader:
    """Counts the numbered messages."""

    def __init__(self) -> None:
        self.found: set[int] = set()
        self.has_all = asyncio.Event()

    async def __call__(self, messages: Sequence[MessageExt], _context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        self.found.update(int(one.body) for one in messages)
        self.found.discard(0)
        if len(self.found) == COUNT:
            self.has_all.set()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


async def the_slave_knows_the_topic(names: str, name: str) -> None:
    """It asks its master three seconds after its start, and has nobody to ask when that is dead."""
    reader = PullConsumer("looking", names, pull_from_broker_id=1, poll_namesrv_interval_ms=200)
    async with reader, asyncio.timeout(PATIENCE_SECONDS):
        queue = next(one for one in await reader.fetch_queues("T") if one.broker_name == name)
        await until(lambda: 1 in reader._instance.routes.addresses(name), "the route to the slave")
        while True:
            with contextlib.suppress(BrokerError):
                await reader.pull(queue, "*", 0, 1)
                return
            await asyncio.sleep(0.1)


async def scenario(names: str, master: OrbitBroker) -> tuple[float, Sends, Sends]:
    plain, tolerant = Sends("plain", names, latency_fault=False), Sends("tolerant", names, latency_fault=True)
    await asyncio.gather(plain.begin(), tolerant.begin())
    await the_slave_knows_the_topic(names, master.name)
    reader = Reader()
    consumer = PushConsumer("readers", names, consume_from_where=FIRST)
    consumer.subscribe("T")
    consumer.set_listener(reader)
    async with consumer:
        consumer.suspend()
        async with Producer("numbers", names) as producer:
            for number in range(1, COUNT + 1):
                await producer.send(Message("T", b"%d" % number))
        await asyncio.to_thread(master.kill)
        killed_at = time.monotonic()
        consumer.resume()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(plain.go_on(killed_at))
            tasks.create_task(tolerant.go_on(killed_at))
            await asyncio.wait_for(reader.has_all.wait(), ROUTES_S + SLACK_S)
            consumed_s = time.monotonic() - killed_at
    return consumed_s, plain, tolerant


def test_consumers_and_producers_get_over_a_dead_master(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        OrbitNameServer() as names,
        OrbitBroker(names.address, name="a", brokerRole="SYNC_MASTER") as master,
        OrbitBroker(names.address, name="a", brokerRole="SLAVE", brokerId=1),
        OrbitBroker(names.address, name="b"),
    ):
        consumed_s, plain, tolerant = asyncio.run(scenario(names.address, master))
    with capsys.disabled():
        print(
            f"\nafter the kill: all {COUNT} consumed after {consumed_s:.1f} s; single attempts that failed: {plain}; "
            f"with latency_fault: {tolerant}"
        )
    assert consumed_s < ROUTES_S + SLACK_S
    assert plain.errors > 0, "an attempt at the dead broker must have shown"
    assert plain.last_error_s < ROUTES_S + SLACK_S / 2
    assert tolerant.errors <= 1, "it leaves a broker alone that has refused a connection"
