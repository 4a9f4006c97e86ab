"""A master is frozen, its slave promoted by force, and the master thaws: it takes no more, and hands nothing on."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from orbitmq.client import ConsumeFromWhere, LitePullConsumer, Message, Producer
from orbitmq.errors import BrokerError
from orbitmq.message.model import MessageQueue
from orbitmq.operations.offsets import update_consumer_offset
from orbitmq.operations.routes import cluster_info
from orbitmq.operations.statistics import runtime_info
from orbitmq.operations.tables import all_consumer_offsets
from orbitmq.wire.codes import ResponseCode
from tests.scenarios.test_promotion import promote
from tests.support.live import Addressed, Client
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.process import Daemon

BROKER = "broker-a"
MASTER: dict[str, object] = {"brokerRole": "ASYNC_MASTER"}
SLAVE: dict[str, object] = {"brokerRole": "SLAVE", "brokerId": 1}
QUEUE = MessageQueue("T", BROKER, 0)
REFUSED_WITHIN_S = 2.0


class Cluster(NamedTuple):
    names: OrbitNameServer
    former: OrbitBroker
    later: OrbitBroker
    at_former: Client
    at_later: Client


@asynccontextmanager
async def frozen_and_promoted() -> AsyncIterator[Cluster]:
    """10 messages are at both; the master is frozen, and its slave was promoted by force."""
    with (
        OrbitNameServer() as names,
        OrbitBroker(names.address, **MASTER) as former,
        OrbitBroker(names.address, **SLAVE) as later,
    ):
        async with client_at(former) as at_former, client_at(later) as at_later:
            await put(at_former, b"both", 10)
            await until_figure(at_later, "commitLogMaxOffset", await figure(at_former, "commitLogMaxOffset"))
            send_signal(former, signal.SIGSTOP)
            code, output = await asyncio.to_thread(promote, later, "--force")
            assert code == 0, output
            try:
                yield Cluster(names, former, later, at_former, at_later)
            finally:
                if former.process is not None:
                    send_signal(former, signal.SIGCONT)


@asynccontextmanager
async def client_at(broker: Addressed) -> AsyncIterator[Client]:
    client = Client(broker, "tool")
    yield client
    await client.remoting.close()


def send_signal(broker: Daemon, number: signal.Signals) -> None:
    assert broker.process is not None
    broker.process.signal(number)


def anew(client: Client) -> Client:
    """Its broker is another process now."""
    client.remoting.disconnect(client.address)
    return client


async def put(client: Client, body: bytes, count: int) -> None:
    answer = await client.send_batch("T", [body] * count)
    stored = (ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE)
    assert answer.code in stored, answer.remark


async def figure(client: Client, key: str) -> str:
    return (await runtime_info(client.remoting, client.address, timeout_ms=3000)).get(key, "")


async def first_registered(client: Client, names: OrbitNameServer) -> dict[int, str]:
    """The addresses of the broker name; the former may leave the routes a moment before the later one is in them."""
    ends = time.monotonic() + 30
    while BROKER not in (known := (await cluster_info(client.remoting, names.address, timeout_ms=3000)).brokers):
        assert time.monotonic() < ends, "no master is registered"
        await asyncio.sleep(0.05)
    return known[BROKER].addresses


async def until_figure(client: Client, key: str, wanted: str) -> None:
    ends = time.monotonic() + 30
    while wanted not in (found := await figure(client, key)):
        assert time.monotonic() < ends, f"{key} is {found}"
        await asyncio.sleep(0.05)


async def test_a_thawed_former_master_takes_nothing_not_even_what_came_while_it_was_frozen() -> None:
    async with frozen_and_promoted() as (names, former, later, at_former, at_later):
        waiting = [asyncio.create_task(at_former.send("T", b"frozen")) for _ in range(20)]
        await asyncio.sleep(0)
        await put(at_later, b"later", 5)
        send_signal(former, signal.SIGCONT)
        thawed = time.monotonic()
        answers = [*await asyncio.gather(*waiting), await at_former.send("T", b"thawed")]
        took = time.monotonic() - thawed
        assert {one.code for one in answers} == {ResponseCode.SERVICE_NOT_AVAILABLE}
        assert f"{BROKER} has a later master, {later.address}, promoted at" in (answers[-1].remark or "")
        assert took < REFUSED_WITHIN_S, "on a machine that is not overloaded"
        assert [one.body for one in await at_later.read("T", offset=10)] == [b"later"] * 5
        assert await first_registered(at_later, names) == {0: later.address}, "the route does not jump"
        await until_figure(at_former, "replicationSupersededBy", later.address)
        await until_figure(at_later, "replicationOtherMasters", f"{former.address}: it has stopped")
        async with Producer("senders", names.address) as producer:  # ordinary clients find the later one
            assert (await producer.send(Message("T", b"client"), queue=QUEUE)).queue_offset == 15


async def test_no_message_is_skipped_after_a_promotion_a_refused_slave_and_a_commit_at_it() -> None:
    """A pair; the master frozen; a forced promotion; thawed; the old master has 60 more; both stopped and started; a
    group commits at the refused slave.
    """
    async with frozen_and_promoted() as (names, former, later, at_former, at_later):
        later.stop()
        former.kill()
        (former.store_dir / "config/mastership.json").unlink(missing_ok=True)
        former.start()  # the later one is not there, and this one knows nothing of it
        await put(anew(at_former), b"lost", 60)
        former.stop()
        later._config = {}  # its properties have the role since
        later.start()
        await put(anew(at_later), b"kept", 60)
        former._config = SLAVE
        former.start()
        await until_figure(anew(at_former), "replicationRefusal", "they differ from")
        await until_figure(at_former, "replicationNotServing", "does not follow its master")
        with pytest.raises(BrokerError, match="does not follow its master"):
            await update_consumer_offset(at_former.remoting, at_former.address, "readers", QUEUE, 70)
        await until_figure(at_later, "replicationRefusedSlaves", former.address)
        former.stop()
        later.restart()
        former.start()
        await until_figure(anew(at_later), "replicationRefusedSlaves", former.address)
        known_offsets = await all_consumer_offsets(at_later.remoting, at_later.address, timeout_ms=3000)
        assert "T@readers" not in known_offsets
        known = (await cluster_info(at_later.remoting, names.address, timeout_ms=3000)).brokers[BROKER]
        assert known.addresses == {0: later.address}
        bodies: list[bytes] = []
        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        async with LitePullConsumer("readers", names.address, consume_from_where=first) as consumer:
            consumer.subscribe("T")
            while len(bodies) < 70:
                found = await consumer.poll(timeout=20)
                assert found, f"{len(bodies)} of 70 came"
                bodies += [one.body for one in found]
        assert sorted(bodies) == [b"both"] * 10 + [b"kept"] * 60
